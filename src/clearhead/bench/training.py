"""A size and some time in, training speed and memory of Clearhead and its peers out, all on the same batches.

Speed is in real target tokens a second, padding not counted. `sit` is one contestant's side of it, in its own process.
"""

from __future__ import annotations

import functools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from clearhead.bench.corpus import fitting_corpus, restore, store
from clearhead.bench.peers import PEERS, SMOOTHING, Trainee
from clearhead.bench.seat import Facts, Seat, Turn
from clearhead.bench.sizes import SIZES, Size, useful_flops
from clearhead.data.batches import BatchConfig, Batches, Cursor, Part, Share
from clearhead.data.corpus import PairBatch
from clearhead.errors import DataError, choose
from clearhead.models.translator import Translator, TranslatorConfig
from clearhead.pages import AS_TORCH_COMES
from clearhead.text.specials import PAD_ID
from clearhead.training.allocator import keep_memory
from clearhead.training.distributed import SOLO, Lesson, Team, join, share_out
from clearhead.training.loop import Loop
from clearhead.training.losses import LOSSES
from clearhead.training.objectives import OBJECTIVES
from clearhead.training.optimizers import make_optimizer
from clearhead.training.precision import PRECISIONS, is_slow
from clearhead.training.settings import TrainConfig

SEED = 1
MAX_TOKENS = 4096
PADDED_TO, PADDED_BATCH = 72, 32
PEAK = "matrix products"
PROCESSES = ", one-thread processes"
OURS = {f"clearhead {precision}{how}": precision for precision in PRECISIONS for how in ("", PROCESSES)}
"""The number format of each row of ours: one process with all threads, or as many with one."""
LEAST_ROUNDS = 3
REST = 0.25
"""Seconds between turns: threads of the one before may still be spinning."""
MATRIX = 1024

Told = Callable[[str], None]


@dataclass(frozen=True)
class Row:
    """What was measured of one contestant."""

    name: str
    padded: bool
    tokens_per_second: float
    gflops: float
    peak: int


