"""Every mistake a user can make, each with its exit code: raised anywhere, shown as one line by the command line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

Variant = TypeVar("Variant")


class ClearheadError(Exception):
    """Something went wrong that one clear sentence can explain."""

    exit_code = 1


class UsageError(ClearheadError):
    """The command line does not make sense."""

    exit_code = 2


class DataError(ClearheadError):
    """The input is there but is not what it should be."""

    exit_code = 65


class MissingInputError(ClearheadError):
    """A file or folder that was named is not there."""

    exit_code = 66


class UnavailableError(ClearheadError):
    """Something outside (a package, a network, a device) is needed and not there."""

    exit_code = 69


class WouldOverwriteError(ClearheadError):
    """The output exists already, and nothing is overwritten unasked."""

    exit_code = 73


class StorageError(ClearheadError):
    """The disk is full, or a file on it is damaged."""

    exit_code = 74


class ConfigError(ClearheadError):
    """A configuration key or value is wrong."""

    exit_code = 78


class DivergedError(ClearheadError):
    """A model produced a number that is not finite; in training, the weights before that step are kept."""


class ParityError(ClearheadError):
    """An exported or imported model does not say what the original says."""


INTERNAL_ERROR = 70
INTERRUPTED = 130
TERMINATED = 143


def did_you_mean(name: str, choices: Iterable[str], section: str = "") -> str:
    """The tail of an error message: the nearest valid name, with its section, or all of them when none is near.

    >>> did_you_mean("drop_out", ["dropout", "dim"])
    "did you mean 'dropout'?"
    >>> did_you_mean("xyz", ["dropout", "dim"])
    'choose from: dim, dropout'
    >>> did_you_mean("drop_out", ["dropout", "dim"], "model.")
    "did you mean 'model.dropout'?"
    """
    known = sorted(choices)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean '{section}{near[0]}'?" if near else f"choose from: {', '.join(known)}"


def choose(table: Mapping[str, Variant], name: str, family: str) -> Variant:
    """Look a variant up in its family's table, or say what there is."""
    try:
        return table[name]
    except KeyError:
        raise ConfigError(f"unknown {family} '{name}': {did_you_mean(name, table)}") from None
