"""What cannot be scored is refused before a model has done any work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clearhead.cli import run
from clearhead.cli.judging import score_classifier, score_pictures
from clearhead.cli.perplexity import score_text
from clearhead.errors import ConfigError, MissingInputError
from clearhead.run.judging import ToJudge


def at_work(*_: Any, **__: Any) -> None:
    pytest.fail("the model was set to work already")


@pytest.fixture
def translator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words that score a translator on two pairs, which it is not to translate."""
    monkeypatch.setattr("clearhead.cli.score._kind_of", lambda model: "translator")
    monkeypatch.setattr("clearhead.run.engines.load_translator", lambda *_, **__: object())
    monkeypatch.setattr("clearhead.run.scoring.translated", at_work)
    (tmp_path / "test.tsv").write_text("eins\tone\nzwei\ttwo\n", encoding="utf-8")
    (tmp_path / "short.txt").write_text("one\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return ["score", "--model", str(tmp_path), "--tsv", "test.tsv"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--like", "bentrevet"), 78, "unknown protocol 'bentrevet': did you mean 'bentrevett'?"),
        (("--against", "nosuch.txt"), 66, "cannot read nosuch.txt: No such file or directory"),
        (("--against", "short.txt"), 65, "short.txt has 1 lines, and there are 2 texts: one each is needed"),
        (("--save", "."), 2, "--save . is a directory: name a file in it"),
    ],
)
def test_nothing_is_translated_in_vain(
    translator: list[str], words: tuple[str, ...], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*translator, *words]) == code
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"clearhead: {message}\n")


@pytest.mark.parametrize("flag", ["--min-bleu", "--min-accuracy"])
@pytest.mark.parametrize("value", ["nan", "-1"])
def test_a_gate_is_a_number_from_0(
    translator: list[str], flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*translator, f"{flag}={value}"]) == 2
    said = capsys.readouterr().err
    assert f"for {flag}. Must be >= 0" in said and said.count("\n") == 1


def test_translations_made_earlier_are_compared_line_by_line(
    translator: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "two.txt").write_text("one\ntwo\n", encoding="utf-8")
    words = ["score", "--hypotheses", "two.txt", "--target", "two.txt", "--against"]
    assert run([*words, "short.txt"]) == 65
    assert "short.txt has 1 lines, and there are 2 texts" in capsys.readouterr().err
    assert run([*words, "two.txt"]) == 0
    assert "against the other" in capsys.readouterr().out


def test_an_unknown_protocol_of_language_models_is_named_before_the_model_is_opened(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'nanogpt'"):
        score_text(tmp_path / "none", None, None, {}, like=["nanogtp"], as_json=False, device="cpu")


def open_one_only(path: Path, **_: Any) -> object:
    if path.name == "none":
        raise MissingInputError("there is no model here")
    return object()


def test_a_classifier_to_compare_with_is_opened_before_any_text_is_classified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clearhead.run.engines.load_text_classifier", open_one_only)
    monkeypatch.setattr("clearhead.run.judging.texts_to_judge", lambda *_: ToJudge(["good"], [0], ["pos"], []))
    monkeypatch.setattr("clearhead.run.judging.judged", at_work)
    with pytest.raises(MissingInputError, match="there is no model here"):
        score_classifier(
            tmp_path, {}, "test", None, {}, against=tmp_path / "none", png=None, save=None, baseline=False,
            min_accuracy=None, as_json=False, device="cpu",
        )  # fmt: skip


def test_a_vit_to_compare_with_is_opened_before_any_picture_is_classified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clearhead.run.engines.load_picture_classifier", open_one_only)
    monkeypatch.setattr("clearhead.run.seeing.pictures_to_score", lambda *_: [])
    monkeypatch.setattr("clearhead.run.seeing.judged", at_work)
    with pytest.raises(MissingInputError, match="there is no model here"):
        score_pictures(
            tmp_path, None, "test", None, {}, against=tmp_path / "none", png=None, save=None, min_accuracy=None,
            as_json=False, device="cpu",
        )  # fmt: skip
