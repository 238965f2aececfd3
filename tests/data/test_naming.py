"""Names in a stored config lead to the data from any folder, and after a move."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from clearhead.config import build, to_toml
from clearhead.data.documents import DocumentConfig
from clearhead.data.labelled import LabelledConfig
from clearhead.data.naming import kept_settings, read_settings
from clearhead.data.pictures import PicturesConfig
from clearhead.data.sources import DataConfig, Part
from clearhead.data.windows import TextConfig
from clearhead.errors import MissingInputError


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that was made in `project`, with its data in `project/data`."""
    (tmp_path / "project" / "data").mkdir(parents=True)
    (tmp_path / "project" / "data" / "a.txt").write_text("here")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    directory = Path("runs/one")
    directory.mkdir(parents=True)
    data = TextConfig(text="data/a.txt")
    store(directory, data)
    return tmp_path / "project" / "runs" / "one"


def store(directory: Path, data: TextConfig) -> None:
    kept = to_toml(data.model_copy(update={"base": data.seen_from(directory)}))
    (directory / "config.toml").write_text("[data]\n" + kept)


def read(directory: Path) -> TextConfig:
    return build(TextConfig, read_settings(directory / "config.toml")["data"], "the config")


def test_a_config_names_its_folder_as_seen_from_itself(run: Path) -> None:
    assert 'base = "../.."' in (run / "config.toml").read_text()
    assert read(run).base is None, "here names mean what they meant"
    assert read(run).path("data/a.txt") == Path("data/a.txt")


def test_from_another_folder_the_data_are_found(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path / "elsewhere")
    data = read(Path("../project/runs/one"))
    assert data.text == "data/a.txt"
    assert data.path("data/a.txt").read_text() == "here"
    (tmp_path / "elsewhere" / "data").mkdir()
    (tmp_path / "elsewhere" / "data" / "a.txt").write_text("another")
    assert data.path("data/a.txt").read_text() == "here", "not a file that happens to have the same name"
    store(run, data)
    assert 'base = "../.."' in (run / "config.toml").read_text(), "a resumed run writes it down again"


def test_a_run_may_move_with_its_data(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / "project").rename(tmp_path / "moved")
    assert read(tmp_path / "moved" / "runs" / "one").path("data/a.txt").read_text() == "here"


def test_a_run_that_moved_alone_takes_no_other_file_and_says_what_to_do(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = tmp_path / "elsewhere" / "deep" / "one"
    shutil.copytree(run, alone)
    for folder in (tmp_path, tmp_path / "project"):
        monkeypatch.chdir(folder)
        with pytest.raises(
            MissingInputError,
            match=r"there is no .*/data/a\.txt, where the training data were: put data/a\.txt there, or set data\.base",
        ):
            read(alone).path("data/a.txt")
    stored = (alone / "config.toml").read_text()
    (alone / "config.toml").write_text(stored.replace('base = "../.."', f'base = "{tmp_path / "project"}"'))
    monkeypatch.chdir(tmp_path)
    assert read(alone).path("data/a.txt").read_text() == "here"


def test_a_copied_config_still_finds_them(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    to = tmp_path / "elsewhere" / "model"
    kept = kept_settings(run, to)
    assert 'base = "../../project"' in kept
    to.mkdir()
    (to / "config.toml").write_text(kept)
    monkeypatch.chdir(to)
    assert read(to).path("data/a.txt").read_text() == "here"
    assert kept_settings(tmp_path, to) == ""


@pytest.mark.parametrize(
    "data",
    [
        TextConfig(dataset="tinyshakespeare", text="input.txt"),
        DataConfig(kind="numbers"),
        LabelledConfig(train="/data/a.tsv"),
    ],
)
def test_sets_numbers_and_absolute_names_need_no_folder(data: TextConfig | DataConfig, tmp_path: Path) -> None:
    assert data.seen_from(tmp_path) is None


@pytest.mark.parametrize(
    ("data", "files"),
    [
        (DataConfig(source="a", target="b", validation_source="c", validation_target="d"), ["a", "b", "c", "d"]),
        (DataConfig(kind="parts", parts=[Part(tsv="a"), Part(tsv="b")]), ["a", "b"]),
        (DataConfig(kind="tsv", tsv="a", test_tsv="b"), ["a", "b"]),
        (DocumentConfig(train=["a", "b"], validation="c"), ["a", "b", "c"]),
        (LabelledConfig(train="a", test="b"), ["a", "b"]),
        (PicturesConfig(pictures="a", picture_labels="b"), ["a", "b"]),
    ],
)
def test_every_kind_of_data_tells_its_files(data: DataConfig, files: list[str], tmp_path: Path) -> None:
    assert data.files == files
    assert data.seen_from(tmp_path) is not None
