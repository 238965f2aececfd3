"""The decoding contest: everybody has the same weights, and the table says what was measured."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from clearhead.bench import decoding
from clearhead.bench.decoding import ONE_PROCESS, PEER, TUTORIAL, DecodingFigures, Row
from clearhead.bench.twins import hugging_face
from clearhead.cli import run as command
from clearhead.errors import UnavailableError
from clearhead.models.translator import Translator, TranslatorConfig

SHAPE = {"dim": 16, "ff_dim": 32, "num_heads": 2, "encoder_layers": 2, "decoder_layers": 1, "max_len": 24}


def translator(**changes: object) -> Translator:
    torch.manual_seed(1)
    config = {"source_vocab_size": 40, "target_vocab_size": 40, "tie": "all", **SHAPE, **changes}
    return Translator(TranslatorConfig(**config)).eval()


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("residual", ["pre", "post"])
def test_a_peer_with_our_weights_says_what_we_say(residual: str) -> None:
    if not find_spec("transformers"):
        pytest.skip("transformers is not installed")
    model = translator(residual=residual)
    peer = hugging_face(model)
    source, target = torch.randint(4, 40, (2, 7)), torch.randint(4, 40, (2, 5))
    with torch.inference_mode():
        theirs = peer(input_ids=source, attention_mask=torch.ones_like(source), decoder_input_ids=target).logits
        torch.testing.assert_close(theirs, model(source, target), atol=1e-4, rtol=1e-4)


def test_a_model_that_no_peer_has_is_refused_by_name() -> None:
    if not find_spec("transformers"):
        pytest.skip("transformers is not installed")
    with pytest.raises(UnavailableError, match="positions"):
        hugging_face(translator(positions="rotary"))


def test_ratios_are_to_the_peer_and_what_was_not_measured_is_a_dash() -> None:
    rows = (
        Row(PEER, {1: 10.0, 5: 4.0}, {1: 30.0, 5: 31.0}, {1: ["a", "b"], 5: []}, 2**20),
        Row(ONE_PROCESS, {1: 50.0, 5: 12.0}, {1: 30.0, 5: 31.5}, {1: ["a", "c"], 5: []}, 2**21),
        Row(TUTORIAL, {1: 0.5}, {}, {1: ["a"]}, 2**20),
    )
    figures = DecodingFigures("a shape", 2, 3, 2, 5, rows, ())
    _, table = figures.table()
    assert table[1] == (ONE_PROCESS, "50.0", "5.00", "12.0", "3.00", "30.0, 31.5", "2")
    assert table[2] == (TUTORIAL, "0.5", "0.05", "–", "–", "–", "1")
    assert "equals ours in 1 " in figures.remark()


def test_a_contest_goes_on_without_a_peer_that_has_no_such_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not find_spec("transformers"):
        pytest.skip("transformers is not installed")
    told: list[str] = []
    for positions, missing in (("sinusoidal", []), ("rotary", [PEER])):
        loaded = SimpleNamespace(model=translator(positions=positions))
        monkeypatch.setattr(decoding, "load_as", lambda *arguments, loaded=loaded: loaded)
        assert list(decoding._without_peer(tmp_path, told.append)) == missing
    (said,) = told
    assert said.startswith(f"{PEER} does not take part: Marian and Pegasus have no such model: its positions")


@pytest.mark.parametrize("words", [("decode", "m", "--sentences", "0"), ("decode", "m", "--rounds=-1")])
def test_numbers_that_make_no_contest_are_refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["bench", *words]) == 2
    assert "Must be >= 1" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--merge=-1",), ("--prune", "nan"), ("--prune=-0.5",)])
def test_tokens_become_fewer_by_numbers_from_0(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["bench", "reduce", "m", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1
