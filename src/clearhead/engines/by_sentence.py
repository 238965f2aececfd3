"""Texts of several sentences in, their translations out: taken apart, translated sentence by sentence, put together.

A model that has learnt from single sentences makes little of two at once, and reads none that are too long for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from clearhead.text.apart import Taken, says_something, take_apart


def by_sentence(
    texts: Iterable[str | None],
    translated: Callable[[Iterator[str | None]], Iterator[str]],
    count: Callable[[str], int],
    longest: int,
) -> Iterator[str]:
    """The translation of each text, in order, by `translated`, which has one for each sentence, in order.

    No sentence is given to it with a `count` of more than `longest`; a None among the texts, which is a pause, is
    passed on.
    """
    waiting: deque[tuple[Taken, int]] = deque()

    def sentences() -> Iterator[str | None]:
        for text in texts:
            if text is None:
                yield None
                continue
            taken = take_apart(text, count, longest)
            # A text that says nothing waits for the answer to nothing, so that it is given out when its turn comes.
            asked = [sentence for sentence in taken.sentences if says_something(sentence)] or [""]
            waiting.append((taken, len(asked)))
            yield from asked

    made: list[str] = []
    for one in translated(sentences()):
        made.append(one)
        if len(made) == waiting[0][1]:
            yield _together(waiting.popleft()[0], made)
            made = []


def _together(taken: Taken, made: list[str]) -> str:
    """A text of translated sentences, in one line; what says nothing stays as it is."""
    texts = iter(made)
    parts = [next(texts) if says_something(sentence) else sentence for sentence in taken.sentences]
    return " ".join(taken.together(parts).strip().splitlines())
