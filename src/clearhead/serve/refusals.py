"""Why a request is not answered in, the answer out: each API says no in its own form, with its own words and codes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from clearhead.errors import ConfigError, DataError, UsageError

MISSING_KEY = "Please contact the server operator to get an API key"
INVALID_KEY = "Invalid API key"


@dataclass(eq=False)
class Refusal(Exception):
    """A request that is answered with a no."""

    status: int
    message: str
    param: str | None = None
    """OpenAI: the field that is wrong ..."""
    code: str | None = None
    """... and what is wrong with it."""
    retry_after: float | None = None
    """Seconds after which it is worth trying again."""
    challenge: bool = False
    """Whether a browser should ask its user for a key."""

    def __str__(self) -> str:
        return self.message

    @property
    def headers(self) -> dict[str, str]:
        """What goes with the answer."""
        found = {} if self.retry_after is None else {"Retry-After": str(max(1, math.ceil(self.retry_after)))}
        return {**found, "WWW-Authenticate": 'Basic realm="Clearhead", charset="UTF-8"'} if self.challenge else found

    def body(self, path: str) -> dict[str, Any]:
        """The answer in the form of the API that a path belongs to."""
        return self.as_openai() if is_openai(path) else {"error": self.message}

    def as_openai(self) -> dict[str, Any]:
        """The answer as an error object of OpenAI's."""
        kinds = {429: "requests", 500: "server_error", 503: "server_error"}
        kind = kinds.get(self.status, "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def is_openai(path: str) -> bool:
    """Whether a path is OpenAI's: all others answer as LibreTranslate does."""
    return path == "/v1" or path.startswith("/v1/")


def invalid(reason: str, param: str | None = None, code: str | None = None) -> Refusal:
    """The fields of a request make no sense."""
    return Refusal(400, reason, param, code)


def overloaded(seconds: float) -> Refusal:
    """There is no room; it is worth trying again after so many seconds."""
    return Refusal(503, "the server is busy: too many requests are waiting, try again later", None, None, seconds)


def too_slow(seconds: float) -> Refusal:
    """A request took all the time it had."""
    return Refusal(
        503, f"the request took longer than {seconds:g} s: send less at once, or try again later", None, None, 1
    )


def stopping() -> Refusal:
    """The server has been told to stop."""
    return Refusal(503, "the server is stopping: try again", None, None, 1)


def of_error(error: BaseException) -> Refusal:
    """What an error means for whoever asked: some are about what was asked, any other is our fault."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, (DataError, ConfigError, UsageError)):
        return Refusal(400, str(error))
    return Refusal(500, "this is a bug in clearhead: the server's log says more")
