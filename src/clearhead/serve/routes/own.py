"""Our own API: what is served, labels for texts, and a look inside."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from clearhead.errors import DataError
from clearhead.serve import schema
from clearhead.serve.backends import Inspector
from clearhead.serve.bodies import checked, read_json
from clearhead.serve.bounds import Bounds
from clearhead.serve.catalogue import Catalogue, Served
from clearhead.serve.documents import takes
from clearhead.serve.engine import Row
from clearhead.serve.refusals import Refusal, invalid
from clearhead.serve.server import Server
from clearhead.serve.tasks import Classifying, Look, Looking
from clearhead.serve.waiting import unless_gone
from clearhead.text.apart import take_apart
from clearhead.text.tokenizer import check_encodable


def router(server: Server) -> APIRouter:
    """The routes, for one server."""
    routes = APIRouter(tags=["Clearhead"])

    @routes.get("/models", response_model=schema.Models)
    async def models() -> JSONResponse:
        """The models that are served, and the bounds of what may be asked."""
        bounds = server.bounds
        limits = {"characters": bounds.characters, "texts": bounds.texts, "results": bounds.results}
        return JSONResponse({"models": [_described(model) for model in server.catalogue], "bounds": limits})

    @routes.post("/classify", response_model=schema.ClassifyAnswer, openapi_extra=takes(schema.ClassifyBody))
    async def classify(request: Request) -> JSONResponse:
        """The labels of a text or several, likeliest first."""
        body = checked(schema.ClassifyBody, await read_json(request))
        texts = body.text if isinstance(body.text, list) else [body.text]
        _check_texts(texts, server.bounds)
        model = _chosen(server.catalogue, body.model, "classifier")
        classifier = model.classifier
        assert classifier is not None
        server.engine.check()
        deadline = request.state.deadline
        counting = server.prepare(lambda: [Row(text, classifier.count(text)) for text in texts], deadline)
        rows = await unless_gone(request, counting)
        answers = server.engine.answers(Classifying(classifier), rows, deadline)
        found = [
            [{"label": label.name, "probability": label.probability} for label in labels]
            for labels in await unless_gone(request, answers)
        ]
        return JSONResponse({"model": model.name, "labels": found if isinstance(body.text, list) else found[0]})

    @routes.post("/attention", response_model=schema.AttentionAnswer, openapi_extra=takes(schema.AttentionBody))
    async def attention(request: Request) -> JSONResponse:
        """What every head looked at while a sentence was read; heads can be switched off."""
        body = checked(schema.AttentionBody, await read_json(request))
        _check_texts([body.text], server.bounds)
        if body.target:
            _check_texts([body.target], server.bounds, "target")
        model = _chosen(server.catalogue, body.model, "inspector")
        server.engine.check()
        deadline = request.state.deadline
        cutting = server.prepare(lambda: _sentences(model, body, server.bounds), deadline)
        sentences = await unless_gone(request, cutting)
        if body.sentence >= len(sentences):
            raise invalid(f"there are {len(sentences)} sentences, counted from 0", "sentence")
        text = sentences[body.sentence]
        assert model.inspector is not None
        tokens = model.inspector.count(text) + _given(model.inspector, body)
        row = Row(Look(text, body.target, tuple(body.ablate)), tokens)
        answers = server.engine.answers(Looking(model.inspector), [row], deadline)
        (found,) = await unless_gone(request, answers)
        answer = {"sentence": body.sentence, "sentences": sentences, "text": found.text, "view": found.view}
        is_finite = found.loss == found.loss and abs(found.loss) != float("inf")
        return JSONResponse({**answer, "loss": found.loss if is_finite else None})

    return routes


def _described(model: Served) -> dict[str, object]:
    return {
        "name": model.name,
        "kind": model.kind,
        "engine": model.engine,
        "parameters": model.parameters,
        "sources": list(model.sources),
        "target": model.target,
        "route": model.route,
        "shows_attention": model.inspector is not None,
    }


def _check_texts(texts: list[str], bounds: Bounds, param: str = "text") -> None:
    if not texts:
        raise invalid("there is no text", param)
    if len(texts) > bounds.texts:
        raise invalid(f"{len(texts)} texts are too many: send at most {bounds.texts} at once", param)
    for text in texts:
        if len(text) > bounds.characters:
            raise invalid(f"a text has {len(text):,} characters, and {bounds.characters:,} are allowed", param)
    try:
        check_encodable(texts)
    except DataError as error:
        raise invalid(str(error), param) from None


def _chosen(catalogue: Catalogue, name: str | None, part: str) -> Served:
    """The named model, or the first that can do it."""
    able = [model for model in catalogue if getattr(model, part) is not None]
    what = {"classifier": "gives texts labels", "inspector": "can be looked into"}[part]
    if name is None:
        if not able:
            raise Refusal(404, f"no model here {what}")
        return able[0]
    model = catalogue.get(name)
    if model is None:
        raise Refusal(
            404, f"there is no model of that name: {catalogue.advice(name[:100])}", "model", "model_not_found"
        )
    if model not in able:
        raise invalid(f"{model.name} is a {model.kind}: ask it on {model.route}", "model")
    return model


def _end(text: str, inspector: Inspector, longest: int) -> str:
    """As much of the end of a text as a language model sees at once."""
    first, last = 0, len(text)
    while first < last:
        middle = (first + last) // 2
        if inspector.count(text[middle:]) <= longest:
            last = middle
        else:
            first = middle + 1
    return text[first:]


def _given(inspector: Inspector, body: schema.AttentionBody) -> int:
    """The tokens of the output, if it is given."""
    return inspector.count(body.target) if body.target else 0


def _sentences(model: Served, body: schema.AttentionBody, bounds: Bounds) -> list[str]:
    """What there is to look at: the sentences of a text, or all of it where the output is given too."""
    inspector = model.inspector
    assert inspector is not None
    if not body.text.strip():
        raise invalid("there is nothing to look at: the text is empty", "text")
    longest = min(bounds.looks, inspector.longest)
    if model.kind == "gpt":
        found = [_end(body.text, inspector, longest) if body.target is None else body.text]
    elif model.kind != "translator" or body.target is not None:
        found = [body.text.strip()]
    else:
        found = list(take_apart(body.text, inspector.count, longest).sentences)
    given = _given(inspector, body)
    for text in found:
        # What a language model goes on with is one row of tokens with what it has read.
        longer = inspector.count(text) + given if model.kind == "gpt" else max(inspector.count(text), given)
        if longer > bounds.looks:
            raise invalid(f"attention is shown for texts of at most {bounds.looks} tokens: shorten it", "text")
    return found
