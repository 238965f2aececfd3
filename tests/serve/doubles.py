"""Stand-ins for models: what they answer follows from what they are asked, and they can be slow, stuck or broken."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from clearhead.errors import DataError
from clearhead.serve.backends import (
    Label,
    Lane,
    Looked,
    Piece,
    Prompt,
    Translated,
    TranslateOptions,
    Watch,
    WriteOptions,
    Written,
    WrittenToken,
)
from clearhead.serve.catalogue import Served


class Backwards:
    """Translates by turning each text around; keeps a record of its batches."""

    def __init__(self, *, most_rows: int = 8, most_tokens: int = 400, longest: int = 100, step: float = 0.0) -> None:
        self.lane = Lane("backwards")
        self.most_rows, self.most_tokens, self.longest, self.step = most_rows, most_tokens, longest, step
        self.batches: list[list[str]] = []
        self.gate = threading.Event()
        """Nothing is answered while it is closed."""
        self.gate.set()
        self.steps = 0

    def count(self, text: str) -> int:
        return len(text) + 1

    def translate_batch(self, texts: Sequence[str], options: TranslateOptions, watch: Watch) -> list[list[Translated]]:
        self.batches.append(list(texts))
        while not self.gate.wait(0.001) or self.step:
            self.steps += 1
            if len(watch.unwanted()) == len(texts):
                return [[Translated("", 0.0)] for _ in texts]
            if self.step:
                time.sleep(self.step)
                break
        if any("bomb" in text for text in texts):
            raise RuntimeError("a bomb")
        if any("poison" in text for text in texts):
            raise DataError("this text is poisonous")
        return [
            [Translated(text[::-1] + "'" * rank, -float(rank)) for rank in range(options.results)] for text in texts
        ]


class Counting:
    """Continues a text with its own letters, over and over; the number it draws from decides where it begins."""

    def __init__(self, *, longest: int | None = 400, step: float = 0.0) -> None:
        self.lane = Lane("counting")
        self.most_rows, self.most_tokens, self.longest, self.step = 8, 10_000, longest, step
        self.steps = 0
        self.under_way = 0
        self.lengths: list[int] = []
        """How many tokens were written of each row."""

    def read(self, text: str) -> tuple[int, ...]:
        return tuple(map(ord, text))

    def text(self, ids: Sequence[int]) -> str:
        if not all(32 <= index < 0x110000 and not 0xD800 <= index < 0xE000 for index in ids):
            raise DataError("these are no tokens of this model")
        return "".join(map(chr, ids))

    def group(self, prompt: Prompt) -> int:
        return len(prompt.ids)

    def write_batch(self, prompts: Sequence[Prompt], options: WriteOptions, watch: Watch) -> list[Written]:
        written: list[list[WrittenToken]] = [[] for _ in prompts]
        finish: dict[int, str] = {}
        self.under_way = len(prompts)
        for step in range(max(prompt.most_tokens for prompt in prompts)):
            self.steps += 1
            time.sleep(self.step)
            gone = watch.unwanted()
            for place, prompt in enumerate(prompts):
                if place in finish or place in gone or step >= prompt.most_tokens:
                    continue
                letters = self.text(prompt.ids) or "abc"
                start = prompt.chance % len(letters) if options.temperature else 0
                token = letters[(start + step) % len(letters)]
                said = "".join(one.text for one in written[place]) + token
                if any(said.endswith(stop) for stop in options.stop):
                    finish[place] = "stop"
                    continue
                top = tuple((chr(ord("a") + rank), -1.0 - rank) for rank in range(options.top))
                one = WrittenToken(token, -0.5 - start, top)
                written[place].append(one)
                watch.tell(place, Piece(token, (one,)))
            if len({*finish, *gone}) == len(prompts):
                break
        self.under_way = 0
        self.lengths.extend(map(len, written))
        return [
            Written("".join(one.text for one in row), tuple(row), "stop" if place in finish else "length")
            for place, row in enumerate(written)
        ]


class Shouting:
    """A classifier: texts in capitals are loud."""

    lane = Lane("shouting")
    most_rows, most_tokens = 8, 10_000

    def count(self, text: str) -> int:
        return len(text) + 1

    def classify_batch(self, texts: Sequence[str], watch: Watch) -> list[list[Label]]:
        names = [("loud", "quiet") if text.isupper() else ("quiet", "loud") for text in texts]
        return [[Label(first, 0.9), Label(second, 0.1)] for first, second in names]


class Glass:
    """An inspector that finds no attention, only what it was asked."""

    lane = Lane("glass")
    most_rows, most_tokens, longest = 1, 10_000, 10_000

    def count(self, text: str) -> int:
        return len(text) + 1

    def look(self, text: str, target: str | None, ablate: Sequence[str]) -> Looked:
        return Looked({"texts": {"source": text, "target": target}, "ablated": list(ablate)}, text[::-1], 0.5)


def backwards(name: str = "backwards", translator: Backwards | None = None, **facts: Any) -> Served:
    """A translator that is served."""
    known: dict[str, Any] = {"sources": ("de", "zh"), "target": "en", "inspector": Glass(), **facts}
    return Served(name, "translator", translator=translator or Backwards(), **known)


def counting(name: str = "counting", writer: Counting | None = None) -> Served:
    """A language model that is served."""
    return Served(name, "gpt", created=1_700_000_000, writer=writer or Counting())


def shouting(name: str = "shouting") -> Served:
    """A classifier that is served."""
    return Served(name, "classifier", classifier=Shouting())
