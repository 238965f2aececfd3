"""LibreTranslate's API: its routes, its fields, its words when something is wrong."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from clearhead.serve import schema
from clearhead.serve.bodies import Fields, read_fields
from clearhead.serve.bounds import Bounds
from clearhead.serve.detecting import Detected, detect
from clearhead.serve.documents import takes
from clearhead.serve.names import UNKNOWN, language_name
from clearhead.serve.refusals import Refusal, invalid
from clearhead.serve.server import Server
from clearhead.serve.translating import Result, Wish, known_languages, translate
from clearhead.serve.waiting import unless_gone

FORMATS = ("text", "html")


def router(server: Server) -> APIRouter:
    """The routes, for one server."""
    routes = APIRouter(tags=["LibreTranslate"])

    @routes.post(
        "/translate", response_model=schema.TranslateAnswer, openapi_extra=takes(schema.TranslateBody, form=True)
    )
    async def translate_texts(request: Request) -> JSONResponse:
        """Translate a text or several."""
        fields = await read_fields(request)
        wish = _wish(fields, server)
        results = await unless_gone(request, translate(server, wish, request.state.deadline))
        return JSONResponse(_answer(wish, results, is_batch=isinstance(fields["q"], list)))

    @routes.get("/languages", response_model=list[schema.Language])
    async def languages() -> JSONResponse:
        """The languages, and which of them can be translated to which."""
        known = server.catalogue.languages
        return JSONResponse(
            [{"code": code, "name": language_name(code), "targets": targets} for code, targets in known.items()]
        )

    @routes.post("/detect", response_model=list[schema.Detection], openapi_extra=takes(schema.DetectBody, form=True))
    async def detect_language(request: Request) -> JSONResponse:
        """The languages that a text may be in, likeliest first."""
        texts = _texts((await read_fields(request)).get("q"), server.bounds)
        known = known_languages(server.catalogue)
        guessing = server.prepare(lambda: detect("\n".join(texts), known), request.state.deadline)
        found = await unless_gone(request, guessing)
        return JSONResponse([_detection(one) for one in found])

    @routes.get("/frontend/settings")
    async def settings() -> dict[str, Any]:
        """What LibreTranslate's own page asks for first."""
        known = list(server.catalogue.languages)
        target = next((model.target for model in server.catalogue if model.target), known[0] if known else UNKNOWN)
        return {
            "charLimit": server.bounds.characters,
            "frontendTimeout": 500,
            "apiKeys": bool(server.policy.keys),
            "keyRequired": bool(server.policy.keys),
            "suggestions": False,
            "filesTranslation": False,
            "supportedFilesFormat": [],
            "language": {
                "source": {"code": "auto", "name": "Auto Detect"},
                "target": {"code": target, "name": language_name(target)},
            },
        }

    @routes.post("/suggest", status_code=403, response_model=schema.Failure)
    async def suggest() -> JSONResponse:
        """Better translations are not collected."""
        raise Refusal(403, "Suggestions are disabled on this server.")

    @routes.post("/translate_file", status_code=403, response_model=schema.Failure)
    async def translate_file() -> JSONResponse:
        """Files are not translated."""
        raise Refusal(403, "Files translation are disabled on this server.")

    return routes


def _wish(fields: Fields, server: Server) -> Wish:
    """What is to be translated; complaints come in LibreTranslate's order."""
    bounds = server.bounds
    for name in ("q", "source", "target"):
        if not fields.get(name):
            raise invalid(f"Invalid request: missing {name} parameter")
    alternatives = _number(fields.get("alternatives", 0))
    if alternatives > bounds.results:
        raise invalid(f"Invalid request: alternatives parameter must be <= {bounds.results}")
    texts = _texts(fields["q"], bounds)
    source, target, model = (_name(fields, name) for name in ("source", "target", "model"))
    assert source is not None and target is not None
    text_format = _name(fields, "format") or "text"
    if model is not None and (server.catalogue.get(model) is None):
        raise invalid(f"there is no model of that name: {server.catalogue.advice(model)}")
    if source != "auto" and server.catalogue.language(source) is None:
        raise invalid(f"{source} is not supported")
    if server.catalogue.language(target) is None:
        raise invalid(f"{target} is not supported")
    if text_format not in FORMATS:
        raise invalid(f"{text_format} format is not supported")
    return Wish(texts, source, target, text_format, alternatives, model)


def _texts(given: Any, bounds: Bounds) -> list[str]:
    if not given:
        raise invalid("Invalid request: missing q parameter")
    texts = given if isinstance(given, list) else [given]
    if isinstance(given, list) and len(given) > bounds.texts:
        raise invalid(f"Invalid request: request ({len(given)}) exceeds text limit ({bounds.texts})")
    if not all(isinstance(text, str) for text in texts):
        raise invalid("Invalid request: q parameter is not a text or a list of texts")
    for text in texts:
        if len(text) > bounds.characters:
            raise invalid(f"Invalid request: request ({len(text)}) exceeds text limit ({bounds.characters})")
    return texts


def _number(given: Any) -> int:
    """What `alternatives` says; it may be a text, as in a form."""
    if isinstance(given, str) and len(given) <= 20:
        try:
            given = int(given)
        except ValueError:
            given = None
    if isinstance(given, bool) or not isinstance(given, int):
        raise invalid("Invalid request: alternatives parameter is not a number")
    return max(0, given)


def _name(fields: Fields, name: str) -> str | None:
    given = fields.get(name)
    if given is None or given == "":
        return None
    if not isinstance(given, str) or len(given) > 200:
        raise invalid(f"Invalid request: {name} parameter is not a name")
    return given.encode("utf-8", "replace").decode()


def _answer(wish: Wish, results: list[Result], *, is_batch: bool) -> dict[str, Any]:
    texts = [result.text for result in results]
    answer: dict[str, Any] = {"translatedText": texts if is_batch else texts[0]}
    if wish.source == "auto":
        found = [_detection(result.detected) for result in results if result.detected is not None]
        answer["detectedLanguage"] = found if is_batch else found[0]
    if wish.alternatives > 0:
        others = [result.alternatives for result in results]
        answer["alternatives"] = others if is_batch else others[0]
    return answer


def _detection(found: Detected) -> dict[str, Any]:
    return {"confidence": found.confidence, "language": found.language}
