"""What every request passes before its route, and every answer after it.

In this order: is the server known by this name, does the request come from a page of ours, is there a connection too
many, does its sender ask too often, has he a key, is the body small enough. Afterwards: headers that keep browsers
safe, counts, and the connection is closed if the server is about to stop. A route needs nothing of its own for any of
this, so none can forget it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clearhead.errors import UsageError
from clearhead.serve.bodies import ClientGone, read_fields
from clearhead.serve.bounds import Bounds
from clearhead.serve.keys import Keys, key_in_headers
from clearhead.serve.metrics import Metrics
from clearhead.serve.rates import Rates, neighbourhood
from clearhead.serve.refusals import INVALID_KEY, MISSING_KEY, Refusal, is_openai, of_error, overloaded

OPEN = ("/health", "/livez", "/readyz")
"""Routes that anybody may ask, however often."""
KEY_IN_BODY = ("/translate", "/detect", "/languages", "/frontend/settings", "/suggest", "/translate_file")
"""LibreTranslate's routes: its clients send their key as a field of the body."""
CROWDED = "crowded"
"""In the state of a request: it came on one connection too many, which is closed after the answer."""
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]+)?)/?", re.ASCII)
"""A page's scheme, host and port, in small letters; the address bar shows a slash after them."""

SAFE = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Cache-Control": "no-store",
}
"""Headers of every answer that does not say otherwise."""

log = logging.getLogger("clearhead.serve")


@dataclass
class Policy:
    """Who may ask what of a server."""

    bounds: Bounds
    keys: Keys = field(default_factory=Keys)
    hosts: Sequence[str] | None = None
    """The names that the server is known by; None is any. A page elsewhere cannot pretend to be one of ours."""
    origins: Sequence[str] = ()
    """Other pages whose scripts may ask; `*` is any."""
    is_draining: bool = False
    """Whether the server is about to stop."""

    def __post_init__(self) -> None:
        """Names as requests have them, however they are written."""
        self.hosts = None if self.hosts is None else [_wished_name(host) for host in self.hosts]
        self.origins = [_wished_origin(origin) for origin in self.origins]


