"""Answers that take long come in one by one, and are still there when the same is asked again after a stop."""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from types import TracebackType

from clearhead.storage import hold


class Answers:
    """What each of several models answered to each text, in a file of lines until that is forgotten."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._answers: dict[str, dict[str, str]] = defaultdict(dict)
        self._file = path.open("a+b")
        try:
            hold(self._file, f"{path} is being written")
            self._recall()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Answers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the file; one without any answer is of no use."""
        self._file.close()
        if not len(self):
            self.forget()

    def __len__(self) -> int:
        return sum(map(len, self._answers.values()))

    def by(self, model: str) -> dict[str, str]:
        """The answers of one model by the texts they are to."""
        return self._answers[model]

    def add(self, model: str, text: str, answer: str) -> None:
        """Remember one more; it is on disk when the next is asked for, though perhaps not after a power cut."""
        self._answers[model][text] = answer
        self._file.write(json.dumps([model, text, answer]).encode() + b"\n")
        self._file.flush()

    def forget(self) -> None:
        """Remove the file."""
        self._answers.clear()
        self._path.unlink(missing_ok=True)

    def _recall(self) -> None:
        """Read what is there; a line that was being written at the stop is dropped, and all after a damaged one."""
        self._file.seek(0)
        end = 0
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            with suppress(ValueError, TypeError):
                model, text, answer = json.loads(line)
                self._answers[str(model)][str(text)] = str(answer)
                end += len(line)
                continue
            break
        self._file.truncate(end)


def identity(model: Path, *settings: object) -> str:
    """The same for the same files of a model and the same settings, without reading it all."""
    files = sorted(path for path in model.rglob("*") if path.is_file())
    facts = [(str(path.relative_to(model)), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return blake2b(repr((facts, settings)).encode(), digest_size=16).hexdigest()
