"""Texts as they come in, turns out: as many as are answered together, or fewer where nothing more comes for a while."""

from __future__ import annotations

from collections.abc import Iterator


def next_turn(texts: Iterator[str | None], most: int) -> list[str]:
    """The next texts, at most so many; a None among them says that there is a pause: none of them must wait for more.

    >>> coming = iter(["a", "b", "c", None, None, "d"])
    >>> next_turn(coming, 2), next_turn(coming, 2), next_turn(coming, 2), next_turn(coming, 2)
    (['a', 'b'], ['c'], ['d'], [])
    """
    turn: list[str] = []
    for text in texts:
        if text is not None:
            turn.append(text)
        if len(turn) == most or (text is None and turn):
            break
    return turn