class Gate:
    """The application with the gate around it."""

    def __init__(self, app: ASGIApp, policy: Policy, metrics: Metrics) -> None:
        self._app = app
        self._policy = policy
        self._metrics = metrics
        self._rates = Rates(policy.bounds.rate, policy.bounds.burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        scope.setdefault("state", {})["deadline"] = started + self._policy.bounds.seconds
        answer = _Answer(send, self._headers(scope))
        # The head of an answer is that of GET; what carries it to the client leaves its body out.
        asked = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        try:
            body = _Body(receive, self._policy.bounds, started)
            try:
                refused = await self._refusal(scope, body)
                if refused is not None:
                    reason, refusal = refused
                    self._metrics.refused(reason)
                    await _say(refusal, scope, receive, answer)
                elif scope["method"] == "OPTIONS" and "Access-Control-Allow-Origin" in answer.extra:
                    await Response(status_code=204)(scope, receive, answer)
                else:
                    await self._app(asked, body, answer)
            except ClientGone:
                answer.status = answer.status or 499
            except Exception as error:
                if answer.status:
                    raise
                refusal = of_error(error)
                if not isinstance(error, Refusal):
                    log.exception("a request has failed")
                await _say(refusal, scope, receive, answer)
        finally:
            route = getattr(asked.get("route"), "path", "other")
            self._metrics.request(route, scope["method"], answer.status or 499, loop.time() - started)

    async def _refusal(self, scope: Scope, body: _Body) -> tuple[str, Refusal] | None:
        """Why a request is refused, for the counts and for its sender."""
        headers = Headers(scope=scope)
        if (refusal := self._wrong_place(headers)) is not None:
            return "place", refusal
        path = scope["path"]
        if path in OPEN or scope["method"] == "OPTIONS":
            return None
        if CROWDED in scope["state"]:
            return "connections", overloaded(1)
        client = scope.get("client")
        address = neighbourhood(client[0]) if client else "nobody"
        if wait := self._rates.wait(f"address {address}"):
            return "rate", self._slow_down(wait)
        if self._policy.keys:
            key = key_in_headers(headers)
            if key is None and path in KEY_IN_BODY:
                key = await _key_in_body(scope, body)
            if key is None or not self._policy.keys.allow(key):
                return "key", _no_key(path, key)
            if wait := self._rates.wait(f"key {key}"):
                return "rate", self._slow_down(wait)
        if (refusal := self._wrong_body(headers)) is not None:
            return "body", refusal
        return None

    def _wrong_place(self, headers: Headers) -> Refusal | None:
        hosts, host = self._policy.hosts, headers.get("host", "")
        if hosts is not None and _name(host) not in hosts:
            return Refusal(403, "this server is not known by that name: start it with --host-name NAME")
        origin = headers.get("origin")
        if origin is None or self._allows(origin) or origin.lower().partition("://")[2] == host.lower():
            return None
        return Refusal(403, "pages elsewhere may not use this server: start it with --cors ORIGIN")

    def _wrong_body(self, headers: Headers) -> Refusal | None:
        if headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            return Refusal(415, "send the body as it is: Content-Encoding is not supported")
        length = headers.get("content-length", "0")
        # h11 has made sure that it is digits, of which there may be many.
        return _too_large(self._policy.bounds) if len(length) > 18 or int(length) > self._policy.bounds.body else None

    def _slow_down(self, wait: float) -> Refusal:
        return Refusal(
            429, f"Slowdown: {self._policy.bounds.rate} per 1 minute", None, "rate_limit_exceeded", retry_after=wait
        )

    def _allows(self, origin: str) -> bool:
        return "*" in self._policy.origins or origin.lower() in self._policy.origins

    def _headers(self, scope: Scope) -> dict[str, str]:
        """What every answer to a request carries."""
        ends = self._policy.is_draining or CROWDED in scope["state"]
        extra = {"Connection": "close"} if ends else {}
        origin = Headers(scope=scope).get("origin")
        if origin is None or not self._allows(origin):
            return {**SAFE, **extra}
        shared = {
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Allow-Methods": "GET, POST",
            "Access-Control-Allow-Headers": "Authorization, Content-Type, X-API-Key",
            "Access-Control-Expose-Headers": "Retry-After",
            "Access-Control-Max-Age": "86400",
            "Cross-Origin-Resource-Policy": "cross-origin",
            "Vary": "Origin",
        }
        return {**SAFE, **shared, **extra}


class _Body:
    """The body of a request as it comes in: not too large, and not too slowly."""

    def __init__(self, receive: Receive, bounds: Bounds, started: float) -> None:
        self._receive = receive
        self._bounds = bounds
        self._deadline = started + bounds.seconds
        self._size = 0
        self._is_whole = False
        self._kept: list[Message] = []

    async def __call__(self) -> Message:
        if self._kept:
            return self._kept.pop(0)
        if self._is_whole:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise Refusal(408, f"the body did not arrive within {self._bounds.seconds:g} s") from None
        if message["type"] == "http.request":
            self._size += len(message.get("body", b""))
            self._is_whole = not message.get("more_body", False)
            if self._size > self._bounds.body:
                raise _too_large(self._bounds)
        return message

    async def whole(self) -> bytes:
        """All of it, which is kept for whoever reads it next."""
        messages: list[Message] = []
        while not messages or messages[-1].get("more_body", False):
            message = await self()
            if message["type"] != "http.request":
                raise ClientGone
            messages.append(message)
        self._kept = messages
        return b"".join(message.get("body", b"") for message in messages)


class _Answer:
    """The answer as it goes out, with the headers that all have."""

    def __init__(self, send: Send, headers: dict[str, str]) -> None:
        self._send = send
        self.extra = headers
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in self.extra.items():
                headers.setdefault(name, value)
        await self._send(message)


async def _say(refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
    answer = JSONResponse(refusal.body(scope["path"]), refusal.status, headers=refusal.headers)
    await answer(scope, receive, send)


async def _key_in_body(scope: Scope, body: _Body) -> str | None:
    """The key that stands in a body, or in an address, as LibreTranslate's clients send it."""
    content = await body.whole()

    async def again() -> Message:
        return {"type": "http.request", "body": content, "more_body": False}

    key = (await read_fields(Request(scope, again))).get("api_key")
    return key if isinstance(key, str) else None


def _no_key(path: str, key: str | None) -> Refusal:
    if is_openai(path):
        said = "You didn't provide an API key." if key is None else "Incorrect API key provided."
        return Refusal(401, said, None, None if key is None else "invalid_api_key")
    if path in KEY_IN_BODY:
        return Refusal(400, MISSING_KEY) if key is None else Refusal(403, INVALID_KEY)
    return Refusal(401, MISSING_KEY if key is None else INVALID_KEY, challenge=True)


def _too_large(bounds: Bounds) -> Refusal:
    return Refusal(413, f"the body is larger than {bounds.body:,} bytes: send less at once")


def _name(host: str) -> str:
    """The name in a Host header, without the port."""
    return host.lower() if host.endswith("]") else host.lower().rpartition(":")[0] or host.lower()


def _wished_name(host: str) -> str:
    """A name that the server is to be known by; an IPv6 address may come without brackets."""
    return f"[{host.lower()}]" if host.count(":") > 1 and not host.startswith("[") else _name(host)


def _wished_origin(origin: str) -> str:
    """A page whose scripts are to be let in, as browsers name it."""
    if origin == "*":
        return origin
    found = ORIGIN.fullmatch(origin.lower())
    if found is None:
        raise UsageError(f"--cors is like https://example.org, or * for all pages, not '{origin}'")
    return found[1]