@dataclass(frozen=True)
class TrainingFigures:
    """One contest."""

    size: str
    corpus: str
    threads: int
    rounds: int
    matrix_gflops: dict[str, float]
    """The best rate of large matrix products in the same run, by number format."""
    rows: tuple[Row, ...]
    missing: tuple[str, ...] = field(default=())

    def best_peer(self) -> Row | None:
        """The fastest of the peers that train on batches of similar length."""
        peers = [row for row in self.rows if row.name not in OURS and not row.padded]
        return max(peers, key=lambda row: row.tokens_per_second, default=None)

    def table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Columns and rows for a person."""
        best, padded = self.best_peer(), next((row for row in self.rows if row.padded), None)
        columns = ("", "tokens/s", "to best peer", "to padded", "useful GFLOP/s", "of matrix peak", "peak MiB")
        return columns, [
            (
                row.name,
                f"{row.tokens_per_second:,.0f}",
                f"{row.tokens_per_second / best.tokens_per_second:.2f}" if best else "–",
                f"{row.tokens_per_second / padded.tokens_per_second:.2f}" if padded else "–",
                f"{row.gflops:.1f}",
                f"{100 * row.gflops / self.matrix_gflops[OURS.get(row.name, 'fp32')]:.0f} %",
                f"{row.peak / 2**20:,.0f}",
            )
            for row in sorted(self.rows, key=lambda row: -row.tokens_per_second)
        ]

    def remark(self) -> str:
        """What the table cannot say."""
        peaks = ", ".join(f"{name} {value:.0f}" for name, value in self.matrix_gflops.items())
        formats = [precision for precision in self.matrix_gflops if SIZES[self.size].batches_in_step(precision) > 1]
        added = [f"in {precision} {SIZES[self.size].batches_in_step(precision)} batches" for precision in formats]
        ours = f" (ours adds up {', '.join(added)})" if added else ""
        return (
            f"{self.corpus}; steps of {MAX_TOKENS:,} tokens{ours}; real target tokens; medians of {self.rounds} "
            f"interleaved rounds after {SIZES[self.size].warm_up} steps of warm-up; threads: {self.threads}; peers in "
            "fp32, in one process, with torch as it comes; "
            f"products of {MATRIX}×{MATRIX} matrices in the same run: {peaks} GFLOP/s. Useful operations of S source "
            "and T target tokens: 6 · (S · (L(4d² + 2df) + 2Ld²) + T · (L(6d² + 2df) + dV) + 2Ld(S² + T² + ST))."
        )


def contest(
    size_name: str,
    *,
    seconds: float = 120.0,
    threads: int | None = None,
    steps: int = 2,
    names: Sequence[str] | None = None,
    told: Told = lambda line: None,
) -> TrainingFigures:
    """Let everybody train in turns for about so many seconds."""
    threads = threads or torch.get_num_threads()
    missing = tuple(name for name, peer in PEERS.items() if not find_spec(peer.package))
    for name in missing:
        told(f"{name} is not here: pip install 'clearhead[bench]'")
    fast = [precision for precision in PRECISIONS if not is_slow(precision, torch.device("cpu"))]
    # As many processes with one thread as there are threads: of one that would be the same contestant twice. Only in
    # the fastest format, for everybody who takes part keeps its memory.
    teams = fast[-1:] if threads > 1 else []
    ours = [name for name, precision in OURS.items() if precision in (teams if PROCESSES in name else fast)]
    everybody = ours + [name for name in PEERS if name not in missing]
    taking_part = [name for name in everybody if names is None or name in names]
    told(f"preparing the data for {size_name}")
    size, pairs, corpus = fitting_corpus(choose(SIZES, size_name, "size"))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as seats:
        store(pairs, Path(folder))
        shared = {"size": asdict(size), "folder": folder}
        seated = {}
        for name in [*(f"{PEAK} {precision}" for precision in fast), *taking_part]:
            told(f"{name} sits down")
            processes = threads if name.endswith(PROCESSES) else 1
            facts = {**shared, "name": name, "threads": threads // processes}
            around = None if name in OURS else AS_TORCH_COMES
            seated[name] = seats.enter_context(Seat("train", facts, processes, around))
        turns: dict[str, list[Facts]] = {name: [] for name in seated}
        told(f"{size.warm_up} steps each to warm up")
        for seat in seated.values():
            seat.ask({"steps": size.warm_up})
        began = time.perf_counter()
        while len(turns[taking_part[0]]) < LEAST_ROUNDS or time.perf_counter() - began < seconds:
            for name in _in_turn(list(seated), len(turns[taking_part[0]])):
                time.sleep(REST)
                turns[name].append(seated[name].ask({"steps": steps}))
            told(_standing(turns, taking_part))
    rows = tuple(_row(name, turns[name]) for name in taking_part)
    peaks = {precision: max(turn["gflops"] for turn in turns[f"{PEAK} {precision}"]) for precision in fast}
    return TrainingFigures(size_name, corpus, threads, len(turns[taking_part[0]]), peaks, rows, missing)


def _in_turn(names: list[str], turn: int) -> Iterator[str]:
    """Everybody, beginning with another one each time."""
    shift = turn % len(names)
    return iter([*names[shift:], *names[:shift]])


def _standing(turns: dict[str, list[Facts]], names: list[str]) -> str:
    latest = ", ".join(f"{name} {turns[name][-1]['tokens'] / turns[name][-1]['seconds']:,.0f}" for name in names)
    return f"round {len(turns[names[0]])}: {latest} tokens/s"


def _row(name: str, turns: list[Facts]) -> Row:
    return Row(
        name,
        padded=name in PEERS and PEERS[name].padded,
        tokens_per_second=statistics.median(turn["tokens"] / turn["seconds"] for turn in turns),
        gflops=statistics.median(turn["flops"] / turn["seconds"] / 1e9 for turn in turns),
        peak=max(turn["peak"] for turn in turns),
    )


def sit(settings: Facts) -> Turn:
    """One contestant: builds its model, and trains so many steps each time it is asked."""
    torch.manual_seed(SEED)
    torch.set_num_threads(settings["threads"])
    name, size = settings["name"], Size(**settings["size"])
    if name.startswith(PEAK):
        dtype = PRECISIONS[name.removeprefix(PEAK).strip()] or torch.float32
        return lambda turn: {"gflops": matrix_gflops(dtype)}
    padded = name in PEERS and PEERS[name].padded
    accumulate = size.batches_in_step(OURS[name]) if name in OURS else 1
    config = BatchConfig(batch_size=PADDED_BATCH) if padded else batches_of(MAX_TOKENS, accumulate)
    batches = Batches(restore(Path(settings["folder"])), config, SEED)
    train: Callable[[Share], None]
    if name in OURS:
        # A process that was told of no others is a team of one.
        loop = our_loop(our_model(size), batches, OURS[name], join(torch.device("cpu")), accumulate)
        train, stream = functools.partial(take_step, loop), loop.shares()
    else:
        train, stream = _theirs(PEERS[name].build(size), padded=padded), batches.shares()

    def turn(asked: Facts) -> Facts:
        pulled = [next(stream) for _ in range(asked["steps"])]
        began = time.perf_counter()
        for share in pulled:
            train(share)
        seconds = time.perf_counter() - began
        done = [batch for share in pulled for batch in pairs_of(share)]
        return {
            "seconds": seconds,
            "tokens": sum(batch.num_answers for batch in done),
            "flops": sum(useful_flops(size, batch.source_lengths, batch.target_lengths) for batch in done),
        }

    return turn


def batches_of(max_tokens: int, accumulate: int) -> BatchConfig:
    """Batches that make a step together; each is sorted out of as many sentences as one that makes it alone."""
    return BatchConfig(max_tokens=max_tokens // accumulate, pool=BatchConfig().pool * accumulate)


def pairs_of(share: Share) -> list[PairBatch]:
    """What there is to do in a share."""
    return [part.batch for part in share.parts if part.counts and isinstance(part.batch, PairBatch)]


def our_loop(
    model: Translator, batches: Batches, precision: str = "fp32", team: Team = SOLO, accumulate: int = 1
) -> Loop:
    """The training loop that users have, with nothing to validate and nowhere to save."""

    class Nowhere:
        def save(self, state: Any, validation_loss: float | None, *, is_planned: bool = True) -> Path:
            raise DataError("a benchmark saves nothing")

    keep_memory()
    config = TrainConfig(steps=1_000_000, lr=1e-4, smoothing=SMOOTHING, precision=precision, accumulate=accumulate)
    loss = LOSSES[config.loss](config.smoothing, PAD_ID)
    sharing = share_out(Lesson(model, loss, OBJECTIVES["translator"], precision), team, "none")
    return Loop(
        sharing=sharing,
        optimizer=make_optimizer(model, config, team),
        batches=batches,
        config=config,
        validation=lambda: (),
        samples=lambda: (),
        keeper=Nowhere(),
        dim=model.config.dim,
        team=team,
    )


def take_step(loop: Loop, share: Share) -> None:
    """One step of the loop, on what there is to do in it."""
    loop.step(iter([share]), 1, 1_000_000)


def whole_step(batch: PairBatch) -> Share:
    """One batch as all there is to do in a step."""
    return Share(Cursor(), batch.num_answers, (Part(batch, counts=True),), ())


def our_model(size: Size, **changes: Any) -> Translator:
    """Our translator in a contest's size."""
    shape: dict[str, Any] = {
        "source_vocab_size": size.source_vocab_size,
        "target_vocab_size": size.target_vocab_size,
        "dim": size.dim,
        "ff_dim": size.ff_dim,
        "num_heads": size.num_heads,
        "encoder_layers": size.num_layers,
        "decoder_layers": size.num_layers,
        "dropout": size.dropout,
        "tie": "all" if size.joint else "none",
    }
    return Translator(TranslatorConfig(**{**shape, **changes}))


def _theirs(trainee: Trainee, *, padded: bool) -> Callable[[Share], None]:
    trainee.model.train()

    def train(share: Share) -> None:
        (batch,) = pairs_of(share)
        source, target = batch.source, batch.target
        if padded:
            source, target = pad_to(source, PADDED_TO), pad_to(target, PADDED_TO)
        trainee.step(torch.from_numpy(source), torch.from_numpy(target))

    return train


def pad_to(ids: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Every row filled up with padding to one length."""
    return np.pad(ids, ((0, 0), (0, max(0, length - ids.shape[1]))), constant_values=PAD_ID)


def matrix_gflops(dtype: torch.dtype, rounds: int = 5) -> float:
    """The best rate of large square products in a number format, in thousand millions of operations a second."""
    with torch.no_grad():
        first, second = (nn.init.normal_(torch.empty(MATRIX, MATRIX)).to(dtype) for _ in range(2))
        best = float("inf")
        for _ in range(rounds):
            began = time.perf_counter()
            first @ second
            best = min(best, time.perf_counter() - began)
    return 2 * MATRIX**3 / best / 1e9
