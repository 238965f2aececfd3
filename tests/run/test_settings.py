"""Where a configuration comes from, and who has the last word."""

from __future__ import annotations

from pathlib import Path

import pytest

from clearhead.config import to_toml
from clearhead.errors import ConfigError, MissingInputError
from clearhead.run.settings import find_recipe, read_config, recipes, resolve

TREE = {"data": {"kind": "numbers"}, "train": {"steps": 5, "lr": 0.1}}


@pytest.mark.parametrize("name", recipes())
def test_every_recipe_is_a_whole_config_with_a_home_of_its_own(name: str) -> None:
    config = read_config(find_recipe(name))
    assert config.out == f"runs/{name}"
    assert find_recipe(name).read_text(encoding="utf-8").startswith("# "), "it says what to expect"


def test_a_config_survives_being_written_and_read(tmp_path: Path) -> None:
    config = resolve({**TREE, "out": "a 'quoted' \"path\"", "model": {"num_kv_heads": 1, "window": 3}})
    (tmp_path / "c.toml").write_text(to_toml(config), encoding="utf-8")
    assert read_config(tmp_path / "c.toml") == config


def test_flags_beat_the_environment_and_the_environment_beats_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve(TREE).train.lr == 0.1
    monkeypatch.setenv("CLEARHEAD_TRAIN__LR", "0.2")
    assert resolve(TREE).train.lr == 0.2
    assert resolve(TREE, ["train.lr=0.3"]).train.lr == 0.3


def test_a_mistake_in_a_file_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('[data]\nkind = "numbers"\n[train]\nstep = 5\n')
    with pytest.raises(ConfigError) as error:
        read_config(tmp_path / "c.toml")
    assert "unknown key 'train.step', did you mean 'train.steps'?" in str(error.value)
    assert str(error.value).startswith(f"{tmp_path / 'c.toml'}: ")


def test_a_run_without_an_end_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"say how long to train: set train\.steps or train\.epochs"):
        resolve({"data": {"kind": "numbers"}, "train": {}})


@pytest.mark.parametrize(
    ("settings", "needed"), [({"average": 4}, "last"), ({"average": 2, "average_of": "best"}, "best")]
)
def test_averaging_more_than_is_kept_is_refused(settings: dict[str, object], needed: str) -> None:
    with pytest.raises(ConfigError) as error:
        resolve({"data": {"kind": "numbers"}, "train": {"steps": 5, **settings}})
    message = f"averaging {settings['average']} checkpoints needs train.keep_{needed} to be as many"
    assert message in str(error.value)


def test_a_path_that_is_no_recipe_is_met_with_all_there_are() -> None:
    with pytest.raises(MissingInputError) as error:
        find_recipe("zzz")
    assert str(error.value) == f"there is no recipe or config file 'zzz', choose from: {', '.join(sorted(recipes()))}"


def test_a_bert_is_not_asked_to_agree_with_itself() -> None:
    tree = {"data": {"train": "a.txt"}, "model": {"kind": "bert"}, "train": {"steps": 5}}
    assert resolve(tree).train.agreement == 0
    with pytest.raises(ConfigError, match=r"reads each batch once, so nothing can agree: leave out train\.agreement"):
        resolve(tree, ["train.agreement=3.0"])


def test_an_optimizer_that_needs_whole_matrices_is_not_given_parts_of_them() -> None:
    with pytest.raises(ConfigError, match="muon needs whole matrices"):
        resolve(TREE, ["train.optimizer='muon'", "train.sharding='full'"])
