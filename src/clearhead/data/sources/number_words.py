"""The built-in corpus: numbers in, the same numbers spelled in two languages out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from clearhead.data.number_split import Split, sample_numbers
from clearhead.data.numbers import LANGUAGES, spell
from clearhead.data.sources.pairs import RawPair, fingerprint
from clearhead.data.sources.settings import DataConfig, Part
from clearhead.errors import ConfigError, choose


class NumberWords:
    """The built-in corpus: the same numbers spelled in two languages."""

    parts: Sequence[Part] = ()

    def __init__(self, languages: tuple[str, str], split: Split, size: int, largest: int) -> None:
        for language in languages:
            choose(LANGUAGES, language, "number language")
        if languages[0] == languages[1]:
            raise ConfigError(f"number words need two languages, not '{languages[0]}' twice: choose from de, en, zh")
        self.languages = languages
        self.split = split
        self.size = size
        self.largest = largest
        self._place = 0

    @classmethod
    def for_split(cls, config: DataConfig, split: Split) -> NumberWords:
        languages = config.source_language or "de", config.target_language or "en"
        size = {"train": config.train_size, "validation": config.validation_size, "test": config.test_size}[split]
        return cls(languages, split, size, config.largest)

    @property
    def name(self) -> str:
        return f"number words {self.languages[0]} → {self.languages[1]} ({self.split})"

    def numbers(self) -> list[int]:
        """The numbers in the order of the pairs."""
        return sample_numbers(self.split, self.size, self.largest)

    def pairs(self) -> Iterator[RawPair]:
        source, target = self.languages
        for place, number in enumerate(self.numbers(), start=1):
            self._place = place
            yield RawPair(place, spell(number, source), spell(number, target))

    def fingerprint(self) -> str:
        return fingerprint("numbers", self.languages, self.split, self.size, self.largest)

    def notes(self) -> list[str]:
        return []

    def share_read(self) -> float:
        return self._place / self.size
