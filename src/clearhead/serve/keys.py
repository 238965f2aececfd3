"""The keys of those who may ask in, a yes or no out that takes the same time whichever key was given."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from clearhead.errors import ConfigError, MissingInputError, StorageError

VARIABLE = "CLEARHEAD_KEYS"
"""The environment variable that holds keys, with spaces or commas between them."""
_KEY = re.compile(r"[!-+\--~]{8,200}")


class Keys:
    """Who may ask; without any key, everybody may."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._digests = [_digest(key) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def allow(self, key: str) -> bool:
        """Whether a key is one of ours; all are compared, each in constant time."""
        given = _digest(key)
        return sum(hmac.compare_digest(given, ours) for ours in self._digests) > 0


def read_keys(file: Path | None, environment: Mapping[str, str] = os.environ) -> Keys:
    """The keys in a file, one a line, and in the environment; what stands behind a # is a comment."""
    texts = [environment.get(VARIABLE, "").replace(",", "\n")]
    if file is not None:
        try:
            texts.append(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise MissingInputError(f"there is no file of keys {file}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise StorageError(f"the file of keys {file} cannot be read: {error}") from None
    found = [key for text in texts for line in text.splitlines() for key in line.partition("#")[0].split()]
    for number, key in enumerate(found, start=1):
        if not _KEY.fullmatch(key):
            raise ConfigError(
                f"key {number} is not one: 8 to 200 letters, digits and signs without spaces and commas; "
                "python -c 'import secrets; print(secrets.token_urlsafe(24))' makes a good one"
            )
    if file is not None and not found:
        raise ConfigError(f"{file} holds no key: write one a line")
    return Keys(found)


def key_in_headers(headers: Mapping[str, str]) -> str | None:
    """The key that a client sent as OpenAI's do (Bearer), or as a browser does after asking for a password (Basic)."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value.strip(), validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError, ValueError):
            return ""
    return headers.get("x-api-key")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
