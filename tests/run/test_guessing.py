"""What a BERT guesses: the counts of a loop over every single text."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from clearhead.data.corpus import driven
from clearhead.data.documents import MaskedDocuments
from clearhead.data.spans import Spans
from clearhead.data.tokenised import tokenising_texts
from clearhead.errors import DataError
from clearhead.models.bert import Bert, BertConfig
from clearhead.run.guessing import Guesses, guessed
from clearhead.run.trying import in_batches
from clearhead.text import Tokenizer, TokenizerConfig
from clearhead.verdicts import wilson

pytestmark = pytest.mark.usefixtures("unchecked")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def made(tmp_path: Any, *, pack: bool, next_sentence: bool) -> tuple[Bert, MaskedDocuments]:
    tokenizer = Tokenizer.train(TokenizerConfig(kind="char"), [LETTERS])
    rows = [
        (document, document, LETTERS[document : document + length]) for document in range(9) for length in (5, 4, 7)
    ]
    texts = driven(tokenising_texts("made up", lambda: rows, tokenizer, root=tmp_path), None)
    how: dict[str, Any] = {"vocab_size": tokenizer.vocab_size, "asked": 0.3, "next_sentence": next_sentence}
    torch.manual_seed(0)
    shape = BertConfig(
        vocab_size=tokenizer.vocab_size, dim=8, ff_dim=8, num_heads=2, num_layers=1, max_len=40,
        next_sentence=next_sentence,
    )  # fmt: skip
    return Bert(shape).double().eval(), MaskedDocuments(Spans(texts, 20), pack=pack, **how)


@torch.no_grad()
@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("next_sentence", [False, True])
def test_all_at_once_is_counted_what_one_text_after_another_is(tmp_path: Any, pack: bool, next_sentence: bool) -> None:
    model, examples = made(tmp_path, pack=pack, next_sentence=next_sentence)
    told: list[int] = []
    found = guessed(model, in_batches(examples), told.append)
    words = right = pairs = follows = 0
    nll = 0.0
    for row in range(len(examples)):
        batch = examples.batch(np.array([row]), None)
        answers = dict(zip(zip(*np.nonzero(batch.asked), strict=True), batch.answers.tolist(), strict=True))
        for (place, first), wanted in zip(batch.firsts.tolist(), batch.follows.tolist(), strict=True):
            mine = np.flatnonzero(batch.texts[place] == batch.texts[place, first])
            ids, hidden, segments = (
                torch.from_numpy(part[place : place + 1, mine]) for part in (batch.ids, batch.hidden, batch.segments)
            )
            logits = model(ids, hidden, segments)[0]
            for at, column in enumerate(mine.tolist()):
                if batch.asked[place, column]:
                    answer = torch.tensor(answers[place, column])
                    nll += float(F.cross_entropy(logits[at], answer))
                    words, right = words + 1, right + int(logits[at].argmax() == answer)
            if next_sentence and wanted >= 0:
                said = int(model.follows(model.encode(ids, hidden, segments)[:, 0]).argmax())
                pairs, follows = pairs + 1, follows + (said == wanted)
    assert (found.words, found.words_right, found.pairs, found.pairs_right) == (words, right, pairs, follows)
    assert found.nll == pytest.approx(nll, rel=1e-6) and told[-1] == words
    assert (pairs > 5) == next_sentence


def test_shares_have_intervals_and_nothing_is_said_of_what_was_not_asked() -> None:
    tree = Guesses(words=40, words_right=30, nll=40 * math.log(3), pairs=0, pairs_right=0).as_json()
    assert tree["accuracy"] == 0.75 and tuple(tree["accuracy_interval"]) == wilson(30, 40)
    assert tree["perplexity"] == pytest.approx(3) and "next_sentence" not in tree
    both = Guesses(words=40, words_right=30, nll=1.0, pairs=8, pairs_right=6).as_json()["next_sentence"]
    assert both == {"accuracy": 0.75, "accuracy_interval": list(wilson(6, 8)), "count": 8}


def test_without_a_word_there_is_nothing_to_score(tmp_path: Any) -> None:
    model, _ = made(tmp_path, pack=False, next_sentence=True)
    with pytest.raises(DataError, match="there is nothing to score"):
        guessed(model, [], lambda count: None)
