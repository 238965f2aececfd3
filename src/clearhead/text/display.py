r"""Stored tokens in, strings a person can read out: a space becomes ▁, half a character becomes \xe4."""

from __future__ import annotations


def _byte_letters() -> list[str]:
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(spare)) for byte in range(256)]


BYTE_LETTERS = _byte_letters()
"""The letter that stands for each byte in byte-level tokens: GPT-2's alphabet, which `tokenizers` uses too."""

_BYTE_OF = {letter: byte for byte, letter in enumerate(BYTE_LETTERS)}


def show_bytes(token: str) -> str:
    r"""Show a byte-level token.

    >>> show_bytes("ĠäºĨ"), show_bytes("äº")
    ('▁了', '\\xe4\\xba')
    """
    return show_text(raw_bytes(token).decode("utf-8", "backslashreplace"))


def raw_bytes(token: str) -> bytes:
    r"""The bytes of a byte-level token; one that was added to others' tokenizers may be plain text.

    >>> raw_bytes("ĠäºĨ").decode(), raw_bytes("[了]").decode()
    (' 了', '[了]')
    """
    found = [_BYTE_OF.get(letter) for letter in token]
    return token.encode() if None in found else bytes(byte for byte in found if byte is not None)


def show_text(text: str) -> str:
    r"""Show spaces and characters that have no picture.

    >>> show_text(" a\n")
    '▁a\\n'
    """
    return "".join(_show_character(character) for character in text)


def _show_character(character: str) -> str:
    if character == " ":
        return "▁"
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
