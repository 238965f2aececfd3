"""Perplexity: what a loop over the text would say."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from clearhead.cli.perplexity import _shown
from clearhead.data.examples import Draw
from clearhead.data.windows import TokenisedText, hashed
from clearhead.errors import DataError
from clearhead.generate.settings import GenerationConfig
from clearhead.models.gpt import Gpt, GptConfig
from clearhead.run.continuing import LoadedGpt
from clearhead.run.likelihood import estimate_like
from clearhead.text import BOS_ID, Tokenizer, TokenizerConfig

TEXT = "to be, or not to be: that is the question.\nwhether 'tis nobler\n我吃了\n"


@pytest.fixture(params=["char", "bpe"])
def model(request: pytest.FixtureRequest) -> LoadedGpt:
    tokenizer = Tokenizer.train(TokenizerConfig(kind=request.param, vocab_size=275), [TEXT])
    torch.manual_seed(0)
    shape = GptConfig(vocab_size=tokenizer.vocab_size, dim=8, ff_dim=16, num_heads=2, num_layers=1, max_len=5)
    return LoadedGpt(Gpt(shape), tokenizer, GenerationConfig(strategy="sample"))


@torch.no_grad()
def by_hand(model: LoadedGpt, text: str) -> list[float]:
    """What each token costs, window by window."""
    ids = [BOS_ID, *model.tokenizer.encode(text)]
    costs = []
    for start in range(0, len(ids) - 1, 5):
        window = ids[start : start + 6]
        logs = model.model(torch.tensor([window[:-1]]))[0].log_softmax(-1)
        costs += [-float(logs[place, answer]) for place, answer in enumerate(window[1:])]
    return costs


def test_every_token_is_asked_for_once(model: LoadedGpt, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8")
    found, costs = model.score(tmp_path / "a.txt"), by_hand(model, TEXT)
    assert found.tokens == len(costs)
    assert found.nll == pytest.approx(sum(costs), rel=1e-5)
    assert found.perplexity == pytest.approx(math.exp(sum(costs) / len(costs)), rel=1e-5)
    assert found.bits_per_byte == pytest.approx(sum(costs) / len(TEXT.encode()) / math.log(2), rel=1e-5)
    assert found.bits_per_character == pytest.approx(sum(costs) / len(TEXT) / math.log(2), rel=1e-5)
    assert (found.characters, found.bytes, found.unknown) == (len(TEXT), len(TEXT.encode()), 0)
    assert found.as_json()["perplexity_per_byte"] == pytest.approx(2**found.bits_per_byte)


def test_the_interval_is_that_of_windows(model: LoadedGpt, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8")
    costs = torch.tensor(by_hand(model, TEXT))
    found, mean = model.score(tmp_path / "a.txt"), costs.mean()
    squares = sum(float((window - mean).sum()) ** 2 for window in costs.split(5))
    assert found.error == pytest.approx(1.96 * math.sqrt(squares) / len(costs), rel=1e-4)


def test_a_single_window_has_no_interval(model: LoadedGpt, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("to b", encoding="utf-8")
    found = model.score(tmp_path / "a.txt")
    assert found.tokens <= 5
    assert found.error is None and found.as_json()["loss_error"] is None
    assert "±" not in _shown(found, []) and f"loss {found.loss:.4f}, {found.tokens} tokens" in _shown(found, [])


@torch.no_grad()
def test_nanogpts_estimate_is_the_mean_over_windows_that_begin_anywhere(model: LoadedGpt) -> None:
    ids = np.array(model.tokenizer.encode(TEXT * 3))
    found = estimate_like("nanogpt", model, TokenisedText(ids, len(TEXT) * 3, len(TEXT.encode()) * 3))
    stream, costs = [BOS_ID, *ids.tolist()], {}
    for start in range(len(ids) - 4):
        window = torch.tensor([stream[start : start + 6]])
        costs[start] = float(F.cross_entropy(model.model(window[:, :-1])[0], window[0, 1:]))
    starts = (hashed(Draw(0, 0), np.arange(240)) % np.uint64(len(ids) - 4)).tolist()
    assert len(set(starts)) > 20, "they begin anywhere"
    assert found.loss == pytest.approx(sum(costs[start] for start in starts) / 240, rel=1e-5)
    assert (found.windows, found.length) == (240, 5)
    assert abs(found.loss - sum(costs.values()) / len(costs)) < 2 * found.error


def test_unknown_characters_are_counted(tmp_path: Path, model: LoadedGpt) -> None:
    (tmp_path / "a.txt").write_text("to büü", encoding="utf-8")
    assert model.score(tmp_path / "a.txt").unknown == (2 if model.tokenizer.kind == "char" else 0)


def test_an_empty_file_is_refused(model: LoadedGpt, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"")
    with pytest.raises(DataError, match="is empty"):
        model.score(tmp_path / "a.txt")
