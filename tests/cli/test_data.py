"""`clearhead data check` as a person or a program sees it."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from clearhead.cli.data import app, check
from clearhead.data.limits import Limits
from clearhead.errors import ConfigError, DataError, MissingInputError, UsageError


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    contents = {
        "source": "eins\r\nzwei\n\ndrei\n",
        "target": "one\ntwo\nx\nthree\n",
        "validation_source": "vier\neins\n",
        "validation_target": "four\none\n",
        "tsv": "1\tone\teins\n2\ttwo\tzwei\n3\n",
    }
    for name, text in contents.items():
        (tmp_path / name).write_bytes(text.encode())
    return {name: str(tmp_path / name) for name in contents}


def run(*words: str) -> None:
    app(["check", *words], exit_on_error=False, result_action="return_value")


def as_flags(files: dict[str, str], *names: str) -> list[str]:
    return [word for name in names for word in (f"--{name.replace('_', '-')}", files[name])]


def test_a_person_sees_counts_lengths_and_leakage(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    run(*as_flags(files, "source", "target", "validation_source", "validation_target"))
    out, err = capsys.readouterr()
    assert f"{files['source']} + {files['target']}" in out
    rows = [line.split() for line in out.splitlines()]
    assert ["kept", "3", "75.0", "%"] in rows
    assert ["empty", "side", "1", "25.0", "%", "line", "3"] in rows
    assert ["1–5", "3", "█" * 24] in rows
    assert "1 of 2 pairs in" in out and "also occur in training" in out
    assert err == f"note: {files['source']}: CRLF at the end of 1 of 4 lines; the CR was removed\n"
    assert "\x1b" not in out + err


def test_a_program_sees_one_json_object(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    run(*as_flags(files, "source", "target", "validation_source", "validation_target"), "--json")
    report = json.loads(capsys.readouterr().out)
    assert (report["total"], report["kept"], report["dropped"]["empty side"]["first_line"]) == (4, 3, 3)
    assert report["leakage"]["same_pair"] == 1
    assert report["validation"]["kept"] == 2


def test_tsv_columns_and_limits_are_taken(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        "1\tone\teins",
        "2",
        "3\tno\tein ziemlich langes Nein",
        f"4\tlong{'g' * 40}\tlang{'g' * 40}",
        "5\ttwo\tzwei",
    ]
    Path(files["tsv"]).write_text("\n".join(rows))
    run(*as_flags(files, "tsv"), "--columns", "3,2", "--max-chars", "40", "--max-ratio", "2", "--json")
    report = json.loads(capsys.readouterr().out)
    lines = {reason: entry["first_line"] for reason, entry in report["dropped"].items()}
    assert lines == {"ratio": 3, "too long": 4, "missing column": 2}
    assert report["source_lengths"]["longest"] == 4


def test_without_validation_there_is_no_leakage(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    run(*as_flags(files, "source", "target"), "--json")
    report = json.loads(capsys.readouterr().out)
    assert report["leakage"] is None and report["validation"] is None


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ([], UsageError, "name one kind of data to check: --source FILE --target FILE, --tsv FILE, --text FILE,"),
        (["--text", "x", "--tsv", "y"], UsageError, "name one kind of data to check"),
        (["--text", "nowhere.txt"], MissingInputError, "there is no file nowhere.txt"),
        (
            ["--labelled", "x.tsv", "--columns", "a"],
            UsageError,
            "--columns takes the columns of text and label such as",
        ),
        (["--pictures", "nowhere"], MissingInputError, "there is no file or folder nowhere"),
        (["--tsv", "x", "--columns", "1"], UsageError, "--columns takes two column numbers such as 1,2, not '1'"),
        (["--tsv", "x", "--columns", "a,b"], UsageError, "--columns takes two column numbers such as 1,2, not 'a,b'"),
        (["--tsv", "x", "--columns", "1,1"], ConfigError, "the command line: 'columns'"),
        (["--tsv", "x", "--source", "y"], ConfigError, "'source' belongs to kind 'files', but the kind is 'tsv'"),
        (["--source", "x"], ConfigError, "data.source is x, but data.target is missing"),
        (["--tsv", "x", "--max-chars", "0"], ConfigError, "'limits.max_chars' = 0"),
        (["--text", "x", "--validation-tsv", "y"], UsageError, "--text has no use for --validation-tsv"),
        (["--text", "x", "--columns", "1,2"], UsageError, "--text has no use for --columns: leave it out"),
        (["--text", "x", "--picture-labels", "y"], UsageError, "--text has no use for --picture-labels"),
        (["--text", "x", "--max-chars", "9"], UsageError, "--text has no use for --max-chars"),
        (["--labelled", "x.tsv", "--max-ratio", "9"], UsageError, "--labelled has no use for --max-ratio"),
        (["--pictures", "x", "--validation-text", "y"], UsageError, "--pictures has no use for --validation"),
        (
            ["--source", "x", "--target", "y", "--validation-text", "z"],
            UsageError,
            "--source with --target has no use for --validation-text",
        ),
        (
            ["--source", "x", "--target", "y", "--columns", "2,1"],
            UsageError,
            "has no use for --columns",
        ),
        (["--tsv", "nowhere.tsv"], MissingInputError, "there is no file nowhere.tsv"),
        (["--source", "nowhere.de", "--target", "t"], MissingInputError, "there is no file nowhere.de"),
    ],
)
def test_mistakes_are_explained(words: list[str], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        run(*words)
    assert message in str(caught.value)


def test_unusable_data_is_an_error(files: dict[str, str]) -> None:
    with pytest.raises(DataError, match=r"has 4 lines but .* has 2"):
        run("--source", files["source"], "--target", files["validation_target"])


def test_the_defaults_shown_are_the_real_ones() -> None:
    parameters = inspect.signature(check).parameters
    for name in ("max_chars", "max_ratio"):
        assert parameters[name].default == Limits.model_fields[name].default


def test_help_needs_neither_torch_nor_numpy() -> None:
    script = (
        "import sys; from clearhead.cli.data import app; app(['check', '--help'], result_action='return_value');"
        "assert not {'torch', 'numpy', 'pydantic'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--validation-source" in done.stdout


def test_checking_data_never_imports_torch(files: dict[str, str]) -> None:
    script = (
        "import sys; from clearhead.cli.data import app;"
        "app(['check', *sys.argv[1:]], result_action='return_value'); assert 'torch' not in sys.modules"
    )
    words = as_flags(files, "source", "target")
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "kept" in done.stdout


def test_sets_are_listed_with_where_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from clearhead.data.sets import SETS

    monkeypatch.setenv("CLEARHEAD_DATA", str(tmp_path))
    folder = tmp_path / "tinyshakespeare"
    folder.mkdir()
    (folder / "input.txt").write_text("x" * SETS["tinyshakespeare"].bytes, encoding="utf-8")
    app(["list"], exit_on_error=False, result_action="return_value")
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert rows.keys() == SETS.keys()
    assert rows["tinyshakespeare"].split()[1] == "here" and rows["multi30k"].split()[1] == "absent"
    app(["list", "--json"], exit_on_error=False, result_action="return_value")
    listed = json.loads(capsys.readouterr().out)
    assert listed["tinyshakespeare"]["is_here"] and listed["multi30k"]["bytes"] == SETS["multi30k"].bytes


def test_a_set_is_fetched_and_its_folder_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(name: str, progress: Callable[[str, int, int | None], None]) -> Path:
        progress("input.txt", 1_000, 1_115_394)
        progress("input.txt", 1_115_394, None)
        return tmp_path / name

    monkeypatch.setattr("clearhead.data.sets.fetch", fetch)
    app(["fetch", "tinyshakespeare"], exit_on_error=False, result_action="return_value")
    out, err = capsys.readouterr()
    assert (out, err) == (f"{tmp_path}/tinyshakespeare\n", "")
