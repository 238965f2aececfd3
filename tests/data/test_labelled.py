"""Labelled texts as examples: what a batch holds, and that it follows from draw and rows alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from clearhead.data.batches import BatchConfig, Batches, fixed_parts
from clearhead.data.corpus import driven
from clearhead.data.cutting import long_texts
from clearhead.data.examples import Draw, where
from clearhead.data.labelled import LabelledTexts
from clearhead.data.tokenised import TokenisedTexts, tokenising_texts
from clearhead.text import BOS_ID, EOS_ID, PAD_ID, Tokenizer, TokenizerConfig

WORDS = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"]


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TokenizerConfig(kind="char"), ["abcdefghijklmnopqrstuvwxyz"])


@pytest.fixture
def texts(tokenizer: Tokenizer, tmp_path: Path) -> TokenisedTexts:
    rows = [(number, number % 3, "abcdefghijklmnopqrstuvwxyz"[: number + 1]) for number in range(20)]
    return driven(tokenising_texts("made up", lambda: rows, tokenizer, root=tmp_path), None)


def examples(texts: TokenisedTexts, way: str = "ends", max_len: int = 10, **settings: object) -> LabelledTexts:
    settings = {"in_training": True, **settings}
    return LabelledTexts(texts, "xyz", long_texts(way, max_len, 0.25), **settings)  # type: ignore[arg-type]


def test_a_row_is_a_text_between_its_marks(texts: TokenisedTexts, tokenizer: Tokenizer) -> None:
    batch = examples(texts).batch(np.array([2, 0]), Draw(1, 0))
    abc = tokenizer.encode("abc")
    assert batch.ids.tolist() == [[BOS_ID, *abc, EOS_ID], [BOS_ID, abc[0], EOS_ID, PAD_ID, PAD_ID]]
    assert batch.lengths.tolist() == [5, 3]
    assert batch.labels.tolist() == [2, 0] and batch.num_answers == 2
    assert batch.owners is None and not batch.is_full and batch.indices.tolist() == [2, 0]


def test_a_text_knows_its_number_in_the_users_data(texts: TokenisedTexts) -> None:
    found = examples(texts.subset(np.array([7, 2])))
    assert [where(found, row) for row in range(2)] == ["text 8", "text 3"]


def test_what_is_planned_is_what_is_read(texts: TokenisedTexts) -> None:
    for way in ("ends", "windows"):
        for in_training in (True, False):
            found = examples(texts, way, in_training=in_training)
            for row in range(len(found)):
                batch = found.batch(np.array([row]), Draw(1, 0) if in_training else None)
                assert batch.lengths.sum() <= found.lengths[row] <= len(batch.ids) * 10
                assert batch.num_answers == found.answers[row]
    assert examples(texts).num_long == 12


def test_in_use_all_windows_are_read_and_owned(texts: TokenisedTexts) -> None:
    batch = examples(texts, "windows", in_training=False).batch(np.array([19, 3]), None)
    assert batch.owners is not None and batch.owners.tolist() == [0, 0, 0, 1]
    read = {token for row in batch.ids[:3].tolist() for token in row if token > 3}
    assert read == set(texts.sentences.sentence(19).tolist())


def test_windows_and_dropped_tokens_follow_from_draw_and_number(texts: TokenisedTexts) -> None:
    found = examples(texts, "windows", drop_tokens=0.4)
    alone = found.batch(np.array([19]), Draw(1, 0))
    together = found.batch(np.array([3, 19]), Draw(1, 0))
    length = alone.lengths[0]
    assert np.array_equal(alone.ids[0, :length], together.ids[1, :length])
    assert {found.batch(np.array([19]), Draw(1, epoch)).ids.tobytes() for epoch in range(8)} != {alone.ids.tobytes()}


def test_about_the_share_that_was_asked_for_is_dropped_but_never_all(texts: TokenisedTexts) -> None:
    found = examples(texts, max_len=30, drop_tokens=0.5)
    kept = [found.batch(np.array([19]), Draw(1, epoch)).lengths[0] - 2 for epoch in range(60)]
    assert 8 < np.mean(kept) < 12
    assert all(found.batch(np.array([0]), Draw(1, epoch)).lengths[0] == 3 for epoch in range(10))
    assert found.batch(np.array([19]), None).lengths[0] == 22


def test_the_planner_takes_them(texts: TokenisedTexts) -> None:
    config = BatchConfig(max_tokens=40)
    share = next(Batches(examples(texts), config, seed=1).shares())
    assert share.tokens == share.parts[0].batch.num_answers
    seen = [row for part in fixed_parts(examples(texts, in_training=False), config) for row in part.batch.indices]
    assert sorted(seen) == list(range(20))


def test_tokenised_texts_are_kept_and_found_again(texts: TokenisedTexts, tokenizer: Tokenizer, tmp_path: Path) -> None:
    def never() -> list[tuple[int, int, str]]:
        raise AssertionError("they are there already")

    again = driven(tokenising_texts("made up", never, tokenizer, root=tmp_path), None)
    assert np.array_equal(again.tags, texts.tags) and np.array_equal(again.lengths, texts.lengths)
    assert np.array_equal(again.subset(np.array([4])).sentences.sentence(0), texts.sentences.sentence(4))


def test_words_begin_where_they_begin(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(TokenizerConfig(kind="byte"), ["x"])
    found = driven(
        tokenising_texts("x", lambda: [(0, 0, "ab cd."), (1, 0, "e")], tokenizer, with_words=True, root=tmp_path), None
    )
    assert found.begins is not None
    assert [found.begins.sentence(row).tolist() for row in (0, 1)] == [[1, 0, 1, 0, 0, 1], [1]]
