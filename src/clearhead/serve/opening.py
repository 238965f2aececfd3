"""Paths of models in, models that can be served out, each on the engine it was made for, or on one it is converted for.

A model directory of ours is loaded with torch, which people look inside with. `auto` then has it translate or write on
CTranslate2, if that can say the same; a new engine needs a line in `engines/opening.py` and in `export/targets.py`, and
for a new kind of model on engines one in `exported.py`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clearhead.config import read_toml
from clearhead.engines.directory import EXPORT
from clearhead.engines.opening import ENGINES, cores, open_exported
from clearhead.errors import ClearheadError, ConfigError, StorageError, UsageError, choose
from clearhead.run.built_in import default_model
from clearhead.run.engines import ENGINE_NAMES, TORCH, made_for
from clearhead.serve import exported
from clearhead.serve.backends import Lane
from clearhead.serve.catalogue import Catalogue, Served
from clearhead.serve.names import NAMES
from clearhead.storage import read_json

AUTO = "auto"
FASTEST = "ctranslate2"
"""The engine that `auto` prefers for what it can express."""
TRIED = 4
"""Texts that a language model that was converted is compared on: torch goes on with them token by token."""


@dataclass(frozen=True)
class Wanted:
    """What is wanted of all models of a server."""

    engine: str
    device: str
    threads: int | None
    sources: tuple[str, ...]
    """The languages of translators that do not name theirs ..."""
    target: str | None
    """... and the one they translate to."""
    reduce: dict[str, Any]
    """How the tokens of encoders become fewer, if they do; the settings of `model.reduce`."""
    lanes: dict[str, Lane]
    """Models on one engine share the cores."""

    def lane(self, engine: str) -> Lane:
        """Where models on an engine compute: on each core one batch."""
        return self.lanes.setdefault(engine, Lane(engine, self.threads or cores()))


def open_models(
    paths: Sequence[Path | None],
    *,
    engine: str = AUTO,
    device: str = "auto",
    threads: int | None = None,
    languages: str | None = None,
    reduce: dict[str, Any] | None = None,
) -> Catalogue:
    """Every model of a server; `languages` (de:en, or de,zh:en) are those of translators that do not name theirs.

    `reduce` lets the tokens of all models become fewer, by the settings of `model.reduce`.
    """
    choose(dict.fromkeys((AUTO, *ENGINE_NAMES)), engine, "engine")
    sources, target = _told(languages) if languages is not None else ((), None)
    found = [default_model() if path is None else path for path in paths]
    names = [_name(path) for path in found]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two models are called '{name}': rename the directory of one of them")
    wanted = Wanted(engine, device, threads, sources, target, reduce or {}, {})
    return Catalogue([_open(path, wanted) for path in found])


def _name(path: Path) -> str:
    """What a model is called."""
    return path.resolve().name


def _open(path: Path, wanted: Wanted) -> Served:
    made = made_for(path)
    if made != TORCH:
        if wanted.engine not in (AUTO, made):
            raise UsageError(
                f"{path} was exported for {made} and cannot be served on {wanted.engine}: leave --engine out"
            )
        if wanted.reduce:
            raise UsageError(
                f"{path} is an exported model, which keeps all its tokens: leave out --reduce, or name the original"
            )
        return _open_exported(path, made, wanted)
    model = _open_torch(path, wanted)
    if wanted.engine == TORCH:
        return model
    if wanted.engine == AUTO:
        return _on_fastest(model, path, wanted)
    able = _engines(model.kind)
    if wanted.engine not in able:
        raise UsageError(f"{path} is a {model.kind}, which is served on {' or '.join(able)} only: leave --engine out")
    return _converted(model, path, wanted.engine, wanted)


def _engines(kind: str) -> list[str]:
    """The engines that a kind of model is served on."""
    return [TORCH, *(engine for engine, kinds in ENGINES.items() if kind in exported.PARTS and kind in kinds)]


def _on_fastest(model: Served, path: Path, wanted: Wanted) -> Served:
    """The same model on the engine that is preferred; one that this cannot be stays as it is, and says why."""
    if FASTEST not in _engines(model.kind):
        return model
    try:
        copy = _converted(model, path, FASTEST, wanted)
    except ClearheadError as error:
        return replace(model, remark=f"not on {FASTEST}: {error}")
    # CTranslate2 would have to read a text anew wherever chance does not choose the likeliest token.
    return copy if model.writer is None else replace(copy, drawer=model.writer, remark=f"what is drawn, on {TORCH}")


def _open_torch(path: Path, wanted: Wanted) -> Served:
    import torch

    from clearhead.checkpoint import locate
    from clearhead.run.using import load
    from clearhead.serve.torch_models import PARTS

    if wanted.threads is not None:
        torch.set_num_threads(wanted.threads)
    loaded = load(path, wanted.device)
    kind = loaded.model.config.kind
    if kind not in PARTS:
        raise UsageError(f"{path} is a {kind}, which the server does not serve: it serves {', '.join(PARTS)}")
    if wanted.reduce and not hasattr(loaded, "reduce"):
        raise UsageError(f"{path} is a {kind}, whose tokens cannot become fewer: leave out --reduce, or this model")
    if wanted.reduce:
        loaded.reduce(**wanted.reduce)
    described, weights = locate(path)
    sources, target = languages_of(described)
    return Served(
        name=_name(path),
        kind=kind,
        engine=TORCH,
        created=int((weights / "model.safetensors").stat().st_mtime),
        parameters=sum(tensor.numel() for tensor in loaded.model.parameters()),
        sources=sources or wanted.sources,
        target=target or wanted.target,
        **PARTS[kind](loaded),
    )


def _open_exported(path: Path, engine: str, wanted: Wanted) -> Served:
    """A model that was exported; nobody can look inside it."""
    notes = read_json(path / EXPORT)
    kind = str(notes.get("kind"))
    if kind not in exported.PARTS:
        raise UsageError(f"{path} is an exported {kind}, which the server does not serve: name the original")
    opened = open_exported(path, wanted.device, wanted.threads)
    sources, target = languages_of(path)
    return Served(
        name=_name(path),
        kind=kind,
        engine=engine,
        created=int((path / EXPORT).stat().st_mtime),
        sources=sources or wanted.sources,
        target=target or wanted.target,
        **exported.PARTS[kind](opened, wanted.lane(engine), notes.get("quantize")),
    )


def _converted(model: Served, path: Path, engine: str, wanted: Wanted) -> Served:
    """The same model on another engine, compared with the original; torch is kept for looking inside."""
    from clearhead.run.exporting import export

    try:
        # Engines read a model once, whole: its files can go at once, and a server that is killed leaves none behind.
        with tempfile.TemporaryDirectory(prefix="clearhead-serve-") as scratch:
            copy = Path(scratch) / model.name
            few = None if model.writer is None else TRIED
            export(path, engine, copy, reduce=wanted.reduce.get("kind"), most=few)
            opened = open_exported(copy, wanted.device, wanted.threads)
            return replace(model, engine=engine, **exported.PARTS[model.kind](opened, wanted.lane(engine), None))
    except OSError as error:
        raise StorageError(f"it cannot be converted, for want of a temporary directory: {error}") from None


def _told(languages: str) -> tuple[tuple[str, ...], str]:
    """What `--languages` says."""
    sources, colon, target = languages.partition(":")
    named = tuple(code for code in sources.split(",") if code)
    if not colon or not target or not named:
        raise UsageError(f"--languages is like de:en, or de,zh:en, not '{languages}'")
    return named, target


def languages_of(described: Path) -> tuple[tuple[str, ...], str | None]:
    """The languages that a model's training config names, or that the names of its files end with."""
    for name in ("training_config.toml", "config.toml"):
        if (described / name).is_file():
            data = read_toml(described / name).get("data", {})
            if not isinstance(data, dict):
                raise ConfigError(f"{described / name}: 'data' is a value, not a section")
            return _languages(data)
    return (), None


def _languages(data: dict[str, Any]) -> tuple[tuple[str, ...], str | None]:
    is_numbers = data.get("kind") == "numbers"
    parts = [part.get("language") for part in data.get("parts", [])]
    named = [data.get("source_language") or ("de" if is_numbers else None), *parts]
    sources = tuple(dict.fromkeys(str(code) for code in named if code)) or _ending(data.get("source"))
    target = (
        data.get("target_language") or ("en" if is_numbers else None) or next(iter(_ending(data.get("target"))), None)
    )
    return sources, target


def _ending(file: str | None) -> tuple[str, ...]:
    """The language that a file's name ends with, if it does: train.de.gz is German."""
    ending = Path(str(file or "").removesuffix(".gz")).suffix.removeprefix(".").lower()
    return (ending,) if ending in NAMES else ()
