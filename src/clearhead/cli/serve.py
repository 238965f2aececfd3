"""`clearhead serve`: models in, a page and HTTP APIs out."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from clearhead.cli import show
from clearhead.cli.flags import ALL_TOKENS, Count, Device, Fewer, Threads
from clearhead.cli.stopping import stoppable
from clearhead.errors import UnavailableError

if TYPE_CHECKING:
    from clearhead.serve.bounds import Bounds
    from clearhead.serve.catalogue import Catalogue


def serve(
    *models: Path,
    host: str = "127.0.0.1",
    port: int = 8000,
    engine: str = "auto",
    languages: str | None = None,
    keys: Path | None = None,
    cors: Annotated[list[str] | None, Parameter(consume_multiple=True, negative=())] = None,
    host_name: Annotated[list[str] | None, Parameter(consume_multiple=True, negative=())] = None,
    characters: Count = None,
    texts: Count = None,
    results: Count = None,
    queue: Count = None,
    seconds: float | None = None,
    rate: int | None = None,
    body: Count = None,
    drain: float | None = None,
    fewer: Fewer = ALL_TOKENS,
    device: Device = "auto",
    threads: Threads = None,
) -> int:
    """Serve models: a page to try them and look inside, and the APIs of LibreTranslate and OpenAI.

    clearhead serve

    clearhead serve runs/de-en runs/shakespeare --port 9000

    clearhead serve runs/de-en --host 0.0.0.0 --keys keys.txt

    Ctrl-C or SIGTERM stops it: what is under way is finished first. Without a model the built-in one is served, or the
    one in CLEARHEAD_MODEL.

    Parameters
    ----------
    models
        Model, run or exported directories; each is called by its directory's name.
    host
        The address to listen on; this machine alone unless told.
    port
        The port to listen on; 0 is any that is free.
    engine
        auto, torch, ctranslate2 or onnx; auto converts to CTranslate2 where that says the same, else it is torch.
    languages
        What translators translate that do not say so themselves: de:en, or de,zh:en.
    keys
        A file with API keys, one a line; keys may also be in CLEARHEAD_KEYS. With any, all but health needs one.
    cors
        Other pages (https://example.org) whose scripts may ask, * for all.
    host_name
        Further names that the server is known by, when it listens on this machine alone behind a proxy.
    characters
        Characters of one text, at most; 5,000 unless told.
    texts
        Texts of one request, at most; 64 unless told.
    results
        Results for one text, at most (n, alternatives); 8 unless told.
    queue
        Requests that may wait; 64 unless told.
    seconds
        Time that a request may take, waiting included; 60 unless told.
    rate
        Requests a minute from one address, and with one key; 6,000 unless told, 0 for no limit.
    body
        Bytes of a request, at most; 2,000,000 unless told.
    drain
        Seconds that requests under way are given when the server is told to stop; 20 unless told.
    """
    wished = {
        "characters": characters, "texts": texts, "results": results, "queue": queue, "seconds": seconds, "rate": rate,
        "body": body, "drain": drain,
    }  # fmt: skip
    how = fewer.settings()
    bounds = _bounds({name: value for name, value in wished.items() if value is not None})
    try:
        import uvicorn  # noqa: F401

        from clearhead.serve import app, gate, opening, running
        from clearhead.serve.keys import read_keys
    except ImportError as error:
        raise UnavailableError(
            f"the server needs {error.name}, which is not installed: pip install 'clearhead[serve]'"
        ) from None
    allowed = read_keys(keys)
    host = host.removeprefix("[").removesuffix("]")
    with running.listen(host, port) as listener:
        bound, port = listener.getsockname()[:2]
        is_local = ip_address(bound).is_loopback
        names = [*gate.LOOPBACK, host, bound, *(host_name or [])] if is_local else None
        policy = gate.Policy(bounds, allowed, hosts=names, origins=cors or [])
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        with show.waiting("loading"), stoppable() as stop:
            try:
                catalogue = opening.open_models(
                    models or [None], engine=engine, device=device, threads=threads, languages=languages, reduce=how
                )
            except KeyboardInterrupt:
                show.fail("interrupted")
                return stop.exit_code
        _introduce(catalogue)
        if not is_local and not allowed:
            show.note("anybody who can reach this machine may ask: --keys FILE lets in only those with a key")
        running.run(
            app.Application(catalogue, policy),
            listener,
            lambda: show.note(f"serving on {address} (documentation on {address}/docs); Ctrl-C stops"),
        )
    show.note("stopped")
    return 0


def _introduce(catalogue: Catalogue) -> None:
    """One line for each model: what it is, what computes, and why that is not a faster engine."""
    for model in catalogue:
        size = f", {model.parameters:,} parameters" if model.parameters is not None else ""
        remark = f" ({model.remark})" if model.remark else ""
        show.note(f"{model.name}: {model.kind}{size}, on {model.engine}{remark}")


def _bounds(wished: dict[str, object]) -> Bounds:
    from clearhead.config import build
    from clearhead.serve.bounds import Bounds

    return build(Bounds, wished, "serve")
