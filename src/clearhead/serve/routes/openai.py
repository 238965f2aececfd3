"""OpenAI's API for language models: the models, and completions, whole or as a stream."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic_core import to_json

from clearhead.errors import DataError
from clearhead.serve import schema
from clearhead.serve.backends import Piece, WriteOptions, Writer, Written, WrittenToken
from clearhead.serve.bodies import checked, read_json
from clearhead.serve.bounds import Bounds
from clearhead.serve.catalogue import Catalogue, Served
from clearhead.serve.documents import takes
from clearhead.serve.refusals import Refusal, invalid, of_error
from clearhead.serve.server import Server
from clearhead.serve.waiting import EventStream, unless_gone
from clearhead.serve.writing import Order, enter, pieces, write

LONGEST_STOP = 200
"""Characters of a text to stop at."""


def router(server: Server) -> APIRouter:
    """The routes, for one server."""
    routes = APIRouter(prefix="/v1", tags=["OpenAI"])

    @routes.get("/models", response_model=schema.ModelCards)
    async def models() -> JSONResponse:
        """The models that are served."""
        return JSONResponse({"object": "list", "data": [_card(model) for model in server.catalogue]})

    @routes.get("/models/{model}", response_model=schema.ModelCard)
    async def model(model: str) -> JSONResponse:
        """One model that is served."""
        return JSONResponse(_card(_known(server.catalogue, model)))

    @routes.post(
        "/completions",
        response_model=schema.Completion,
        openapi_extra=takes(schema.CompletionBody),
        responses={200: {"content": {"text/event-stream": {}}}},
    )
    async def completions(request: Request) -> Response:
        """Continue a text."""
        body = checked(schema.CompletionBody, await read_json(request))
        served = _known(server.catalogue, body.model)
        writer = served.writer_at(_temperature(body))
        if writer is None:
            raise invalid(
                f"{served.name} is a {served.kind}, not a language model: its route is {served.route}", "model",
                "model_not_supported",
            )  # fmt: skip
        _refuse_unsupported(body, server.bounds)
        server.engine.check()
        counting = server.prepare(lambda: _order(body, writer, server.bounds), request.state.deadline)
        texts, order = await unless_gone(request, counting)
        answer = _Answer(served.name, order, texts if body.echo else None, body)
        if body.stream:
            ticket = enter(server, writer, order) if order.most_tokens else None
            news = _nothing(order) if ticket is None else pieces(server, ticket, request.state.deadline)
            return EventStream(_events(answer, news))
        found = await unless_gone(request, write(server, writer, order, request.state.deadline))
        return JSONResponse(answer.whole(found))

    return routes


def _card(model: Served) -> dict[str, Any]:
    return {"id": model.name, "object": "model", "created": model.created, "owned_by": "clearhead"}


def _known(catalogue: Catalogue, name: str) -> Served:
    model = catalogue.get(name)
    if model is None:
        shown = name[:100].encode("utf-8", "replace").decode()
        said = f"The model `{shown}` does not exist or you do not have access to it."
        raise Refusal(404, said, None, "model_not_found")
    return model


def _refuse_unsupported(body: schema.CompletionBody, bounds: Bounds) -> None:
    """What is not a mistake, but cannot be done here, or not so much of it."""
    for name in ("frequency_penalty", "presence_penalty", "logit_bias", "suffix"):
        if getattr(body, name):
            raise invalid(
                f"Unsupported parameter: '{name}' is not supported by this server.", name, "unsupported_parameter"
            )
    if body.echo and body.logprobs is not None:
        raise invalid("Unsupported value: 'echo' with 'logprobs' is not supported.", "echo", "unsupported_value")
    for name, most in {"n": bounds.results, "best_of": bounds.results, "max_tokens": bounds.tokens}.items():
        if (getattr(body, name) or 0) > most:
            said = f"Invalid '{name}': integer above maximum value. Expected a value <= {most}."
            raise invalid(said, name, "integer_above_max_value")
    if body.best_of is not None and body.best_of < (body.n or 1):
        raise invalid(
            "You requested that the server return more choices than it will generate (best_of < n).", "best_of"
        )
    if body.stream and (body.best_of or 0) > (body.n or 1):
        raise invalid("You cannot stream results with best_of > n.", "best_of")
    if body.stream_options is not None and not body.stream:
        raise invalid("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options")


def _order(body: schema.CompletionBody, writer: Writer, bounds: Bounds) -> tuple[list[str], Order]:
    """The texts of the prompts, and what is to be written."""
    given = _prompts(body.prompt, bounds)
    try:
        ids = [writer.read(prompt) if isinstance(prompt, str) else tuple(prompt) for prompt in given]
        texts = [prompt if isinstance(prompt, str) else writer.text(prompt) for prompt in given]
    except DataError as error:
        raise invalid(str(error), "prompt") from None
    most = 16 if body.max_tokens is None else body.max_tokens
    if writer.longest is not None and (longest := max(map(len, ids))) + most > writer.longest:
        raise invalid(
            f"This model's maximum context length is {writer.longest} tokens. However, you requested {longest + most} "
            f"tokens ({longest} in the prompt, {most} in the completion).", None, "context_length_exceeded",
        )  # fmt: skip
    results = body.n or 1
    options = WriteOptions(
        temperature=_temperature(body),
        top_p=1.0 if body.top_p is None else body.top_p,
        stop=_stops(body.stop, bounds),
        top=body.logprobs or 0,
    )
    return texts, Order(ids, options, most, results, body.best_of or results, body.seed)


def _temperature(body: schema.CompletionBody) -> float:
    return 1.0 if body.temperature is None else body.temperature


def _prompts(given: str | list[str] | list[int] | list[list[int]] | None, bounds: Bounds) -> Sequence[str | list[int]]:
    if given is None or isinstance(given, str):
        prompts: Sequence[Any] = [given or ""]
    else:
        prompts = [given] if given and isinstance(given[0], int) else given
    if not prompts or any(isinstance(prompt, list) and not prompt for prompt in prompts):
        raise invalid(
            "Invalid 'prompt': empty array. Expected an array with minimum length 1.", "prompt", "empty_array"
        )
    if len(prompts) > bounds.texts:
        said = f"Invalid 'prompt': array too long. Expected an array with maximum length {bounds.texts}."
        raise invalid(said, "prompt", "array_above_max_length")
    if any(len(prompt) > bounds.characters for prompt in prompts):
        said = f"Invalid 'prompt': too long. Expected at most {bounds.characters} characters, or tokens."
        raise invalid(said, "prompt", "string_above_max_length")
    return prompts


def _stops(given: str | list[str] | None, bounds: Bounds) -> tuple[str, ...]:
    stops = (given,) if isinstance(given, str) else tuple(given or ())
    if len(stops) > bounds.stops:
        said = f"Invalid 'stop': array too long. Expected an array with maximum length {bounds.stops}."
        raise invalid(said, "stop", "array_above_max_length")
    if not all(0 < len(stop) <= LONGEST_STOP for stop in stops):
        raise invalid(f"Invalid 'stop': texts must have 1 to {LONGEST_STOP} characters.", "stop", "invalid_value")
    return stops


@dataclass
class _Answer:
    """The form of an answer, whole or in chunks."""

    model: str
    order: Order
    echoed: list[str] | None
    """The prompts, if they are to be given back."""
    body: schema.CompletionBody

    def __post_init__(self) -> None:
        self.id = f"cmpl-{secrets.token_hex(12)}"
        self.created = int(time.time())

    def whole(self, found: Sequence[Written]) -> dict[str, Any]:
        """All continuations at once."""
        choices = []
        for number, written in enumerate(self.order.best(found)):
            before = self.prompt(number)
            told = _log_probs(written.tokens, len(before), self.body.logprobs)
            choices.append(_choice(number, before + written.text, told, written.finish))
        return {**self._frame(choices), "usage": self.usage(found)}

    def chunk(self, number: int, text: str, tokens: Sequence[WrittenToken], offset: int, finish: str | None) -> bytes:
        """What is new in one of them."""
        told = _log_probs(tokens, offset, self.body.logprobs) if tokens else None
        return self.event([_choice(number, text, told, finish)], None)

    def event(self, choices: list[dict[str, Any]], usage: dict[str, int] | None) -> bytes:
        """One event of a stream."""
        tells_usage = self.body.stream_options is not None and self.body.stream_options.include_usage
        return to_json({**self._frame(choices), **({"usage": usage} if tells_usage else {})})

    def prompt(self, number: int) -> str:
        """What stands before a continuation, if the prompt is given back."""
        return "" if self.echoed is None else self.echoed[number // self.order.results]

    def usage(self, found: Sequence[Written]) -> dict[str, int]:
        """How many tokens were read and written, those of rejected attempts included."""
        read, made = sum(map(len, self.order.prompts)), sum(len(written.tokens) for written in found)
        return {"prompt_tokens": read, "completion_tokens": made, "total_tokens": read + made}

    def _frame(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        about = {"id": self.id, "object": "text_completion", "created": self.created, "model": self.model}
        return {**about, "choices": choices}


def _choice(number: int, text: str, told: dict[str, Any] | None, finish: str | None) -> dict[str, Any]:
    return {"index": number, "text": text, "logprobs": told, "finish_reason": finish}


def _log_probs(tokens: Sequence[WrittenToken], offset: int, wanted: int | None) -> dict[str, Any] | None:
    if wanted is None:
        return None
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token.text)
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [token.log_prob for token in tokens],
        "top_logprobs": [dict(token.top) for token in tokens] if wanted else None,
        "text_offset": offsets,
    }


async def _nothing(order: Order) -> AsyncIterator[tuple[int, Piece | Written]]:
    """What there is to tell when nothing is to be written."""
    for number in range(len(order.prompts) * order.results):
        yield number, Written("", (), "length")


async def _events(answer: _Answer, news: AsyncIterator[tuple[int, Piece | Written]]) -> AsyncIterator[str]:
    """The events of a stream; if something goes wrong in the middle of it, the last one says so."""
    offsets: dict[int, int] = {}
    found: list[Written] = []
    try:
        for number in range(len(answer.order.prompts) * answer.order.results):
            if before := answer.prompt(number):
                offsets[number] = len(before)
                yield answer.chunk(number, before, (), 0, None).decode()
        async for number, one in news:
            if isinstance(one, Written):
                found.append(one)
                yield answer.chunk(number, "", (), 0, one.finish).decode()
            else:
                yield answer.chunk(number, one.text, one.tokens, offsets.get(number, 0), None).decode()
                offsets[number] = offsets.get(number, 0) + sum(len(token.text) for token in one.tokens)
        if answer.body.stream_options is not None and answer.body.stream_options.include_usage:
            yield answer.event([], answer.usage(found)).decode()
        yield "[DONE]"
    except Exception as error:
        yield to_json(of_error(error).as_openai()).decode()
    finally:
        await news.aclose()  # type: ignore[attr-defined]
