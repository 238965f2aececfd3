"""A model in half the space says the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from clearhead.errors import ConfigError, MissingInputError, StorageError
from clearhead.run.built_in import NAME, default_model
from clearhead.run.packing import pack
from clearhead.run.using import load

pytestmark = pytest.mark.usefixtures("unchecked")
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
