"""A loop that is ready to run in, how much time and memory it will take out: measured on a copy, so nothing changes."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from dataclasses import replace

import torch

from clearhead.nn.embedding import OutputLayer
from clearhead.nn.stacks import Block
from clearhead.training.distributed import Sharing
from clearhead.training.events import Noted
from clearhead.training.logbook import clock
from clearhead.training.loop import Loop
from clearhead.training.optimizers import make_optimizer
from clearhead.training.precision import is_slow
from clearhead.training.sizing import training_memory


def estimate(loop: Loop) -> Iterator[Noted]:
    """Say how large the model is, what memory a step takes, and how long the run will be."""
    if is_slow(loop.sharing.lesson.precision, loop.team.device):
        yield Noted("this machine is slow in bf16: train.precision = 'fp32' would be faster")
    total = loop.config.total_steps(loop.batches.num_batches(0))
    parameters = sum(p.numel() for p in loop.model.parameters())
    size = f"{parameters / 1e6:.2f} M parameters; about {memory(loop, parameters) / 2**20:,.0f} MiB of memory"
    if not loop.team.is_solo:
        # To time a step they would all have to take it; the progress line will soon tell.
        yield Noted(f"model: {size} at most in each process; {total:,} steps, shared by {loop.team.size} processes")
        return
    seconds = seconds_per_step(loop)
    yield Noted(f"model: {size}; {total:,} steps of {seconds:.2g} s, so about {clock(total * seconds)}")


def seconds_per_step(loop: Loop) -> float:
    """Time one training step of a throw-away copy, after one to warm up."""
    with torch.random.fork_rng(devices=[]):
        lesson = copy.deepcopy(loop.sharing.lesson)
        optimizer = make_optimizer(lesson.model, loop.config)
        trial = replace(loop, sharing=Sharing(lesson, loop.team), optimizer=optimizer)
        shares = loop.shares()
        trial.step(shares, 1, 2)
        began = time.perf_counter()
        trial.step(shares, 2, 2)
        return time.perf_counter() - began


def memory(loop: Loop, parameters: int) -> int:
    """Bytes that a training step takes, about."""
    blocks = [module for module in loop.model.modules() if isinstance(module, Block)]
    outputs = [module for module in loop.model.modules() if isinstance(module, OutputLayer)]
    batches, examples = loop.batches.config, loop.batches.examples
    lengths = examples.lengths
    tokens = batches.max_tokens if batches.batch_size is None else batches.batch_size * int(lengths.max())
    if loop.loss.agreement:  # Every row is computed twice.
        tokens *= 2
    return training_memory(
        parameters,
        num_layers=len(blocks),
        dim=loop.dim,
        ff_dim=max((block.feedforward.inner.out_features for block in blocks), default=0),
        vocab_size=max((len(output.weight) for output in outputs), default=0),
        max_tokens=tokens,
        asked=float(examples.answers.sum() / lengths.sum()),
    )
