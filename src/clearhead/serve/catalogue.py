"""The models that are served, by name, and which of them translates from one language to another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from clearhead.errors import did_you_mean
from clearhead.serve.backends import Backend, Inspector, Lane, TextClassifier, TextTranslator, Writer
from clearhead.serve.names import UNKNOWN, nearest

ROUTES = {"translator": "/translate", "gpt": "/v1/completions", "classifier": "/classify"}
"""The route that each kind of model is asked on."""


@dataclass(frozen=True)
class Served:
    """One model, and what can be asked of it."""

    name: str
    kind: str
    engine: str = "torch"
    created: int = 0
    """When its weights were written, in seconds since 1970."""
    parameters: int | None = None
    """How many numbers it has learnt; an exported model does not say."""
    remark: str = ""
    """Why it is not on a faster engine, if it is not, or not with all that it does."""
    sources: tuple[str, ...] = ()
    """The languages it translates from, as far as they are known ..."""
    target: str | None = None
    """... and the one it translates to."""
    translator: TextTranslator | None = None
    writer: Writer | None = None
    drawer: Writer | None = None
    """What continues texts by chance, if that is not the writer."""
    classifier: TextClassifier | None = None
    inspector: Inspector | None = None

    @property
    def route(self) -> str:
        """Where it is asked."""
        return ROUTES.get(self.kind, "/attention")

    @property
    def backends(self) -> list[Backend]:
        """Everything of it that computes."""
        all_five = (self.translator, self.writer, self.drawer, self.classifier, self.inspector)
        return [backend for backend in all_five if backend is not None]

    def writer_at(self, temperature: float) -> Writer | None:
        """What continues texts at a temperature; at 0 nothing is left to chance."""
        return self.drawer if self.drawer is not None and temperature > 0 else self.writer

    @property
    def directions(self) -> list[tuple[str, str]]:
        """The pairs of languages it translates between; an unknown one is any."""
        if self.translator is None:
            return []
        return [(source, self.target or UNKNOWN) for source in self.sources or (UNKNOWN,)]


class Catalogue:
    """All models of a server; of several that could answer, the first does."""

    def __init__(self, models: Sequence[Served]) -> None:
        self.models = list(models)
        self._by_name = {model.name: model for model in self.models}

    def __iter__(self) -> Iterator[Served]:
        return iter(self.models)

    @property
    def lanes(self) -> list[Lane]:
        """Where they compute."""
        return list(dict.fromkeys(backend.lane for model in self.models for backend in model.backends))

    def get(self, name: str) -> Served | None:
        """The model of this name, if there is one."""
        return self._by_name.get(name)

    def advice(self, name: str) -> str:
        """The tail of a message about a name that no model has."""
        return did_you_mean(name, self._by_name)

    @property
    def languages(self) -> dict[str, list[str]]:
        """Every language that is known, and the ones it can be translated to; each to itself, by leaving it."""
        pairs = [pair for model in self.models for pair in model.directions]
        codes = dict.fromkeys(code for pair in pairs for code in pair)
        return {code: sorted({target for source, target in pairs if source == code} | {code}) for code in codes}

    def language(self, code: str) -> str | None:
        """The language that a short name means, if any model knows it, or may know it."""
        known = list(self.languages)
        return nearest(code, known) or (code if UNKNOWN in known else None)

    def translator(self, source: str, target: str, name: str | None = None) -> Served | None:
        """The model that translates from one language to another: the named one, or the first that says it can."""
        able = [model for model in self.models if model.translator is not None and name in (None, model.name)]
        for fits in (_is_same, _may_be):
            for model in able:
                if any(fits(source, one) and fits(target, other) for one, other in model.directions):
                    return model
        return None


def _is_same(wanted: str, code: str) -> bool:
    return wanted == code


def _may_be(wanted: str, code: str) -> bool:
    return wanted == code or UNKNOWN in (wanted, code)
