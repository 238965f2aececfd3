"""Texts with gaps: what stands around a gap is encoded as if it were filled, and candidates are words."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clearhead.errors import DataError
from clearhead.models.bert import Bert, BertConfig
from clearhead.run.filling import LoadedBert, gapped
from clearhead.text.specials import BOS_ID, EOS_ID, UNK_ID
from clearhead.text.tokenizer import Tokenizer, TokenizerConfig, TokenizerPair

TEXTS = ["The film was great.", "The film (a great one) was not so great, he said!", "a b c", "这部电影很好。"] * 3


def tokenizer_of(kind: str) -> Tokenizer:
    return Tokenizer.train(TokenizerConfig(kind=kind, vocab_size=300, min_freq=1), TEXTS)


@pytest.mark.parametrize("kind", ["bpe", "word"])
@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("The film was [MASK].", "great"),
        ("[MASK] film was great.", "The"),
        ("The film ([MASK] great one) was", "a"),
        ("The film was not so [MASK], he said!", "great"),
        ("The [MASK]", "film"),
        ("这部电影很[MASK]。", "好"),
    ],
)
def test_around_a_gap_all_is_as_if_it_were_filled(kind: str, text: str, word: str) -> None:
    tokenizer = tokenizer_of(kind)
    whole = tokenizer.encode(text.replace("[MASK]", word))
    given = gapped(tokenizer, text)
    (place,) = given.places
    before, after = given.ids[1:place], given.ids[place + 1 : -1]
    assert given.ids[0] == BOS_ID and given.ids[-1] == EOS_ID and given.ids[place] == UNK_ID
    assert whole[: len(before)] == before
    assert whole[len(whole) - len(after) :] == after
    # What is missing is the word and no more.
    missing = tokenizer.decode(whole[len(before) : len(whole) - len(after)])
    assert missing.strip() == word


@pytest.mark.parametrize("kind", ["char", "byte"])
def test_where_a_token_is_a_letter_a_gap_is_one_too_and_spaces_stay(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    given = gapped(tokenizer, "The fil[MASK] was [MASK].")
    assert tokenizer.decode(given.ids) == "The fil was ." and len(given.places) == 2


def test_a_text_without_gaps_is_encoded_as_ever() -> None:
    tokenizer = tokenizer_of("bpe")
    given = gapped(tokenizer, "The film was great.")
    assert given.ids == [BOS_ID, *tokenizer.encode("The film was great."), EOS_ID] and given.places == []


@pytest.fixture
def loaded() -> LoadedBert:
    torch.manual_seed(0)
    tokenizer = tokenizer_of("bpe")
    settings: dict[str, Any] = {"dim": 8, "ff_dim": 8, "num_heads": 2, "num_layers": 1, "max_len": 16}
    model = Bert(BertConfig(vocab_size=tokenizer.vocab_size, **settings))
    return LoadedBert(model, TokenizerPair(tokenizer, tokenizer))


def test_candidates_are_words_by_their_probability(loaded: LoadedBert) -> None:
    found = loaded.fill("The [MASK] was [MASK].", top=3)
    assert [len(gap) for gap in found.gaps] == [3, 3]
    for gap in found.gaps:
        assert [one.probability for one in gap] == sorted((one.probability for one in gap), reverse=True)
        assert all(0 < one.probability < 1 and not one.token.startswith("<") for one in gap)
        assert gap[0].text == found.text
    everything = loaded.fill("The [MASK]", top=10_000).gaps[0]
    assert sum(one.probability for one in everything) == pytest.approx(1, abs=1e-4)


def test_mistakes_are_told(loaded: LoadedBert) -> None:
    with pytest.raises(DataError, match="text 2 has no gap to fill"):
        list(loaded.stream(["The [MASK]", "The film"]))
    with pytest.raises(DataError, match=r"text 1 has .* tokens, and this model reads at most 14: shorten it"):
        loaded.fill("The film " * 9 + "[MASK]")
    assert loaded.fill("  ").text == ""
