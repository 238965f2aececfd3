"""Windows over a text: every token is asked for once, from what stood before it, and chance follows from the draw."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from clearhead.config import build
from clearhead.data.batches import BatchConfig, Batches, fixed_parts
from clearhead.data.corpus import driven
from clearhead.data.examples import Draw, where
from clearhead.data.windows import (
    WINDOWINGS,
    Random,
    TextConfig,
    Tiled,
    TokenisedText,
    WindowBatch,
    hashed,
    opening_or_tokenising_text,
)
from clearhead.errors import ConfigError
from clearhead.text import BOS_ID, PAD_ID, UNK_ID, Tokenizer, TokenizerConfig

TEXT = "Wörter und\nWörter\n\n  eingerückt 我\n" * 7
ALL = pytest.mark.parametrize("kind", WINDOWINGS)
DRAWS = [None, Draw(0, 0), Draw(0, 1), Draw(7, 3)]


def numbered(count: int) -> NDArray[np.uint16]:
    """A text in which every token is another, so that each place can be told."""
    return np.arange(10, 10 + count, dtype=np.uint16)


def whole(windows: Tiled | Random, draw: Draw | None) -> WindowBatch:
    return windows.batch(np.arange(len(windows)), draw)


def asked(batch: WindowBatch) -> list[tuple[int, int]]:
    """Each answer with the token before it."""
    return [
        (int(before), int(answer))
        for inputs, answers, length in zip(batch.inputs, batch.answers, batch.lengths, strict=True)
        for before, answer in zip(inputs[:length], answers[:length], strict=True)
    ]


# Tokens on the disk --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bpe", "char", "byte"])
def test_a_text_is_tokenised_as_a_whole_and_once(tmp_path: Path, kind: str) -> None:
    tokenizer = Tokenizer.train(TokenizerConfig(kind=kind, vocab_size=280), [TEXT])
    passages = [TEXT[:31], TEXT[31:33], TEXT[33:]]
    text = driven(opening_or_tokenising_text("a", lambda: passages, tokenizer, tmp_path), None)
    assert text.ids.tolist() == tokenizer.encode(TEXT)
    assert (text.characters, text.bytes, text.unknown) == (len(TEXT), len(TEXT.encode()), 0)

    def never() -> list[str]:
        raise AssertionError("it is in the cache")

    again = driven(opening_or_tokenising_text("a", never, tokenizer, tmp_path), None)
    assert again.ids.tolist() == text.ids.tolist()


def test_another_text_and_another_tokenizer_have_their_own_places(tmp_path: Path) -> None:
    one, other = (Tokenizer.train(TokenizerConfig(kind="char"), [text]) for text in ("abc", "abcd"))
    for content, text, tokenizer in (("a", "aabb", one), ("b", "bbcc", one), ("a", "aabb", other)):
        found = driven(opening_or_tokenising_text(content, lambda text=text: [text], tokenizer, tmp_path), None)
        assert tokenizer.decode(found.ids) == text
    assert len(list(tmp_path.iterdir())) == 3


def test_a_damaged_text_is_tokenised_again(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(TokenizerConfig(kind="char"), ["abc"])
    driven(opening_or_tokenising_text("a", lambda: ["abc"], tokenizer, tmp_path), None)
    (path,) = tmp_path.glob("*/ids.bin")
    path.write_bytes(b"\xff" + path.read_bytes()[1:])
    text = driven(opening_or_tokenising_text("a", lambda: ["abc"], tokenizer, tmp_path), None)
    assert text.ids.tolist() == tokenizer.encode("abc")


def test_progress_is_told_in_characters_and_unknown_ones_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clearhead.data.windows.CHUNK", 10)
    tokenizer = Tokenizer.train(TokenizerConfig(kind="char"), ["ab\n"])
    told: list[int] = []
    text = driven(opening_or_tokenising_text("a", lambda: ["ab\nax\n" * 9], tokenizer, tmp_path), told.append)
    assert told[-1] == text.characters == 54
    assert len(told) > 3
    assert text.unknown == 9 == text.ids.tolist().count(UNK_ID)
    assert isinstance(text, TokenisedText)


# Windows -------------------------------------------------------------------------------------------------------------


@given(count=st.integers(1, 40), max_len=st.integers(1, 12), draw=st.sampled_from(DRAWS))
def test_tiled_windows_ask_for_every_token_once(count: int, max_len: int, draw: Draw | None) -> None:
    ids = numbered(count)
    windows = Tiled(ids, max_len)
    found = asked(whole(windows, draw))
    stream = [BOS_ID, *ids.tolist()]
    assert Counter(found) == Counter(pairwise(stream))


@given(count=st.integers(1, 40), max_len=st.integers(1, 12))
def test_validation_reads_a_text_from_its_beginning(count: int, max_len: int) -> None:
    ids = numbered(count)
    batch = whole(Tiled(ids, max_len), None)
    assert [answer for _, answer in asked(batch)] == ids.tolist()
    assert all(length == batch.answers.shape[1] for length in batch.lengths[:-1])


def test_each_epoch_begins_at_another_place() -> None:
    windows = Tiled(numbered(100), 8)
    begins = {int(whole(windows, Draw(1, epoch)).answers[0, 0]) for epoch in range(60)}
    assert len(begins) > 30


def test_where_the_text_goes_round_stands_the_beginning_sign() -> None:
    ids = numbered(10)
    for epoch in range(30):
        batch = whole(Tiled(ids, 10), Draw(0, epoch))
        row = batch.inputs[0].tolist()
        place = row.index(BOS_ID)
        assert batch.answers[0, place] == ids[0]
        assert place == 0 or batch.answers[0, place - 1] == ids[-1]


@given(count=st.integers(1, 60), max_len=st.integers(1, 12), draw=st.sampled_from(DRAWS))
def test_random_windows_are_stretches_of_the_text(count: int, max_len: int, draw: Draw | None) -> None:
    ids = numbered(count)
    windows = Random(ids, max_len, 9)
    batch = whole(windows, draw)
    assert batch.is_full
    assert batch.answers.shape == (9, min(max_len, count))
    for inputs, answers in zip(batch.inputs, batch.answers, strict=True):
        start = int(answers[0]) - 10
        assert answers.tolist() == ids[start : start + len(answers)].tolist()
        assert inputs.tolist() == ([BOS_ID, *ids.tolist()])[start : start + len(answers)]


def test_random_windows_begin_anywhere() -> None:
    windows = Random(numbered(1000), 10, 4000)
    starts = whole(windows, Draw(0, 0)).answers[:, 0] - 10
    assert (starts.min(), starts.max()) == (0, 990)
    counts = np.bincount(starts // 100, minlength=10)
    assert counts[:9].min() > 300


@ALL
def test_a_batch_depends_on_its_rows_and_the_draw_alone(kind: str) -> None:
    windows = WINDOWINGS[kind](numbered(100), 8)
    together = windows.batch(np.array([5, 2, 9]), Draw(3, 4))
    for place, row in enumerate((5, 2, 9)):
        alone = windows.batch(np.array([row]), Draw(3, 4))
        assert alone.inputs[0].tolist() == together.inputs[place].tolist()
        assert alone.answers[0].tolist() == together.answers[place].tolist()
    other = windows.batch(np.array([5, 2, 9]), Draw(3, 5))
    assert other.inputs.tolist() != together.inputs.tolist()
    assert windows.batch(np.array([5]), None).inputs.tolist() == windows.batch(np.array([5]), None).inputs.tolist()


@ALL
@pytest.mark.parametrize("draw", DRAWS, ids=str)
def test_what_is_promised_of_examples_is_kept(kind: str, draw: Draw | None) -> None:
    windows = WINDOWINGS[kind](numbered(101), 8)
    batch = whole(windows, draw)
    assert len(windows) == len(windows.lengths) == len(windows.answers) == len(windows.work) == len(batch.lengths)
    assert batch.lengths.tolist() == windows.answers.tolist()
    assert batch.num_answers == int(windows.answers.sum())
    assert (windows.lengths >= windows.answers).all()
    assert windows.sort_keys == ()
    assert where(windows, 2) == "example 3"


def test_padding_is_on_the_right_and_nowhere_else() -> None:
    batch = whole(Tiled(numbered(10), 4), None)
    assert batch.lengths.tolist() == [4, 4, 2]
    assert not batch.is_full
    assert (batch.inputs == PAD_ID).tolist() == (batch.answers == PAD_ID).tolist()
    assert batch.answers[2].tolist() == [18, 19, PAD_ID, PAD_ID]


def test_the_same_numbers_hash_alike_and_others_do_not() -> None:
    rows = np.arange(1000)
    one = hashed(Draw(1, 2), rows)
    assert len(np.unique(one)) == 1000
    assert hashed(Draw(1, 2), rows[7:9]).tolist() == one[7:9].tolist()
    for other in (Draw(2, 1), Draw(1, 3), Draw(0, 2)):
        assert not (hashed(other, rows) == one).any()
    assert abs((one / 2.0**64).mean() - 0.5) < 0.05


# Batches of windows --------------------------------------------------------------------------------------------------


def test_an_epoch_of_batches_holds_the_text_once_and_is_another_each_time() -> None:
    ids = numbered(203)
    batches = Batches(Tiled(ids, 8), BatchConfig(max_tokens=32), seed=1)
    count = batches.num_batches(0)
    shares = batches.shares()
    for _ in range(2):
        answers: list[int] = []
        for share in (next(shares) for _ in range(count)):
            (part,) = share.parts
            assert isinstance(part.batch, WindowBatch)
            assert part.batch.inputs.shape[0] <= 4
            assert share.tokens == part.batch.num_answers
            answers += [answer for _, answer in asked(part.batch)]
        assert sorted(answers) == ids.tolist()


def test_drawn_windows_fill_batches_of_just_the_size_asked_for() -> None:
    batches = Batches(Random(numbered(203), 8, 24), BatchConfig(batch_size=12), seed=1)
    shares = batches.shares()
    for _ in range(7):
        (part,) = next(shares).parts
        assert isinstance(part.batch, WindowBatch)
        assert part.batch.inputs.shape == (12, 8)


def test_processes_share_the_windows_of_a_step() -> None:
    ids = numbered(203)
    batches = Batches(Tiled(ids, 8), BatchConfig(max_tokens=64), seed=1)
    alone = next(batches.shares()).parts[0].batch
    mine = [next(batches.shares(rank=rank, size=3)).parts[0].batch for rank in range(3)]
    assert isinstance(alone, WindowBatch)
    together = [pair for batch in mine if isinstance(batch, WindowBatch) for pair in asked(batch)]
    assert Counter(together) == Counter(asked(alone))


def test_validation_is_the_same_for_any_number_of_processes() -> None:
    windows = Tiled(numbered(203), 8)
    for size in (1, 2, 5):
        found = [
            pair
            for rank in range(size)
            for part in fixed_parts(windows, BatchConfig(max_tokens=32), rank, size)
            if part.counts and isinstance(part.batch, WindowBatch)
            for pair in asked(part.batch)
        ]
        assert sorted(answer for _, answer in found) == windows.ids.tolist()


def test_a_misspelt_way_to_cut_is_met_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="unknown way to cut a text, did you mean 'tiled'"):
        build(TextConfig, {"text": "a.txt", "windows": "tield"}, "data")
