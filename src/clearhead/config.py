"""TOML text and `key=value` overrides in, typed, frozen, strict records out; every mistake names the nearest valid key.

The records themselves live beside the thing they configure; this file holds only what they share.
"""

from __future__ import annotations

import copy
import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import tomli_w
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, field_validator

from clearhead.errors import ConfigError, MissingInputError, did_you_mean

Tree = dict[str, Any]
SomeRecord = TypeVar("SomeRecord", bound="Record")


class Record(BaseModel):
    """A frozen set of named, typed settings; the text under a field is its help."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        protected_namespaces=(),
    )

    @field_validator("*")
    @classmethod
    def _can_be_written(cls, value: Any) -> Any:
        """Settings are kept in files of UTF-8, and a file's name may be any bytes."""
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and not text.isascii():
                try:
                    text.encode()
                except UnicodeEncodeError:
                    raise ValueError("not valid UTF-8, as settings must be: rename what has that name") from None
        return value


def one_of(choices: Iterable[str], family: str) -> AfterValidator:
    """A check for a field that names a member of a family's table."""
    known = tuple(choices)

    def check(name: str) -> str:
        if name not in known:
            raise ValueError(f"unknown {family}, {did_you_mean(name, known)}")
        return name

    return AfterValidator(check)


def read_toml(path: Path) -> Tree:
    """Read a TOML file into nested dictionaries."""
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        raise MissingInputError(f"there is no config file {path}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def to_toml(record: Record) -> str:
    """Write a record the way a person would: keys that are None are left out."""
    return tomli_w.dumps(record.model_dump(exclude_none=True))


def to_value(value: Any) -> str:
    """One value as it stands behind the `=` in TOML, on one line.

    >>> to_value([{"tsv": "a b", "repeat": 2, "language": None}]), to_value("ü"), to_value(True), to_value(1e-4)
    ('[{ tsv = "a b", repeat = 2 }]', '"ü"', 'true', '0.0001')
    """
    if isinstance(value, Mapping):
        entries = ", ".join(f"{key} = {to_value(entry)}" for key, entry in value.items() if entry is not None)
        return f"{{ {entries} }}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(to_value, value))}]"
    return json.dumps(value, ensure_ascii=False)


def override(tree: Mapping[str, Any], assignments: Iterable[str]) -> Tree:
    """Apply `section.key=value` assignments, where a value is TOML or, failing that, a plain string.

    >>> override({"train": {"lr": 1.0}}, ["train.lr=3e-4", "train.optimizer=adamw"])
    {'train': {'lr': 0.0003, 'optimizer': 'adamw'}}
    """
    result: Tree = copy.deepcopy(dict(tree))
    for assignment in assignments:
        dotted, equals, text = assignment.partition("=")
        if not equals or not dotted.strip():
            raise ConfigError(f"--set takes section.key=value, not '{assignment}'")
        *sections, key = dotted.strip().split(".")
        place: Any = result
        for section in sections:
            place = _enter(place, section, dotted)
        place[_step(place, key, dotted)] = _toml_value(text.strip())
    return result


def _enter(place: Any, section: str, dotted: str) -> Any:
    """One step of `data.parts.0.repeat`: into a section, which is made if need be, or into one of several tables."""
    step = _step(place, section, dotted)
    inner = place[step] if isinstance(step, int) else place.setdefault(step, {})
    if not isinstance(inner, (dict, list)):
        raise ConfigError(f"'{section}' in '{dotted}' is a value, not a section")
    return inner


def _step(place: Any, key: str, dotted: str) -> str | int:
    """What an entry is called where it is: a key in a section, a number in a list."""
    if not isinstance(place, list):
        return key
    if not key.isdecimal() or int(key) >= len(place):
        which = f"none of the {len(place)} entries of a list, counted from 0"
        raise ConfigError(f"'{key}' in '{dotted}' is {which}: put the number of one in its place or before it")
    return int(key)


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def build(record: type[SomeRecord], tree: Mapping[str, Any], where: str) -> SomeRecord:
    """Check a tree against a record; all mistakes come back in one ConfigError that says where and what."""
    try:
        return record.model_validate(dict(tree))
    except ValidationError as error:
        complaints = [_complaint(record, dict(problem)) for problem in error.errors()]
        raise ConfigError(f"{where}: " + "; ".join(complaints)) from None


def _complaint(record: type[Record], problem: dict[str, Any]) -> str:
    path = [str(part) for part in problem["loc"]]
    dotted = ".".join(path)
    if problem["type"] == "extra_forbidden":
        parent = _record_at(record, path[:-1])
        section = dotted.removesuffix(path[-1])
        advice = did_you_mean(path[-1], parent.model_fields, section) if parent else "remove it"
        return f"unknown key '{dotted}', {advice}"
    if problem["type"] == "missing":
        return f"'{dotted}' is missing"
    reason = str(problem["msg"]).removeprefix("Value error, ")
    reason = reason[:1].lower() + reason[1:]
    return f"'{dotted}' = {problem['input']!r}: {reason}" if dotted else reason


def _record_at(record: type[Record], path: Iterable[str]) -> type[Record] | None:
    for name in path:
        if name.isdecimal():  # One of several tables: they are all alike.
            continue
        field = record.model_fields.get(name)
        if field is None:
            return None
        kinds = [field.annotation, *get_args(field.annotation)]
        nested = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Record)]
        if not nested:
            return None
        record = nested[0]
    return record


def describe(record: type[Record], prefix: str = "") -> list[tuple[str, str, str]]:
    """All keys of a record with their default and their documentation, in reading order."""
    rows: list[tuple[str, str, str]] = []
    for name, field in record.model_fields.items():
        nested = None if get_origin(field.annotation) is list else _record_at(record, [name])
        if nested is not None:
            rows.extend(describe(nested, f"{prefix}{name}."))
        else:
            default = "required" if field.is_required() else repr(field.default)
            rows.append((f"{prefix}{name}", default, field.description or ""))
    return rows
