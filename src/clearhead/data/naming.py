"""Names of data files in, where these are out: in a named set, or in the folder that a stored config was made in.

A run's config keeps names as its user gave them, and the folder they are relative to as seen from the run directory: so
a run can be gone on with and scored from anywhere, also after it has moved together with its data.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

import tomli_w

from clearhead.config import Record, Tree, read_toml
from clearhead.data.sets import set_file
from clearhead.errors import DataError, MissingInputError


class NamedFiles(Record):
    """What settings of data share: a named set, or files by their names."""

    FILES: ClassVar[tuple[str, ...]] = ()
    """The settings that name files."""

    dataset: str | None = None
    """A named set, such as "multi30k" or "imdb": file names are then those of its files (clearhead data list)."""

    base: str | None = None
    """The folder in which files with relative names are; in a config file, as seen from that file. Left out, it is the
    current one. The config of a run has it, so that the run can be gone on with from anywhere."""

    @property
    def files(self) -> list[str]:
        """All files that are named."""
        values = (getattr(self, name) for name in self.FILES)
        return [file for value in values for file in ([value] if isinstance(value, str) else value or ())]

    @property
    def loose_files(self) -> list[str]:
        """Those that are of no set."""
        return self.files if self.dataset is None else []

    def path(self, name: str) -> Path:
        """Where a named file lies: in the named set, if there is one, or in the folder where it was named.

        It is not looked for anywhere else: a file of the same name holds something else.
        """
        return self.loose(name) if self.dataset is None else set_file(self.dataset, name)

    def loose(self, name: str) -> Path:
        """Where a file of no set lies."""
        if self.base is None or Path(name).is_absolute():
            return Path(name)
        there = Path(self.base, name)
        if not there.exists():
            raise MissingInputError(
                f"there is no {there}, where the training data were: put {name} there, or set data.base to the folder "
                "that has it now (to train with --set, else in config.toml)"
            )
        return there

    def seen_from(self, directory: Path) -> str | None:
        """`base` for a config file in a directory; none is needed where all names are absolute, or those of a set."""
        if all(Path(file).is_absolute() for file in self.loose_files):
            return None
        return _relative(Path(self.base or "."), directory)


def read_settings(path: Path) -> Tree:
    """A config file as a tree, in which `data.base` is as seen from here."""
    tree = read_toml(path)
    data = tree.get("data")
    if isinstance(data, dict) and isinstance(data.get("base"), str):
        base = (path.parent / data["base"]).resolve()
        del data["base"]
        if base != Path.cwd().resolve():
            data["base"] = str(base)
    return tree


def kept_settings(home: Path, to: Path) -> str:
    """The config that a model or run directory keeps, as the text of a file in another directory; empty without one."""
    path = next((home / name for name in ("training_config.toml", "config.toml") if (home / name).is_file()), None)
    if path is None:
        return ""
    tree = read_toml(path)
    data = tree.get("data")
    if not isinstance(data, dict) or not isinstance(data.get("base"), str):
        return path.read_text(encoding="utf-8")
    data["base"] = _relative(home / data["base"], to)
    return tomli_w.dumps(tree)


def label_of(folder: Path, name: str) -> str:
    """The name of one of its folders as a label, which is stored and shown: it must be text."""
    try:
        name.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(name).decode(errors="backslashreplace")
        raise DataError(
            f"{folder} has a folder '{shown}', whose name is not UTF-8 and can be no label: rename it"
        ) from None
    return name


def _relative(folder: Path, directory: Path) -> str:
    try:
        return Path(os.path.relpath(folder.resolve(), directory.resolve())).as_posix()
    except ValueError:  # On Windows, another drive.
        return str(folder.resolve())
