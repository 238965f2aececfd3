"""Configuration: every mistake names the key and the nearest valid one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from clearhead.config import describe, override, read_toml, to_toml
from clearhead.errors import ConfigError, MissingInputError
from clearhead.run.settings import RunConfig, find_recipe, from_environment, read_config, recipes, resolve

SMALLEST: dict[str, Any] = {"data": {"kind": "numbers"}, "train": {"steps": 3}}


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"train": {"steps": 3, "learning_rat": 1.0}}, r"unknown key 'train.learning_rat'"),
        ({"train": {"steps": 3, "warm_up": 5}}, r"unknown key 'train.warm_up', did you mean 'train.warmup'\?"),
        ({"trian": {"steps": 3}}, r"unknown key 'trian', did you mean 'train'\?"),
        ({"train": {"steps": "many"}}, r"'train.steps' = 'many': .*integer"),
        ({"train": {"steps": -1}}, r"'train.steps' = -1: .*greater than or equal to 1"),
        ({"train": {"epochs": math.inf}}, r"'train.epochs' = inf: input should be a finite number"),
        ({"train": {"clip": math.nan}}, r"'train.clip' = nan: input should be a finite number"),
        ({"train": {"seed": 2**63}}, r"'train.seed' = 9223372036854775808: .*less than 9223372036854775808"),
        ({"train": {"steps": 3, "schedule": "cosin"}}, r"unknown schedule, did you mean 'cosine'\?"),
        ({"train": {"steps": 3}, "out": "runs/\udce9t\udce9"}, r"'out' = 'runs/\\udce9t\\udce9': not valid UTF-8"),
        ({"train": {"steps": 3}, "model": {"norm": "leyer"}}, r"unknown norm, did you mean 'layer'\?"),
        (
            {"train": {"steps": 3}, "data": {"limits": {"max_char": 5}}},
            r"'data.limits.max_char', did you mean 'data.limits.max_chars'",
        ),
        ({"train": {}}, r"say how long to train: set train.steps or train.epochs"),
        ({"train": {"steps": 3, "average": 9}}, r"averaging 9 checkpoints needs train.keep_last"),
        ({}, r"'train' is missing"),
    ],
)
def test_a_mistake_says_where_and_what(tree: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve({"data": {"kind": "numbers"}, **tree})


def test_all_mistakes_come_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve({"data": {"kind": "numbers"}, "train": {"steps": 0, "lr": -1.0, "foo": 1}})
    assert all(key in str(caught.value) for key in ("train.steps", "train.lr", "train.foo"))
    assert "\n" not in str(caught.value)


def test_flags_beat_the_environment_which_beats_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.toml"
    path.write_text('[data]\nkind = "numbers"\n[train]\nsteps = 1\nlr = 0.1\nwarmup = 1\n', encoding="utf-8")
    monkeypatch.setenv("CLEARHEAD_TRAIN__LR", "0.2")
    monkeypatch.setenv("CLEARHEAD_TRAIN__WARMUP", "2")
    config = read_config(path, ["train.warmup=3"])
    assert (config.train.steps, config.train.lr, config.train.warmup) == (1, 0.2, 3)


def test_only_variables_with_a_section_are_settings() -> None:
    assert from_environment({"CLEARHEAD_DATA": "/x", "CLEARHEAD_CACHE": "/y"}) == []


def test_overriding_leaves_the_original_alone() -> None:
    tree = {"data": {"limits": {"max_chars": 1}}}
    assert override(tree, ["data.limits.max_chars=2"]) == {"data": {"limits": {"max_chars": 2}}}
    assert tree == {"data": {"limits": {"max_chars": 1}}}


def test_one_of_several_tables_is_changed_by_its_number() -> None:
    tree = {"data": {"parts": [{"repeat": 1}, {"repeat": 1}]}}
    assert override(tree, ["data.parts.1.repeat=3"]) == {"data": {"parts": [{"repeat": 1}, {"repeat": 3}]}}
    assert override(tree, ["data.parts.0=x"]) == {"data": {"parts": ["x", {"repeat": 1}]}}
    for key in ("data.parts.2.repeat", "data.parts.x.repeat", "data.parts.repeat", "data.parts.2"):
        wanted = "is none of the 2 entries of a list, counted from 0: put the number of one in its place or before it"
        with pytest.raises(ConfigError, match=wanted):
            override(tree, [f"{key}=3"])


def test_a_value_in_a_list_is_changed_by_its_number_and_is_no_section() -> None:
    assert override({"data": {"columns": [1, 2]}}, ["data.columns.1=3"]) == {"data": {"columns": [1, 3]}}
    with pytest.raises(ConfigError, match=r"'0' in 'data\.columns\.0\.x' is a value, not a section"):
        override({"data": {"columns": [1, 2]}}, ["data.columns.0.x=3"])


@pytest.mark.parametrize("text", ["train.lr", "=3", "train"])
def test_an_assignment_without_key_or_value_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--set takes section.key=value"):
        override({}, [text])


def test_what_is_written_is_read_back_the_same(tmp_path: Path) -> None:
    config = resolve(SMALLEST)
    path = tmp_path / "config.toml"
    path.write_text(to_toml(config), encoding="utf-8")
    assert resolve(read_toml(path)) == config


@pytest.mark.parametrize(
    ("content", "error"), [(b"a = ", "not valid TOML"), (b"\xff\xfe", "not valid TOML"), (None, "no config file")]
)
def test_a_broken_or_absent_file_gets_one_line(tmp_path: Path, content: bytes | None, error: str) -> None:
    path = tmp_path / "c.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises((ConfigError, MissingInputError), match=error):
        read_toml(path)


@pytest.mark.parametrize("name", recipes())
def test_every_recipe_is_valid(name: str) -> None:
    assert read_config(find_recipe(name)).out == f"runs/{name}"


def test_an_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(MissingInputError, match=r"'nubmers', did you mean 'numbers'\?"):
        find_recipe("nubmers")


def test_every_setting_is_documented() -> None:
    assert [key for key, _, text in describe(RunConfig) if not text] == []
