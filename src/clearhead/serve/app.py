"""Models and rules in, one ASGI application out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from clearhead.errors import ClearheadError
from clearhead.serve import schema
from clearhead.serve.bodies import ClientGone
from clearhead.serve.catalogue import Catalogue
from clearhead.serve.engine import Engine
from clearhead.serve.gate import Gate, Policy
from clearhead.serve.metrics import Metrics
from clearhead.serve.refusals import Refusal, is_openai, of_error
from clearhead.serve.routes import health, libretranslate, openai, own, pages
from clearhead.serve.server import Server
from clearhead.version import VERSION

REFUSED = {
    400: "Something about the request is wrong; the message says what.",
    401: "A key is needed.",
    403: "Not allowed.",
    404: "There is no such thing here.",
    405: "Not like this.",
    408: "The body came too slowly.",
    413: "The body is too large.",
    415: "The body is of a kind that is not read.",
    429: "Too many requests; Retry-After says when to try again.",
    500: "A bug in the server.",
    503: "The server is busy or stopping; Retry-After says when to try again.",
}
"""Every way to be refused, for the documentation."""


class Application:
    """A server, as uvicorn runs it."""

    def __init__(self, catalogue: Catalogue, policy: Policy) -> None:
        metrics = Metrics()
        bounds = policy.bounds
        engine = Engine(catalogue.lanes, queue=bounds.queue, seconds=bounds.seconds, meter=metrics)
        metrics.watch("waiting", "Requests that wait", lambda: float(engine.waiting))
        metrics.watch("computing", "Rows under way", lambda: float(engine.computing))
        metrics.watch("ready", "1 unless the server is about to stop", lambda: float(not policy.is_draining))
        self.server = Server(catalogue, engine, policy, metrics)
        self.web = _web(self.server)
        self.gate = Gate(self.web, policy, metrics)


def _web(server: Server) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        server.close()

    web = FastAPI(
        title="Clearhead server",
        version=VERSION,
        description="Translation, language models and a look inside them.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=lifespan,
        # A slash too many is a mistake like any other: nobody is sent elsewhere, with a key in the address perhaps.
        redirect_slashes=False,
    )
    for part, failure in (
        (libretranslate.router(server), schema.Failure),
        (openai.router(server), schema.OpenAIFailure),
        (own.router(server), schema.Failure),
        (health.router(server), schema.Failure),
    ):
        refused: dict[int | str, dict[str, Any]] = {
            status: {"model": failure, "description": about} for status, about in REFUSED.items()
        }
        web.include_router(part, responses=refused)
    web.include_router(pages.router(web))
    for error in (Refusal, ClearheadError, HTTPException, ClientGone, Exception):
        web.add_exception_handler(error, _answer)
    return web


async def _answer(request: Request, error: Exception) -> Response:
    """What becomes of an error that a route has not dealt with."""
    if isinstance(error, ClientGone):
        return Response(status_code=499)
    refusal = _routed(request, error) if isinstance(error, HTTPException) else of_error(error)
    headers = {**(getattr(error, "headers", None) or {}), **refusal.headers}
    return JSONResponse(refusal.body(request.url.path), refusal.status, headers=headers)


def _routed(request: Request, error: HTTPException) -> Refusal:
    """A route that is not there, or not for this method."""
    path, method = request.url.path[:200], request.method[:20]
    if error.status_code == 404 and is_openai(path):
        return Refusal(404, f"Unknown request URL: {method} {path}.", None, "unknown_url")
    if error.status_code == 405:
        return Refusal(405, f"Not allowed to {method} here.", None, "method_not_supported")
    return Refusal(error.status_code, "there is nothing here" if error.status_code == 404 else str(error.detail))
