"""Documents as a BERT's examples: spans, segments, packing, and what is asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data.corpus import driven
from clearhead.data.documents import (
    DocumentConfig,
    MaskedBatch,
    MaskedDocuments,
    document_sentences,
    open_documents,
    packed,
)
from clearhead.data.examples import Draw, where
from clearhead.data.spans import Spans
from clearhead.data.texts import survey
from clearhead.data.tokenised import TokenisedTexts, tokenising_texts
from clearhead.errors import ConfigError
from clearhead.text import BOS_ID, EOS_ID, PAD_ID, Tokenizer, TokenizerConfig

MAX_LEN = 24
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TokenizerConfig(kind="char"), [LETTERS])


@pytest.fixture
def texts(tokenizer: Tokenizer, tmp_path: Path) -> TokenisedTexts:
    """Documents of which every letter says which one it is from."""
    rows = [
        (document, document, LETTERS[document] * length)
        for document in range(12)
        for length in ([5, 4, 6, 3, 7] if document % 3 else [4])
    ]
    rows.append((12, 12, LETTERS[12] * 50))
    return driven(tokenising_texts("made up", lambda: rows, tokenizer, root=tmp_path), None)


def examples(texts: TokenisedTexts, **settings: object) -> MaskedDocuments:
    settings = {"vocab_size": 30, "asked": 0.15, "next_sentence": True, "pack": False, **settings}
    return MaskedDocuments(Spans(texts, MAX_LEN), **settings)  # type: ignore[arg-type]


def test_spans_are_whole_sentences_of_one_document_and_lose_nothing(texts: TokenisedTexts) -> None:
    spans = Spans(texts, MAX_LEN)
    assert spans.lengths.max() <= MAX_LEN - 3
    assert spans.lengths.sum() == texts.lengths.sum()
    for number in range(len(spans)):
        segment = spans.whole(number)
        assert len(set(segment.ids.tolist())) == 1 and len(segment.ids) == spans.lengths[number]
    assert spans.num_cut == 1
    # 5 + 4 + 6 + 3 fit into 21, the 7 go into a span of their own.
    assert sorted(set(spans.lengths.tolist())) == [4, 7, 8, 18, 21]


def test_a_second_segment_is_the_own_or_anothers_of_about_the_same_length(texts: TokenisedTexts) -> None:
    spans = Spans(texts, MAX_LEN)
    number = int(np.flatnonzero(spans.are_divisible)[0])
    own = 0
    for seed in range(300):
        first, second, is_next = spans.divided(number, np.random.default_rng(seed).random(16))
        assert len(first.ids) and len(second.ids)
        assert (second.ids[0] == first.ids[0]) == is_next
        if is_next:
            assert len(first.ids) + len(second.ids) == spans.lengths[number]
        else:
            assert len(first.ids) + len(second.ids) <= spans.lengths[number]
        own += is_next
    assert 100 < own < 200


def test_a_second_segment_from_elsewhere_leaves_as_many_tokens_as_are_asked_for(texts: TokenisedTexts) -> None:
    spans = Spans(texts, MAX_LEN)
    number = int(np.flatnonzero(spans.are_divisible)[0])
    least = int(spans.lengths[number]) - 1
    divided = [spans.divided(number, np.random.default_rng(seed).random(16), least) for seed in range(300)]
    assert all(len(first.ids) + len(second.ids) >= least for first, second, _ in divided)
    assert 100 < sum(not is_next for *_, is_next in divided) < 200


def test_with_one_document_nothing_can_come_from_elsewhere(tokenizer: Tokenizer, tmp_path: Path) -> None:
    rows = [(0, 0, "abc"), (0, 0, "def")]
    spans = Spans(driven(tokenising_texts("one", lambda: rows, tokenizer, root=tmp_path), None), MAX_LEN)
    assert all(spans.divided(0, np.random.default_rng(seed).random(16))[2] for seed in range(20))


@pytest.mark.parametrize("asked", [0.15, 0.7, 0.95])
@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("next_sentence", [False, True])
def test_what_is_planned_is_what_is_made(texts: TokenisedTexts, next_sentence: bool, pack: bool, asked: float) -> None:
    found = examples(texts, next_sentence=next_sentence, pack=pack, asked=asked)
    assert sum(len(row) for row in found.rows) == len(found.spans)
    assert found.lengths.max() <= MAX_LEN
    for row in range(len(found)):
        for draw in (None, *(Draw(1, epoch) for epoch in range(10))):
            batch = found.batch(np.array([row]), draw)
            assert batch.num_answers == found.answers[row] == batch.asked.sum() == batch.weights.sum()
            assert batch.ids.shape[1] <= found.lengths[row]
            assert len(batch.firsts) == len(batch.follows) == len(found.rows[row])
            check_form(batch)


def check_form(batch: MaskedBatch) -> None:
    """Every text is `<s>`, a segment, `</s>` and perhaps another segment and `</s>`; nothing else is special."""
    assert not (batch.asked & (batch.texts < 0)).any()
    assert bool((batch.ids[batch.texts < 0] == PAD_ID).all())
    for (row, column), follows in zip(batch.firsts.tolist(), batch.follows.tolist(), strict=True):
        mine = np.flatnonzero(batch.texts[row] == batch.texts[row, column])
        ids, segments = batch.ids[row, mine].tolist(), batch.segments[row, mine].tolist()
        assert mine.tolist() == list(range(mine[0], mine[-1] + 1)) and mine[0] == column
        assert ids[0] == BOS_ID and ids[-1] == EOS_ID
        ends = [place for place, index in enumerate(ids) if index == EOS_ID]
        assert len(ends) == (1 if follows < 0 else 2)
        assert segments == [int(place > ends[0]) for place in range(len(ids))]
        assert not batch.asked[row, mine][[0, *ends]].any()


def test_packing_puts_several_texts_into_a_row_and_numbers_them(texts: TokenisedTexts) -> None:
    plain, together = examples(texts), examples(texts, pack=True)
    assert len(together) < len(plain)
    row = int(np.argmax([len(spans) for spans in together.rows]))
    batch = together.batch(np.array([row]), None)
    assert batch.is_packed and len(set(batch.texts[batch.texts >= 0].tolist())) == len(batch.firsts) > 1
    assert not plain.batch(np.arange(3), None).is_packed


@pytest.mark.parametrize("pack", [False, True])
def test_a_row_knows_the_documents_it_is_of(texts: TokenisedTexts, tokenizer: Tokenizer, pack: bool) -> None:
    found = examples(texts, pack=pack)
    for row in range(len(found)):
        letters = dict.fromkeys(tokenizer.decode(found.spans.whole(span).ids)[0] for span in found.rows[row])
        named = " and ".join(f"document {LETTERS.index(letter) + 1}" for letter in letters)
        assert where(found, row) == named


def test_masks_depend_on_the_span_and_the_draw_alone(texts: TokenisedTexts) -> None:
    found = examples(texts, next_sentence=False)
    one, both = found.batch(np.array([2]), Draw(1, 3)), found.batch(np.array([5, 2]), Draw(1, 3))
    width = one.ids.shape[1]
    assert np.array_equal(one.hidden[0], both.hidden[1, :width]) and np.array_equal(one.ids[0], both.ids[1, :width])
    assert {found.batch(np.array([2]), Draw(1, epoch)).asked.tobytes() for epoch in range(9)} != {one.asked.tobytes()}
    assert np.array_equal(found.batch(np.array([2]), None).asked, found.batch(np.array([2]), None).asked)


def test_answers_are_what_was_there(texts: TokenisedTexts) -> None:
    found = examples(texts, next_sentence=False, asked=0.9)
    for row in range(len(found)):
        batch = found.batch(np.array([row]), Draw(1, 0))
        assert set(batch.answers.tolist()) == set(found.spans.whole(int(found.rows[row][0])).ids.tolist())


def test_words_are_asked_for_whole_if_it_is_known_where_they_begin(tmp_path: Path) -> None:
    known = Tokenizer.train(TokenizerConfig(kind="byte"), ["x"])
    rows = [(document, document, "aaa bbb ccc") for document in range(8)]
    steps = tokenising_texts("words", lambda: rows, known, root=tmp_path, with_words=True)
    spans = Spans(driven(steps, None), MAX_LEN)
    found = MaskedDocuments(spans, vocab_size=260, asked=0.36, next_sentence=False, pack=False)
    batch = found.batch(np.arange(8), None)
    # Four of eleven tokens: one of the two words with a space before them, or the first and what is left over.
    possible = [[4, 5, 6, 7], [8, 9, 10, 11], [1, 2, 3, 4], [1, 2, 3, 8]]
    asked = [np.flatnonzero(row).tolist() for row in batch.asked]
    assert all(row in possible for row in asked) and len({*map(tuple, asked)}) > 1


@given(st.lists(st.integers(1, 20), min_size=1, max_size=60))
def test_packed_rows_hold_everything_once_and_never_too_much(sizes: list[int]) -> None:
    rows = packed(np.array(sizes), 20)
    assert sorted(np.concatenate(rows).tolist()) == list(range(len(sizes)))
    filled = [sum(sizes[number] for number in row) for row in rows]
    assert max(filled) <= 20
    # No two rows would fit into one.
    assert len(filled) == 1 or sum(sorted(filled)[:2]) > 20


def test_documents_are_read_from_several_files_and_cut_into_sentences(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("One. Two.\nThree!\n", encoding="utf-8")
    (tmp_path / "b.tsv").write_text("id\ttext\n1\t四。五。\n", encoding="utf-8")
    config = DocumentConfig(train=[str(tmp_path / "a.txt"), str(tmp_path / "b.tsv")])
    documents = open_documents(config, "train")
    assert documents is not None
    found = survey(documents, max_chars=100, drop_duplicates=True)
    assert list(document_sentences(found)) == [
        (0, 0, "One."), (0, 0, " Two."), (1, 1, "Three!"), (2, 2, "四。"), (2, 2, "五。"),
    ]  # fmt: skip
    assert found.where(2) == f"{tmp_path / 'b.tsv'} line 2"


def test_missing_documents_are_told() -> None:
    with pytest.raises(ConfigError, match=r"set data\.train to a file or folder of documents"):
        open_documents(DocumentConfig(), "train")
    assert open_documents(DocumentConfig(train="x"), "validation") is None
