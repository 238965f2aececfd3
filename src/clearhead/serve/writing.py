"""Prompts in, continuations out, whole or as they are written; of several attempts the best are kept."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from clearhead.serve.backends import Piece, Prompt, WriteOptions, Writer, Written
from clearhead.serve.engine import Row, Ticket
from clearhead.serve.refusals import too_slow
from clearhead.serve.server import Server
from clearhead.serve.tasks import Writing


@dataclass(frozen=True)
class Order:
    """What somebody wants to have continued."""

    prompts: Sequence[tuple[int, ...]]
    options: WriteOptions
    most_tokens: int
    results: int = 1
    """Continuations of each prompt ..."""
    attempts: int = 1
    """... that are chosen from this many."""
    seed: int | None = None

    def rows(self, writer: Writer) -> list[Row[Prompt]]:
        """One row for each attempt at each prompt."""
        seed = secrets.randbits(63) if self.seed is None else self.seed
        prompts = [
            Prompt(ids, self.most_tokens, _chance(seed, number, attempt))
            for number, ids in enumerate(self.prompts)
            for attempt in range(self.attempts)
        ]
        return [Row(prompt, len(prompt.ids) + self.most_tokens, writer.group(prompt)) for prompt in prompts]

    def best(self, found: Sequence[Written]) -> list[Written]:
        """Of all attempts at each prompt, those with the highest probability per token; first come, first kept."""
        kept: list[Written] = []
        for first in range(0, len(found), self.attempts):
            attempts = found[first : first + self.attempts]
            ranked = sorted(attempts, key=lambda one: -_mean(one)) if self.attempts > self.results else attempts
            kept.extend(ranked[: self.results])
        return kept


async def write(server: Server, writer: Writer, order: Order, deadline: float) -> list[Written]:
    """All attempts, in the order of the prompts."""
    if order.most_tokens == 0:
        return [Written("", (), "length")] * (len(order.prompts) * order.attempts)
    return await server.engine.answers(Writing(writer, order.options), order.rows(writer), deadline)


def enter(server: Server, writer: Writer, order: Order) -> Ticket[Prompt, Written]:
    """A place in the engine for continuations that are sent as they are written, or a refusal."""
    return server.engine.enter(Writing(writer, order.options), order.rows(writer), listens=True)


async def pieces(
    server: Server, ticket: Ticket[Prompt, Written], deadline: float
) -> AsyncIterator[tuple[int, Piece | Written]]:
    """The pieces of continuations as they come, each with its number; at the end each as a whole."""
    news = ticket.news()
    try:
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    one = await anext(news)
            except StopAsyncIteration:
                break
            except TimeoutError:
                raise too_slow(server.bounds.seconds) from None
            yield one
        for number, written in enumerate(await ticket.answers()):
            yield number, written
    finally:
        ticket.leave()


def _chance(seed: int, number: int, attempt: int) -> int:
    digest = hashlib.sha256(f"{seed} {number} {attempt}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def _mean(written: Written) -> float:
    return sum(token.log_prob for token in written.tokens) / max(1, len(written.tokens))
