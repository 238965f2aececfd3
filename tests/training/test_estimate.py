"""What a run will need: memory that follows from what is computed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.run.assembling import assembled

from clearhead.run.settings import RunConfig, resolve
from clearhead.text.script import SPELT, Script
from clearhead.training.estimate import memory
from clearhead.training.sizing_readers import choose_masked_sizes, choose_reader_sizes

Configure = Callable[..., RunConfig]


def test_a_batch_that_is_read_twice_takes_twice_the_memory(tiny: Configure) -> None:
    plain, twice = (memory(assembled(tiny(train__agreement=weight)).loop, 0) for weight in (0.0, 4.0))
    assert twice == pytest.approx(2 * plain, rel=0.01)


def test_tokens_that_are_not_asked_for_have_no_logits(tmp_path: Path) -> None:
    lines = [f"Der Satz {number} ist kurz. Und der Satz {number + 1} folgt ihm.\n" for number in range(60)]
    (tmp_path / "documents.txt").write_text("".join(lines), encoding="utf-8")

    def needed(asked: float) -> int:
        config = resolve(
            {
                "data": {"train": str(tmp_path / "documents.txt"), "hold_out": 6, "asked": asked},
                "tokenizer": {"kind": "char"},
                "batches": {"max_tokens": 1000},
                "model": {"kind": "bert", "dim": 8, "ff_dim": 8, "num_heads": 2, "num_layers": 1, "max_len": 64},
                "train": {"steps": 1},
            }
        )
        run = assembled(config)
        return memory(run.loop, 0) // (4 * 3 * run.model.config.vocab_size)

    # Control tokens, which are never asked for, are a few of a hundred.
    assert needed(0.6) - needed(0.1) == pytest.approx(500, rel=0.1)


def test_a_bert_that_is_asked_for_little_reads_more_at_once() -> None:
    characters = np.full(9_000, 1_000, dtype=np.int32)

    def budget(asked: float) -> int:
        choices = choose_masked_sizes(characters, 800_000_000, asked)
        return next(choice.value for choice in choices if choice.key == "batches.max_tokens")

    assert (budget(0.15), budget(0.9)) == (4096, 2048)


def test_a_chinese_text_is_read_as_far_as_a_european_one_of_as_many_tokens() -> None:
    def room(characters: int, script: Script) -> int:
        choices = choose_reader_sizes(400, np.full(400, characters, dtype=np.int32), 8 << 30, script)
        return next(choice.value for choice in choices if choice.key == "model.max_len")

    chinese = Script(1.3, signs=900)
    assert room(150, SPELT) == 64 and room(150, chinese) == 128
    assert room(330, chinese) == room(880, SPELT) == 256
