"""Paths of models in, models that can be served out; each engine has its own way to open one.

A new engine is one function and one line in ENGINES; `auto` takes the first of them that can do it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from clearhead.config import read_toml
from clearhead.errors import ConfigError, UsageError, choose
from clearhead.serve.catalogue import Catalogue, Served
from clearhead.serve.names import NAMES


def open_models(
    paths: Sequence[Path | None], *, engine: str = "auto", device: str = "auto", languages: str | None = None
) -> Catalogue:
    """Every model of a server; `languages` (de:en, or de,zh:en) are those of translators that do not name theirs."""
    told = _told(languages) if languages is not None else ((), None)
    served: list[Served] = []
    for path in paths:
        model = _open(path, engine, device, told)
        if any(model.name == other.name for other in served):
            raise UsageError(f"two models are called '{model.name}': rename the directory of one of them")
        served.append(model)
    return Catalogue(served)


def _open(path: Path | None, engine: str, device: str, told: tuple[tuple[str, ...], str | None]) -> Served:
    if engine != "auto":
        return choose(ENGINES, engine, "engine")(path, device, told)
    return next(iter(ENGINES.values()))(path, device, told)


def _open_torch(path: Path | None, device: str, told: tuple[tuple[str, ...], str | None]) -> Served:
    from clearhead.checkpoint import locate
    from clearhead.run.using import load
    from clearhead.serve.torch_models import PARTS

    loaded = load(path, device)
    where: Path = loaded.path
    kind = loaded.model.config.kind
    if kind not in PARTS:
        raise UsageError(f"{where} is a {kind}, which the server does not serve: it serves {', '.join(PARTS)}")
    described, weights = locate(where)
    sources, target = languages_of(described)
    return Served(
        name=where.resolve().name,
        kind=kind,
        engine="torch",
        created=int((weights / "model.safetensors").stat().st_mtime),
        parameters=sum(tensor.numel() for tensor in loaded.model.parameters()),
        sources=sources or told[0],
        target=target or told[1],
        **PARTS[kind](loaded),
    )


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


Opener = Callable[[Path | None, str, tuple[tuple[str, ...], str | None]], Served]
ENGINES: dict[str, Opener] = {"torch": _open_torch}
