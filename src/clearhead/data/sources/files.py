"""Text files in, raw aligned pairs out: two files side by side, one with columns, or several of these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from clearhead.data.lines import TextFile
from clearhead.data.number_split import Split
from clearhead.data.reasons import Reason
from clearhead.data.sources.pairs import RawPair, fingerprint
from clearhead.data.sources.settings import DataConfig, Part
from clearhead.errors import ConfigError, DataError


class AlignedFiles:
    """Two text files in which equal line numbers belong together."""

    parts: Sequence[Part] = ()

    def __init__(self, source: Path, target: Path) -> None:
        self.source = TextFile(source)
        self.target = TextFile(target)

    @classmethod
    def for_split(cls, config: DataConfig, split: Split) -> AlignedFiles | None:
        prefix = "" if split == "train" else f"{split}_"
        source, target = getattr(config, f"{prefix}source"), getattr(config, f"{prefix}target")
        if source and target:
            return cls(config.path(source), config.path(target))
        if source or target:
            given, absent = ("source", "target") if source else ("target", "source")
            raise ConfigError(f"data.{prefix}{given} is {source or target}, but data.{prefix}{absent} is missing")
        return None

    @property
    def name(self) -> str:
        return f"{self.source.path} + {self.target.path}"

    def pairs(self) -> Iterator[RawPair]:
        lines = zip_longest(self.source.lines(), self.target.lines())
        for number, (source, target) in enumerate(lines, start=1):
            if isinstance(source, str) and isinstance(target, str):
                yield RawPair(number, source, target)
            elif source is None or target is None:
                from clearhead.data.alignment import explain_unequal

                raise DataError(explain_unequal(self.source, self.target))
            else:
                reason = next(side for side in (source, target) if isinstance(side, Reason))
                yield RawPair(number, _text(source), _text(target), reason)

    def fingerprint(self) -> str:
        return fingerprint("files", self.source.digest(), self.target.digest())

    def notes(self) -> list[str]:
        return self.source.notes() + self.target.notes()

    def share_read(self) -> float:
        return self.source.share_read


class TabSeparated:
    """One text file with source and target in two of its columns."""

    parts: Sequence[Part] = ()

    def __init__(self, path: Path, columns: tuple[int, int] = (1, 2)) -> None:
        self.file = TextFile(path)
        self.columns = columns

    @classmethod
    def for_split(cls, config: DataConfig, split: Split) -> TabSeparated | None:
        path = {"train": config.tsv, "validation": config.validation_tsv, "test": config.test_tsv}[split]
        return cls(config.path(path), (config.columns[0], config.columns[1])) if path else None

    @property
    def name(self) -> str:
        return str(self.file.path)

    def pairs(self) -> Iterator[RawPair]:
        source, target = self.columns[0] - 1, self.columns[1] - 1
        needed = max(self.columns)
        for number, line in enumerate(self.file.lines(), start=1):
            if isinstance(line, Reason):
                yield RawPair(number, None, None, line)
                continue
            fields = line.split("\t", needed)
            if len(fields) >= needed:
                yield RawPair(number, fields[source], fields[target])
            else:
                yield RawPair(number, None, None, Reason.EMPTY if not line.strip() else Reason.MISSING_COLUMN)

    def fingerprint(self) -> str:
        return fingerprint("tsv", self.columns, self.file.digest())

    def notes(self) -> list[str]:
        return self.file.notes()

    def share_read(self) -> float:
        return self.file.share_read


class Joined:
    """Several tab-separated files, one after the other."""

    def __init__(self, parts: Sequence[Part], files: Sequence[TabSeparated]) -> None:
        self.parts = parts
        self.files = files

    @classmethod
    def for_split(cls, config: DataConfig, split: Split) -> Joined | None:
        if split != "train" or not config.parts:
            return None
        columns = ((part.columns[0], part.columns[1]) for part in config.parts)
        paths = (config.path(part.tsv) for part in config.parts)
        return cls(config.parts, [TabSeparated(path, pair) for path, pair in zip(paths, columns, strict=True)])

    @property
    def name(self) -> str:
        return " + ".join(file.name for file in self.files)

    def pairs(self) -> Iterator[RawPair]:
        for file in self.files:
            file.file.share_read = 0.0
        raws = ((part, raw) for part, file in enumerate(self.files) for raw in file.pairs())
        for number, (part, raw) in enumerate(raws, start=1):
            yield raw._replace(number=number, part=part)

    def fingerprint(self) -> str:
        return fingerprint("parts", *(file.fingerprint() for file in self.files))

    def notes(self) -> list[str]:
        return [note for file in self.files for note in file.notes()]

    def share_read(self) -> float:
        sizes = [file.file.path.stat().st_size for file in self.files]
        return sum(size * file.share_read() for size, file in zip(sizes, self.files, strict=True)) / max(1, sum(sizes))


def _text(line: str | Reason) -> str | None:
    return None if isinstance(line, Reason) else line
