"""Writing 1,000 characters with the cache against re-running the prefix: `python benchmarks/generate.py`.

Both write the same text with the same weights. Re-running reads at each step what the model sees of the text so far; a
third row reads the last `max_len` characters each time, as nanoGPT does, and so writes another text.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from results import record
from torch import Tensor

from clearhead.generate.settings import GenerationConfig
from clearhead.generate.strategies import generate
from clearhead.models.gpt import Gpt, GptConfig
from clearhead.run.continuing import LoadedGpt
from clearhead.run.using import load_as
from clearhead.text.specials import BOS_ID, EOS_ID, PAD_ID, UNK_ID

VOCAB = 69
"""The 65 characters of tiny Shakespeare, and the control tokens."""


class Text(NamedTuple):
    """All that was said, as the state of a search that remembers nothing else."""

    ids: Tensor

    def select(self, rows: Tensor) -> Text:
        return Text(self.ids[rows])


def rerunning(model: Gpt, first_seen: Callable[[int], int]) -> Callable[[Tensor, Text], tuple[Tensor, Text]]:
    """A step that reads everything from `first_seen` on anew."""

    def step(ids: Tensor, state: Text) -> tuple[Tensor, Text]:
        whole = torch.cat((state.ids, ids[:, None]), 1)
        return model(whole[:, first_seen(whole.shape[1]) :])[:, -1], Text(whole)

    return step


def main() -> None:
    """Run the contest and write its figures down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a language model; if none is given, one with random weights")
    parser.add_argument("--length", type=int, default=1000)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--dim", type=int, default=384, help="as nanoGPT has it where it sees 256 characters")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--positions", default="rotary")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--no-record", action="store_true", help="print only")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    model = loaded(asked)
    config = GenerationConfig(strategy="sample", loop_guard=False, seed=1)
    limits: dict[str, Any] = {
        "bos_id": BOS_ID, "eos_id": EOS_ID, "max_lens": [asked.length],
        "forbidden_ids": (BOS_ID, EOS_ID, PAD_ID, UNK_ID),
    }  # fmt: skip
    empty = torch.empty(1, 0, dtype=torch.long)
    last = model.config.max_len
    ways: dict[str, Callable[[], Any]] = {
        "with the cache": lambda: generate(model.step, model.start(empty), 1, config, **limits),
        "re-running what is seen": lambda: generate(
            rerunning(model, model.first_seen), Text(empty), 1, config, **limits
        ),
        f"re-running the last {last}": lambda: generate(
            rerunning(model, lambda length: max(0, length - last)), Text(empty), 1, config, **limits
        ),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    said: dict[str, tuple[int, ...]] = {}
    with torch.inference_mode():
        for _ in range(asked.rounds):
            for name, write in ways.items():
                began = time.perf_counter()
                said[name] = write()[0][0].ids
                seconds[name].append(time.perf_counter() - began)
                print(f"{name}: {seconds[name][-1]:.2f} s")
    first = next(iter(ways))
    best = {name: median(times) for name, times in seconds.items()}
    rows = [
        (
            name,
            f"{best[name]:.2f}",
            f"{1000 * best[name] / asked.length:.2f}",
            f"{best[name] / best[first]:.1f}×",
            "the same" if said[name] == said[first] else "another",
        )
        for name in ways
    ]
    columns = ("way", "seconds", "ms a token", "beside the cache", "text")
    for row in (columns, *rows):
        print(*row, sep="  ")
    shape = model.config
    remark = (
        f"{asked.length:,} tokens, {shape.max_len} seen at once; {shape.num_layers} layers, {shape.dim} wide, "
        f"{shape.positions} positions, {asked.threads} threads, median of {asked.rounds} rounds in turns, "
        f"{'weights of ' + str(asked.model) if asked.model else 'random weights'}."
    )
    if not asked.no_record:
        record("Writing with the cache", "python benchmarks/generate.py", columns, rows, remark)


def loaded(asked: argparse.Namespace) -> Gpt:
    """The model that was named, or one with random weights."""
    if asked.model is not None:
        return load_as(LoadedGpt, asked.model, "cpu").model
    torch.manual_seed(0)
    shape = {"dim": asked.dim, "ff_dim": 4 * asked.dim, "num_layers": asked.layers, "num_heads": asked.heads}
    return Gpt(GptConfig(vocab_size=VOCAB, max_len=asked.context, positions=asked.positions, **shape)).eval()


if __name__ == "__main__":
    main()
