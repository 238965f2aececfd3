"""Pieces taken apart: the text stays the same, what is drawn follows from the draw alone, and bounds are kept."""

from __future__ import annotations

import numpy as np
import pytest

from clearhead.data.corpus import Sentences, TokenisedPairs
from clearhead.data.examples import Draw, Integers
from clearhead.data.splitting import Splitting
from clearhead.errors import ConfigError
from clearhead.text import Tokenizer, TokenizerConfig

TEXTS = [
    "Zwei Männer grüßen einen Hund an der Straßenecke.",
    "Der Straßenhund grüßt die Männer nicht.",
    "我吃了一个苹果。",
    "我吃了两个苹果。",
    "Hundert Hunde, hundert Männer.",
]
BPE = Tokenizer.train(TokenizerConfig(kind="bpe", vocab_size=400), TEXTS * 3)
SENTENCES = [np.array(BPE.encode(text)) for text in TEXTS]
NUMBERS = np.arange(10, 10 + len(TEXTS))
FIRST = Draw(1, 0)


def split(chance: float, draw: Draw = FIRST, longest: int = 1000, rows: Integers | None = None) -> list[list[int]]:
    rows = np.arange(len(TEXTS)) if rows is None else rows
    found = Splitting(BPE, chance, longest).split([SENTENCES[row] for row in rows], NUMBERS[rows], draw)
    return [sentence.tolist() for sentence in found]


@pytest.mark.parametrize("chance", [0.1, 0.5, 0.9])
def test_split_sentences_say_the_same_in_more_pieces(chance: float) -> None:
    found = split(chance)
    assert BPE.decode_batch(found) == TEXTS
    assert sum(map(len, found)) > sum(map(len, SENTENCES))


def test_what_is_always_split_ends_as_pieces_that_nothing_was_merged_to() -> None:
    halves = BPE.halves()
    found = split(1 - 1e-12)
    assert {halves[index] for sentence in found for index in sentence} == {(-1, -1)}
    assert BPE.decode_batch(found) == TEXTS


def test_characters_stay_whole() -> None:
    for index, halves in enumerate(BPE.halves()):
        if halves != (-1, -1):
            assert BPE.raw(halves) == BPE.raw([index])
            assert all("\ufffd" not in BPE.decode([half]) for half in halves)


def test_what_is_split_follows_from_draw_and_number_alone() -> None:
    once = split(0.4)
    assert split(0.4) == once
    order = np.array([3, 1])
    assert split(0.4, rows=order) == [once[row] for row in order]
    assert all(split(0.4, other) != once for other in (Draw(1, 1), Draw(2, 0)))


def test_the_chance_is_that_of_each_piece() -> None:
    twice = next(index for index, halves in enumerate(BPE.halves()) if min(halves, default=-1) >= 0)
    sentence = np.full(50, twice)
    splitting = Splitting(BPE, 0.3, 10**6)
    lengths = [len(splitting.split([sentence], np.array([7]), Draw(3, epoch))[0]) for epoch in range(400)]
    halves = BPE.halves()[twice]
    more = sum(0.3 for half in halves if BPE.halves()[half][0] >= 0)
    assert np.mean(lengths) == pytest.approx(50 * (1 + 0.3 * (1 + more)), rel=0.02)


def test_no_sentence_grows_too_long_for_the_model() -> None:
    longest = max(map(len, SENTENCES)) + 2
    found = split(0.9, longest=longest)
    assert max(map(len, found)) <= longest
    assert BPE.decode_batch(found) == TEXTS


@pytest.mark.parametrize("kind", ["word", "char", "byte"])
def test_there_must_be_something_to_split(kind: str) -> None:
    with pytest.raises(ConfigError, match=f"'{kind}' tokenizer has no pieces to split; use tokenizer.kind = 'bpe'"):
        Splitting(Tokenizer.train(TokenizerConfig(kind=kind), TEXTS), 0.1, 100)


def test_only_sources_are_split_and_only_in_training() -> None:
    ends = np.cumsum([len(sentence) for sentence in SENTENCES])
    lengths = np.diff(ends, prepend=0).astype(np.int32)
    side = Sentences(np.concatenate(SENTENCES), ends - lengths, lengths)
    pairs = TokenisedPairs(side, side, np.arange(1, len(TEXTS) + 1), 0).split_by(Splitting(BPE, 0.5, 100))
    rows = np.arange(len(TEXTS))
    trained, validated = pairs.batch(rows, Draw(1, 0)), pairs.batch(rows, None)
    assert np.array_equal(trained.target, validated.target)
    assert (trained.source_lengths > validated.source_lengths).any()
    assert BPE.decode_batch(trained.source) == BPE.decode_batch(validated.source) == TEXTS
