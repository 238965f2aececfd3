"""What a browser sees: the page, with the very modules of the page that `clearhead inspect` writes, and /docs."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter, FastAPI, Response
from fastapi.responses import HTMLResponse, JSONResponse

from clearhead.inspection.page import MODULES, STYLE
from clearhead.serve.documents import documentation
from clearhead.serve.refusals import Refusal

POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
"""A page of ours may use what this server gives it, and nothing else."""
OWN = (
    "live.js", "live-words.js", "asking.js", "kinds.js", "changes.js", "live.css", "docs.css", "icon.svg",
)  # fmt: skip
KINDS = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}


def router(app: FastAPI) -> APIRouter:
    """The routes; the documentation is that of an application."""
    routes = APIRouter(include_in_schema=False)
    headers = {"Content-Security-Policy": POLICY}

    @routes.get("/")
    async def page() -> HTMLResponse:
        return HTMLResponse(_read("clearhead.serve", "index.html"), headers=headers)

    @routes.get("/page/{name}")
    async def part(name: str) -> Response:
        if name in OWN:
            content = _read("clearhead.serve", name)
        elif name in (*MODULES, STYLE):
            content = _read("clearhead.inspection", name)
        else:
            raise Refusal(404, "there is nothing here")
        return Response(content, media_type=KINDS[name.rpartition(".")[2]], headers={"Cache-Control": "no-cache"})

    @routes.get("/docs")
    async def docs() -> HTMLResponse:
        return HTMLResponse(documentation(app.openapi(), "page/docs.css"), headers=headers)

    @routes.get("/openapi.json")
    async def openapi() -> JSONResponse:
        return JSONResponse(app.openapi())

    return routes


def _read(package: str, name: str) -> str:
    return files(package).joinpath("page", name).read_text(encoding="utf-8")
