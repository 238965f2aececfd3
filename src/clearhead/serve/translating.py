"""Texts and languages in, translations out: taken apart into sentences, translated in batches, put together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from clearhead.errors import DataError
from clearhead.serve.backends import Translated, TranslateOptions
from clearhead.serve.catalogue import Catalogue, Served
from clearhead.serve.detecting import Detected, detect
from clearhead.serve.engine import Row
from clearhead.serve.markup import Marked, take_marked
from clearhead.serve.names import UNKNOWN, language_name
from clearhead.serve.refusals import invalid
from clearhead.serve.server import Server
from clearhead.serve.tasks import Translating
from clearhead.text.apart import Taken, says_something, take_apart
from clearhead.text.tokenizer import check_encodable

SURE = 50.0
"""With less confidence than this, a text is taken to be in the language of all texts of its request together."""


@dataclass(frozen=True)
class Wish:
    """What somebody wants to have translated."""

    texts: Sequence[str]
    source: str
    """A language, or auto."""
    target: str
    format: str = "text"
    alternatives: int = 0
    model: str | None = None


@dataclass(frozen=True)
class Result:
    """What one text has become."""

    text: str
    alternatives: list[str]
    detected: Detected | None


@dataclass(frozen=True)
class _Part:
    """A run of text between tags, or all of a text, taken apart into sentences."""

    taken: Taken
    rows: list[int]
    """For each sentence, its place among the rows of its model; -1 if there is nothing to translate in it."""

    def together(self, found: Sequence[Sequence[Translated]], rank: int) -> str:
        """The translation that is made of each sentence's best, second best, and so on, as far as there is one."""
        best = (found[row][min(rank, len(found[row]) - 1)].text if row >= 0 else None for row in self.rows)
        return self.taken.together(
            [given if made is None else made for given, made in zip(self.taken.sentences, best, strict=True)]
        )


@dataclass(frozen=True)
class _Text:
    """One text, ready to be translated; without a model it stays as it is."""

    given: str
    model: Served | None
    detected: Detected | None
    marked: Marked | None = None
    parts: list[_Part] = field(default_factory=list)

    def result(self, found: Sequence[Sequence[Translated]], alternatives: int) -> Result:
        """Its translations, all different."""
        if self.model is None:
            return Result(self.given, [], self.detected)
        ranked = [self._together(found, rank) for rank in range(alternatives + 1)]
        best, *others = dict.fromkeys(ranked)
        return Result(best, others, self.detected)

    def _together(self, found: Sequence[Sequence[Translated]], rank: int) -> str:
        texts = [part.together(found, rank) for part in self.parts]
        return texts[0] if self.marked is None else self.marked.together(texts)


async def translate(server: Server, wish: Wish, deadline: float) -> list[Result]:
    """Translate all texts of a wish, those of one model together."""
    server.engine.check()
    rows: dict[str, list[Row[str]]] = {}
    texts = await server.prepare(lambda: _prepare(server.catalogue, wish, rows), deadline)
    models = {text.model.name: text.model for text in texts if text.model is not None}
    options = TranslateOptions(1 if wish.format == "html" else wish.alternatives + 1)
    answers = await asyncio.gather(
        *(_answers(server, model, options, rows[name], deadline) for name, model in models.items())
    )
    found = dict(zip(models, answers, strict=True))
    return [text.result(found[text.model.name] if text.model else (), options.results - 1) for text in texts]


async def _answers(
    server: Server, model: Served, options: TranslateOptions, rows: Sequence[Row[str]], deadline: float
) -> list[Sequence[Translated]]:
    assert model.translator is not None
    return await server.engine.answers(Translating(model.translator, options), rows, deadline)


def _prepare(catalogue: Catalogue, wish: Wish, rows: dict[str, list[Row[str]]]) -> list[_Text]:
    """Find the language and the model of each text, take it apart, and count its tokens."""
    try:
        check_encodable(wish.texts)
    except DataError as error:
        raise invalid(f"Invalid request: {error}") from None
    marked = [take_marked(text) for text in wish.texts] if wish.format == "html" else None
    plain = wish.texts if marked is None else [" ".join(one.texts) for one in marked]
    detected = _detected(catalogue, wish, plain) if wish.source == "auto" else None
    texts = []
    for place, given in enumerate(wish.texts):
        one = detected[place] if detected is not None else None
        model = _model(catalogue, wish, one.language if one is not None else wish.source)
        tags = marked[place] if marked is not None else None
        text = _Text(given, model, one, tags)
        if model is not None:
            runs = [given] if tags is None else tags.texts
            own = rows.setdefault(model.name, [])
            text.parts.extend(_part(run, model, own) for run in runs)
        texts.append(text)
    return texts


def _part(text: str, model: Served, rows: list[Row[str]]) -> _Part:
    translator = model.translator
    assert translator is not None
    taken = take_apart(text, translator.count, translator.longest)
    places = []
    for sentence in taken.sentences:
        if says_something(sentence):
            places.append(len(rows))
            rows.append(Row(sentence, translator.count(sentence)))
        else:
            places.append(-1)
    return _Part(taken, places)


def _detected(catalogue: Catalogue, wish: Wish, texts: Sequence[str]) -> list[Detected]:
    """The language of each text; one that is too short to tell is in the language of all together."""
    known = known_languages(catalogue)
    alone = [_likeliest(catalogue, wish, detect(text, known)) for text in texts]
    if len(texts) == 1 or all(one.confidence >= SURE for one in alone):
        return alone
    together = _likeliest(catalogue, wish, detect("\n".join(texts), known))
    return [one if one.confidence >= SURE else together for one in alone]


def _likeliest(catalogue: Catalogue, wish: Wish, found: Sequence[Detected]) -> Detected:
    """The likeliest language that there is something to be done about.

    Whoever wants a translation has hardly sent the language he wants, unless that is sure; and whoever names a model
    has sent a language that it knows.
    """
    target = catalogue.language(wish.target)
    able = [model for model in catalogue if wish.model in (None, model.name)]
    sources = [source for model in able for source, other in model.directions if other in (target, UNKNOWN)]
    for one in found:
        if one.language in sources or (wish.model is None and (one.language != target or one.confidence >= SURE)):
            return one
    return Detected(next(iter(sources), found[0].language), 0.0)


def known_languages(catalogue: Catalogue) -> list[str] | None:
    """The languages that a text may be in: those of the models, or any if a model does not say."""
    known = list(catalogue.languages)
    return None if UNKNOWN in known else known


def _model(catalogue: Catalogue, wish: Wish, source: str) -> Served | None:
    """The model for a pair of languages; None if both are the same, and nothing is to be done."""
    target = catalogue.language(wish.target)
    known = catalogue.language(source)
    if known is None:
        raise invalid(f"{wish.source} is not supported")
    if target is None:
        raise invalid(f"{wish.target} is not supported")
    if known == target and UNKNOWN not in (known, target):
        return None
    model = catalogue.translator(known, target, wish.model)
    if model is None:
        raise invalid(
            f"{language_name(target)} ({target}) is not available as a target language from "
            f"{language_name(known)} ({known})"
        )
    return model
