"""A model in half the space says the same, and in a quarter of it nearly, whoever reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.export.making import made, made_bert, made_classifier, made_gpt, made_vit, saved

from clearhead.cli import run
from clearhead.cli.info import describe
from clearhead.data.numbers import spell
from clearhead.errors import ConfigError, MissingInputError, StorageError
from clearhead.models import MODELS
from clearhead.run.built_in import NAME, default_model
from clearhead.run.comparing import TRIALS
from clearhead.run.packing import pack
from clearhead.run.using import load

pytestmark = pytest.mark.usefixtures("unchecked")
MADE: dict[str, Callable[[], Any]] = {
    "translator": lambda: made(tie="all"),
    "gpt": made_gpt,
    "classifier": lambda: made_classifier(reduce={"kind": "prune", "threshold": 0.01}),
    "bert": made_bert,
    "vit": made_vit,
}
NUMBERS = ["zwei", "einundvierzig", "neunundneunzig", "hundertsieben"]


def test_half_the_space_and_the_same_words(trained: Path, tmp_path: Path) -> None:
    size = pack(trained, tmp_path / "small")
    weights = [path / "model.safetensors" for path in (trained / "model", tmp_path / "small")]
    assert weights[1].stat().st_size < 0.6 * weights[0].stat().st_size
    assert size == sum(path.stat().st_size for path in (tmp_path / "small").iterdir())
    assert load(tmp_path / "small").translate(NUMBERS) == load(trained).translate(NUMBERS)
    card = (tmp_path / "small" / "README.md").read_text(encoding="utf-8")
    assert card.startswith((trained / "model" / "README.md").read_text(encoding="utf-8").rstrip("\n"))
    assert "stored in float16" in card
    kept = (tmp_path / "small" / "training_config.toml").read_text(encoding="utf-8")
    assert kept == (trained / "model" / "training_config.toml").read_text(encoding="utf-8")


# In int8 -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def in_int8(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The translator that has learnt a little, in int8."""
    out = tmp_path_factory.mktemp("packed") / "int8"
    pack(trained, out, "int8")
    return out


def test_in_int8_a_translator_still_says_what_it_has_learnt(trained: Path, in_int8: Path) -> None:
    whole, small = load(trained), load(in_int8)
    pairs = {spell(number, "de"): spell(number, "en") for number in range(200)}
    known = [text for text, said in zip(pairs, whole.translate(list(pairs)), strict=True) if said == pairs[text]]
    kept = sum(said == pairs[text] for text, said in zip(known, small.translate(known), strict=True))
    assert len(known) > 20 and kept >= 0.9 * len(known), "rounding moves only what was near the edge"
    card = (in_int8 / "README.md").read_text(encoding="utf-8")
    assert "stored in int8 (matrices, with a float32 scale for each row; the rest in float16) and computed" in card


@pytest.fixture(scope="module", params=MODELS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model of each kind with random weights, and the same in int8."""
    root = tmp_path_factory.mktemp(request.param)
    whole = saved(MADE[request.param](), root / "whole")
    pack(whole, root / "small", "int8")
    return whole, root / "small"


def test_in_int8_every_kind_scores_nearly_the_same(both: tuple[Path, Path]) -> None:
    """No score is off by more than a tenth of the size that scores have."""
    whole, small = map(load, both)
    trial = TRIALS[whole.model.config.kind]
    original, copy, texts = trial.speaker(whole), trial.speaker(small), trial.made_up(whole)[:4]
    for text, answer in zip(texts, original.greedy(texts), strict=True):
        scores = original.logits(text, answer)
        off = np.abs(copy.logits(text, answer) - scores).max()
        assert 0 < off < 0.1 * np.sqrt(np.square(scores).mean())


def test_info_tells_the_format_and_counts_no_scales(both: tuple[Path, Path]) -> None:
    whole, small = map(describe, both)
    assert (small["dtype"], small["parameters"]) == ("int8", whole["parameters"])
    assert small["weights_bytes"] < 0.5 * whole["weights_bytes"]


WORDS = {
    "translate": "translate --model {model} zwei",
    "score": "score --model {model} --split test",
    "inspect": "inspect {model} zwei --out {tmp}/page.html",
    "prune": "inspect {model} --prune encoder.0.self.1 --out {tmp}/pruned",
    "export": "export {model} --to ctranslate2 --out {tmp}/exported",
    "pack": "pack {model} --out {tmp}/half",
    "info": "info {model}",
    "train": "train {tmp}/config.toml --set init={model} --set train.steps=1 --out {tmp}/run",
}


@pytest.mark.parametrize("verb", WORDS)
def test_every_verb_reads_int8(verb: str, trained: Path, in_int8: Path, tmp_path: Path) -> None:
    if verb == "export":
        pytest.importorskip("ctranslate2", reason="needs CTranslate2: pip install 'clearhead[export]'")
    (tmp_path / "config.toml").write_text((trained / "config.toml").read_text(encoding="utf-8"), encoding="utf-8")
    assert run(WORDS[verb].format(model=in_int8, tmp=tmp_path).split()) == 0


def test_a_server_reads_int8(in_int8: Path) -> None:
    pytest.importorskip("fastapi", reason="needs fastapi: pip install 'clearhead[serve]'")
    from clearhead.serve.opening import open_models

    (served,) = open_models([in_int8], engine="torch", device="cpu").models
    assert served.parameters == describe(in_int8)["parameters"]


# Refused, and by default ---------------------------------------------------------------------------------------------


def test_an_unknown_format_writes_nothing(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown number format 'int3'"):
        pack(trained, tmp_path / "small", "int3")
    assert not (tmp_path / "small").exists()


def test_the_built_in_model_is_used_when_none_is_named(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLEARHEAD_MODEL", raising=False)
    monkeypatch.setattr("clearhead.run.built_in.assets", lambda: tmp_path)
    with pytest.raises(MissingInputError) as error:
        load()
    assert str(error.value) == (
        f"this copy of clearhead has no built-in model ({tmp_path / NAME} is missing): name one of your own or "
        "set CLEARHEAD_MODEL; clearhead train makes one"
    )
    pack(trained, tmp_path / NAME)
    assert load().translate(NUMBERS) == load(trained).translate(NUMBERS)
    weights = bytearray((tmp_path / NAME / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (tmp_path / NAME / "model.safetensors").write_bytes(weights)
    with pytest.raises(StorageError, match=r"model\.safetensors is damaged"):
        load()


def test_a_users_own_default_comes_first(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARHEAD_MODEL", str(trained))
    assert default_model() == trained
