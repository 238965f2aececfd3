"""Files on the command line: what they mean for each kind of model, from the start, with a config, and later on."""

from __future__ import annotations

from pathlib import Path

import pytest

from clearhead.cli import run as command
from clearhead.cli.planning import KINDS, Request, changes_to, make_plan
from clearhead.errors import UsageError
from clearhead.run.settings import read_config, unset

SIZES = (
    "tokenizer.kind=char", "model.dim=8", "model.ff_dim=8", "model.num_heads=2", "model.num_layers=1", "train.warmup=1",
)  # fmt: skip
MEANT = {
    ("translator", "source"): ["data.kind", "data.source"],
    ("translator", "tsv"): ["data.kind", "data.tsv"],
    ("translator", "validation_tsv"): ["data.validation_tsv"],
    ("classifier", "tsv"): ["data.kind", "data.train"],
    ("classifier", "validation_folder"): ["data.kind", "data.validation"],
    ("bert", "text"): ["data.kind", "data.train"],
    ("gpt", "text"): ["data.text"],
    ("vit", "pictures"): ["data.pictures"],
}


def request(what: str, files: dict[str, str], *assignments: str) -> Request:
    return Request(what, files, None, list(assignments))


@pytest.mark.parametrize(("kind", "flag"), MEANT)
def test_a_flag_means_what_its_kind_of_model_takes_it_for(kind: str, flag: str) -> None:
    changes = request(kind, {flag: "x"}, "train.steps=3").changes(kind)
    assert [change.partition("=")[0] for change in changes] == [*MEANT[kind, flag], "train.steps"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_flag_of_a_kind_is_a_setting_of_its_data(kind: str) -> None:
    for flag in KINDS[kind].flags:
        names = [change.partition("=")[0].removeprefix("data.") for change in request(kind, {flag: "x"}).changes(kind)]
        assert names and set(names) <= type(unset(kind).data).model_fields.keys()


@pytest.mark.parametrize("what", ["classifier", "config.toml"])
def test_a_flag_of_another_kind_is_a_mistake_of_use_with_and_without_a_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.toml").write_text('model.kind = "classifier"\ndata.train = "a.tsv"\ntrain.steps = 1\n')
    with pytest.raises(UsageError, match="a classifier is not trained on --text: --tsv FILE"):
        make_plan(request(what, {"text": "x"}), lambda reading: None)
    data = make_plan(request("config.toml", {"csv": "b.csv"}), lambda reading: None).config.data.model_dump()
    assert (data["kind"], data["train"]) == ("csv", "b.csv")


def test_without_a_run_there_is_nothing_to_change(tmp_path: Path) -> None:
    assert changes_to(tmp_path, request("bert", {"text": "x"}, "train.steps=3")) == []


@pytest.mark.parametrize(("kind", "flag"), [("classifier", "tsv"), ("bert", "text")])
def test_a_run_goes_on_by_the_words_that_began_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str, flag: str
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [f"It was {'good' if number % 2 else 'bad'} {number}. So it was.\t{number % 2}" for number in range(40)]
    Path("a.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    Path("a.txt").write_text("".join(line.partition("\t")[0] + "\n" for line in lines))
    files = ("--tsv", "a.tsv") if flag == "tsv" else ("--text", "a.txt")
    words = ["train", kind, *files, "--out", "run", *(word for size in SIZES for word in ("--set", size))]
    assert command([*words, "--set", "train.steps=1"]) == 0
    begun = read_config(Path("run/config.toml"))
    assert command([*words, "--set", "train.steps=2", "--resume"]) == 0
    assert "resuming at step 1: 2 steps" in capsys.readouterr().err
    assert read_config(Path("run/config.toml")).data == begun.data


def test_a_recipe_is_found_beside_a_folder_of_its_name_unless_that_is_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "numbers").mkdir()
    assert make_plan(request("numbers", {}), lambda reading: None).config.out == "runs/numbers"
    (tmp_path / "numbers" / "config.toml").touch()
    with pytest.raises(UsageError, match="numbers is a directory: to go on with a run, add --resume"):
        make_plan(request("numbers", {}), lambda reading: None)
