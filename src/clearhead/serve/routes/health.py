"""Is all well, is it alive, is it ready, and what has it done: for those who watch over the server."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from clearhead.serve import schema
from clearhead.serve.metrics import CONTENT_TYPE
from clearhead.serve.server import Server


def router(server: Server) -> APIRouter:
    """The routes, for one server."""
    routes = APIRouter(tags=["Health"])

    @routes.get("/health", response_model=schema.Health)
    async def health() -> dict[str, str]:
        """Whether all is well, as LibreTranslate says it."""
        return {"status": "ok"}

    @routes.get("/livez", response_model=schema.Health)
    async def alive() -> dict[str, str]:
        """Whether the server is alive: if it answers, it is."""
        return {"status": "alive"}

    @routes.get("/readyz", response_model=schema.Health, responses={503: {"model": schema.Health}})
    async def ready() -> JSONResponse:
        """Whether requests should be sent here: not any more once it has been told to stop."""
        if server.policy.is_draining:
            return JSONResponse({"status": "stopping"}, 503)
        return JSONResponse({"status": "ready"})

    @routes.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Counts and times, for Prometheus."""
        return Response(server.metrics.text(), media_type=CONTENT_TYPE)

    return routes
