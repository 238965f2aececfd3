"""`clearhead data check` for texts, labelled texts and pictures: as a person and as a program sees it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearhead.cli.data import app


def run(*words: object) -> None:
    app(["check", *map(str, words)], exit_on_error=False, result_action="return_value")


def report(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    run(*words, "--json")
    tree: dict[str, Any] = json.loads(capsys.readouterr().out)
    return tree


def test_a_text_is_told_line_by_line_and_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("one two, two.\n\n我们走。\none two, two.\n".encode() + b"bad \xff\nodd \x07 sign\n")
    found = report(capsys, "--text", path)
    assert (found["total"], found["kept"], found["unit"]) == (6, 3, "lines")
    assert found["dropped"] == {
        "empty": {"count": 1, "place": f"{path} line 2"},
        "not valid UTF-8": {"count": 1, "place": f"{path} line 5"},
        "the same as an earlier one": {"count": 1, "place": f"{path} line 4"},
    }
    assert found["lengths"]["longest"] == 13 and found["validation"] is None
    # one two ￭, two ￭. / 我 们 走 。 / odd sign
    assert (found["coverage"]["words"], found["coverage"]["different"]) == (11, 10)
    assert found["coverage"]["once"] == 9
    left_out = "left out 1 line (bad encoding, line 5), 1 line (control characters, line 6)"
    assert f"{path}: {left_out}" in found["notes"]
    assert any("34 characters to read from end to end" in note for note in found["notes"])


def test_a_person_sees_tables_and_what_a_vocabulary_covers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"w{number}" for number in range(1500)]
    (tmp_path / "a.txt").write_text("\n".join([*words, *(["often"] + [f"often {n}" for n in range(499)])]) + "\n")
    (tmp_path / "b.txt").write_text("often new\nw1\n")
    run("--text", tmp_path / "a.txt", "--validation-text", tmp_path / "b.txt")
    out, err = capsys.readouterr()
    rows = [line.split() for line in out.splitlines()]
    assert ["kept", "2,000", "100.0", "%"] in rows
    assert "2,499 words, 2,000 different, 1,999 of them only once" in out
    # 500 × often and 999 others of 2,499 words
    assert "a vocabulary would cover: 1,000 words 60.0 %" in out
    assert "33.3 % of the words to validate on do not occur in training" in out
    assert "validation: 1 of 2 lines also occur in training" in out
    assert all(line.startswith("note: ") for line in err.splitlines()) and "\x1b" not in out + err


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "folder"])
def test_labelled_texts_of_every_kind(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("good film", "pos"), ("bad film", "neg"), ("good film", "neg"), ("bad film", "neg"), ("", "pos")]
    path = tmp_path / f"data.{kind}"
    if kind == "folder":
        path = tmp_path / "data"
        for number, (text, label) in enumerate(rows):
            (path / label).mkdir(parents=True, exist_ok=True)
            (path / label / f"{number}.txt").write_text(text)
    elif kind == "jsonl":
        path.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows))
    else:
        mark = {"tsv": "\t", "csv": ","}[kind]
        path.write_text("".join(f"{text}{mark}{label}\n" for text, label in [("text", "label"), *rows]))
    found = report(capsys, "--labelled", path)
    assert (found["total"], found["kept"]) == (5, 3)
    assert found["labels"] == {"neg": 2, "pos": 1}
    assert {reason: entry["count"] for reason, entry in found["dropped"].items()} == {
        "empty": 1,
        "the same as an earlier one": 1,
    }
    assert "1 texts occur with more than one label" in found["notes"]
    run("--labelled", path)
    shown = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert ["neg", "2"] in shown and ["pos", "1"] in shown


def test_labels_that_cannot_be_learnt_are_told_and_not_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.tsv").write_text("label\tx\nneg\tone\nneg\ttwo\n")
    (tmp_path / "b.tsv").write_text("label\tx\npos\tone\n")
    found = report(
        capsys, "--labelled", tmp_path / "a.tsv", "--validation-labelled", tmp_path / "b.tsv", "--columns", "x,1"
    )
    assert any("all 2 texts have the label 'neg'" in note for note in found["notes"])
    assert found["validation"]["seen_before"] == 1
    assert any("'pos'" in note for note in found["validation"]["notes"])


def test_pictures_that_cannot_be_read_are_all_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = pytest.importorskip("PIL.Image")
    random = np.random.default_rng(0)
    for label in ("cats", "dogs"):
        (tmp_path / "photos" / label).mkdir(parents=True)
    one, two, wide = (random.integers(0, 256, size, dtype=np.uint8) for size in ((4, 4), (4, 4, 3), (4, 6)))
    for name, pixels in (("cats/1.png", one), ("cats/2.png", two), ("dogs/3.bmp", one), ("dogs/4.png", wide)):
        image.fromarray(pixels).save(tmp_path / "photos" / name)
    (tmp_path / "photos" / "dogs" / "5.png").write_bytes(b"no picture")
    (tmp_path / "photos" / "dogs" / "readme.md").write_text("x")
    found = report(capsys, "--pictures", tmp_path / "photos", "--validation-pictures", tmp_path / "photos")
    assert (found["total"], found["kept"], found["labels"]) == (5, 4, {"cats": 2, "dogs": 2})
    bad = tmp_path / "photos" / "dogs" / "5.png"
    assert found["dropped"] == {"cannot be read": {"count": 1, "place": str(bad)}}
    notes = "\n".join(found["notes"])
    assert "3 sizes: 4 x 4, grey (2), 4 x 4, coloured (1), 4 x 6, grey (1)" in notes
    assert f"1 are, pixel by pixel, the same as an earlier one, first {tmp_path}/photos/dogs/3.bmp" in notes
    assert "1 pictures occur with more than one label" in notes
    assert f"{bad} is not a picture that can be read" in notes and "readme.md" in notes
    assert found["validation"]["seen_before"] == 4


def test_checking_texts_never_imports_torch(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    script = (
        "import sys; from clearhead.cli.data import app;"
        "app(['check', '--text', sys.argv[1]], result_action='return_value'); assert 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "a.txt")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
