"""A trained model goes out to another engine only with proof, and is used there without torch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import clearhead
from clearhead.cli import run
from clearhead.data.numbers import spell
from clearhead.engines.directory import FILES
from clearhead.engines.opening import ENGINES
from clearhead.engines.texts import ExportedTranslator
from clearhead.errors import (
    ConfigError,
    MissingInputError,
    ParityError,
    StorageError,
    UnavailableError,
    UsageError,
    WouldOverwriteError,
)
from clearhead.export import targets
from clearhead.export.targets import TARGETS
from clearhead.export.verify import EXACT, QUANTISED, WORDS, Parity, Side
from clearhead.models import MODELS
from clearhead.run.averaging import average_run
from clearhead.run.comparing import TRIALS
from clearhead.run.engines import ENGINE_NAMES, load_translator
from clearhead.run.exporting import export, made_up_texts
from clearhead.run.packing import pack
from clearhead.run.surgery import prune
from clearhead.run.translating import LoadedTranslator
from clearhead.run.trial_data import DATA
from clearhead.storage import read_json
from clearhead.text.tokenizer import TokenizerPair

pytest.importorskip("ctranslate2", reason="needs CTranslate2: pip install 'clearhead[export]'")
pytestmark = pytest.mark.usefixtures("unchecked")

NUMBERS = [spell(number, "de") for number in (2, 41, 99, 107, 120, 133)]
PAIRS = [(spell(number, "de"), spell(number, "en")) for number in range(20, 60)]


@pytest.fixture(scope="module")
def small(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained model in CTranslate2."""
    out = tmp_path_factory.mktemp("exported") / "model"
    export(trained, "ctranslate2", out)
    return out


def test_an_exported_model_says_the_same_and_brings_its_proof(trained: Path, small: Path) -> None:
    original, copy = clearhead.load(trained, "cpu"), clearhead.load(small)
    assert isinstance(copy, ExportedTranslator)
    assert copy.translate(NUMBERS) == original.translate(NUMBERS)
    assert {path.name for path in small.iterdir()} == {
        "export.json", "model.bin", "config.json", "shared_vocabulary.json", "tokenizer.json", "tokenizer_config.json",
        "generation_config.json", "parity.json", "README.md", "training_config.toml", "SHA256SUMS",
    }  # fmt: skip
    parity = read_json(small / "parity.json")
    assert parity["logit_difference"] < 1e-4
    assert (parity["identical"], parity["agreement"], parity["engine"]) == (1.0, 1.0, "ctranslate2")
    assert parity["exported"]["size"] == (small / "model.bin").stat().st_size
    assert min(parity["original"]["per_second"], parity["exported"]["per_second"]) > 0
    card = (small / "README.md").read_text(encoding="utf-8")
    assert card.startswith((trained / "model" / "README.md").read_text(encoding="utf-8").rstrip("\n"))
    assert "## Export" in card and "| same greedy output |  | 100.0 % of 64 texts |" in card


def test_with_test_data_bleu_is_part_of_the_proof(trained: Path, tmp_path: Path) -> None:
    translator = clearhead.load(trained, "cpu")
    parity = translator.export("ctranslate2", tmp_path / "int8", quantize="int8", pairs=PAIRS, bleu_drop=100.0)
    assert parity.texts == len(PAIRS)
    assert parity.original.bleu is not None and parity.exported.bleu is not None
    assert parity.exported.size < 0.5 * parity.original.size
    card = (tmp_path / "int8" / "README.md").read_text(encoding="utf-8")
    assert "with int8 weights" in card and f"| BLEU | {parity.original.bleu:.2f} |" in card
    assert "BLEU: `nrefs:1|" in card


def test_a_copy_that_differs_is_not_written(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = TARGETS["ctranslate2"]["translator"]

    def wrong(model: Any, tokenizers: Any, directory: Path, quantize: str | None) -> None:
        weight = model.get_parameter("decoder.blocks.0.cross.value.weight")
        kept = weight.data.clone()
        weight.data *= -1.0
        write(model, tokenizers, directory, quantize)
        weight.data = kept

    monkeypatch.setitem(targets.TARGETS["ctranslate2"], "translator", wrong)
    with pytest.raises(ParityError) as error:
        export(trained, "ctranslate2", tmp_path / "out")
    assert str(error.value).startswith(
        f"{tmp_path / 'out'} was not written, for it is not the same: scores differ by up to"
    )
    assert error.value.exit_code == 1
    assert list(tmp_path.iterdir()) == []


WRITERS: dict[str, Callable[[Path, Path], Any]] = {
    "export": lambda model, out: export(model, "ctranslate2", out, most=2),
    "pack": pack,
    "prune": lambda model, out: prune(model, ["decoder.0.cross.0"], out),
    "average": lambda model, out: average_run(model, out, last=1),
}


@pytest.mark.parametrize("verb", WRITERS)
def test_what_got_the_name_while_it_was_written_stays(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    out = tmp_path / "out"

    def save_and_disturb(tokenizers: TokenizerPair, directory: Path) -> None:
        save(tokenizers, directory)
        out.mkdir()
        (out / "thesis.txt").write_text("precious")

    save = TokenizerPair.save
    monkeypatch.setattr(TokenizerPair, "save", save_and_disturb)
    with pytest.raises(WouldOverwriteError) as error:
        WRITERS[verb](trained, out)
    assert str(error.value) == f"{out} exists: choose another --out"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert [path.name for path in out.iterdir()] == ["thesis.txt"]


def side(bleu: float | None = None) -> Side:
    return Side(size=1_000_000, per_second=10.0, bleu=bleu)


def right(share: float) -> Side:
    return Side(size=1_000_000, per_second=10.0, accuracy=share)


def parity(**changes: Any) -> Parity:
    facts: dict[str, Any] = {
        "engine": "onnx", "quantize": None, "texts": 10, "origin": "test data", "logit_difference": 1e-5,
        "agreement": 1.0, "identical": 1.0, "original": side(), "exported": side(), "bleu_signature": None,
    }  # fmt: skip
    return Parity(**facts | changes)


@pytest.mark.parametrize(
    ("changes", "tolerance", "said"),
    [
        ({}, EXACT, []),
        ({"logit_difference": float("inf")}, EXACT, ["scores differ by up to inf (at most 0.001)"]),
        ({"logit_difference": float("nan")}, EXACT, ["scores differ by up to nan (at most 0.001)"]),
        ({"identical": 0.9}, EXACT, ["only 90.0 % of the outputs are the same (at least 99%)"]),
        ({"identical": 0.5, "logit_difference": 2.0}, QUANTISED, []),
        (
            {"agreement": 0.8},
            QUANTISED,
            [
                "both agree on the next token in only 80.0 % of all steps "
                "(at least 90%; with test data BLEU decides)"
            ],
        ),
        ({"agreement": 0.8, "original": side(30.0), "exported": side(29.6)}, QUANTISED, []),
        (
            {"original": side(30.0), "exported": side(29.4)},
            QUANTISED,
            ["BLEU falls by 0.60, to 29.40 (at most 0.5)"],
        ),
        (
            {"kind": "gpt", "agreement": 0.8},
            QUANTISED,
            ["both agree on the next token in only 80.0 % of all steps (at least 90%)"],
        ),
        (
            {"kind": "vit", "identical": 0.8},
            QUANTISED,
            ["both agree on the label in only 80.0 % of all pictures (at least 90%; with test data accuracy decides)"],
        ),
        ({"kind": "classifier", "identical": 0.8, "original": right(0.9), "exported": right(0.896)}, QUANTISED, []),
        (
            {"kind": "classifier", "original": right(0.9), "exported": right(0.89)},
            QUANTISED,
            ["accuracy falls by 1.00 points, to 89.00 % (at most 0.5)"],
        ),
        (
            {"original": side(40.0), "exported": side(1.0)},
            QUANTISED._replace(bleu=float("nan")),
            ["BLEU falls by 39.00, to 1.00 (at most nan)"],
        ),
        (
            {"kind": "classifier", "original": right(0.9), "exported": right(0.1)},
            QUANTISED._replace(accuracy=float("nan")),
            ["accuracy falls by 80.00 points, to 10.00 % (at most nan)"],
        ),
    ],
)  # fmt: skip
def test_what_is_past_the_tolerance_is_said(changes: dict[str, Any], tolerance: Any, said: list[str]) -> None:
    assert parity(**changes).problems(tolerance) == said


def test_every_kind_and_engine_that_is_not_there_is_met_with_those_that_are(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^unknown format 'onx': did you mean 'onnx'\?"):
        export(trained, "onx", tmp_path / "out")
    with pytest.raises(ConfigError, match=r"^unknown quantisation 'int4'"):
        export(trained, "onnx", tmp_path / "out", quantize="int4")
    (tmp_path / "there").mkdir()
    with pytest.raises(WouldOverwriteError):
        export(trained, "onnx", tmp_path / "there")
    assert set(TARGETS) | {"torch"} == set(ENGINE_NAMES)
    assert {name: set(kinds) for name, kinds in TARGETS.items()} == {
        name: set(kinds) for name, kinds in ENGINES.items()
    }, "what can be written can be run"
    assert set(MODELS) == set(TARGETS["onnx"]) == set(WORDS) == set(TRIALS) == set(DATA) == set(FILES)


def test_a_kind_that_a_format_has_not_is_refused(
    monkeypatch: pytest.MonkeyPatch, trained: Path, tmp_path: Path
) -> None:
    monkeypatch.setitem(targets.TARGETS, "ctranslate2", {})
    with pytest.raises(UnavailableError, match=r"^a translator cannot be exported to ctranslate2: --to onnx can$"):
        export(trained, "ctranslate2", tmp_path / "out")


def test_made_up_texts_fit_every_model(trained: Path) -> None:
    translator = clearhead.load(trained, "cpu")
    found = made_up_texts(translator.tokenizers.source, 6)
    assert found == made_up_texts(translator.tokenizers.source, 6)
    assert all(1 <= len(translator.tokenizers.source.encode(text)) < 6 for text in found)
    assert len(found) == 64


# Choosing an engine --------------------------------------------------------------------------------------------------


def test_the_engine_follows_from_the_model(trained: Path, small: Path) -> None:
    assert isinstance(load_translator(trained), LoadedTranslator)
    assert isinstance(load_translator(small, engine="ctranslate2", threads=1), ExportedTranslator)
    with pytest.raises(UsageError) as error:
        load_translator(trained, engine="ctranslate2")
    assert str(error.value) == (
        f"{trained} is a model for torch, not for ctranslate2: "
        f"clearhead export {trained} --to ctranslate2 --out DIRECTORY makes one"
    )
    with pytest.raises(UsageError, match="is a model for ctranslate2, not for torch: name the original"):
        load_translator(small, engine="torch")
    with pytest.raises(UsageError, match=r"there is no engine 'onx', did you mean 'onnx'\?"):
        load_translator(small, engine="onx")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("verb", ["translate", "generate", "classify"])
def test_what_is_not_there_is_no_model_for_another_engine(
    capsys: pytest.CaptureFixture[str], verb: str, engine: str
) -> None:
    assert run([verb, "--model", "nowhere", "--engine", engine, "x"]) == MissingInputError.exit_code
    assert capsys.readouterr().err == "clearhead: there is no model at nowhere\n"


def test_what_is_no_model_is_no_model_for_another_engine(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="is neither a model directory nor a run directory"):
        load_translator(tmp_path, engine="onnx")


def test_damage_is_found_before_anything_runs(small: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(small, copy)
    data = bytearray((copy / "model.bin").read_bytes())
    data[-1] ^= 1
    (copy / "model.bin").write_bytes(data)
    with pytest.raises(StorageError, match=r"model\.bin is damaged"):
        clearhead.load(copy)


def test_verbs_that_need_the_original_say_so(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(small), "zwei"]) == 2
    assert "was exported, and this needs the model as it was trained: name the original" in capsys.readouterr().err


# The command line ----------------------------------------------------------------------------------------------------


def test_the_command_shows_both_sides(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["export", str(trained), "--to", "ctranslate2", "--out", str(tmp_path / "out"), "--split", "test", "--json"]
    assert run(words) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["texts"] > 10
    assert "texts a second" in said.err and "BLEU" in said.err and "translate --model" in said.err
    assert run(["info", str(tmp_path / "out"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["engine"], facts["dim"], facts["identical"]) == ("ctranslate2", 32, 1.0)


def test_test_data_is_one_set_or_none(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["export", str(trained), "--to", "onnx", "--out", "out"]
    assert run([*words, "--limit", "5"]) == 2
    assert run([*words, "--split", "test", "--tsv", "a.tsv"]) == 2
    assert run([*words, "--text", "a.txt"]) == 2
    said = capsys.readouterr().err
    assert "--limit, --max-bleu-drop and --max-accuracy-drop are about test data" in said
    assert "one test set at a time" in said
    assert "a translator is compared on --source, --target, --tsv, --split: leave out --text" in said


@pytest.mark.parametrize("flag", ["--max-bleu-drop", "--max-accuracy-drop"])
@pytest.mark.parametrize("value", ["nan", "-1"])
def test_how_much_may_be_lost_is_a_number_from_0(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str, value: str
) -> None:
    words = ["export", str(trained), "--to", "onnx", "--out", str(tmp_path / "out"), "--split", "test"]
    assert run([*words, f"{flag}={value}"]) == 2
    said = capsys.readouterr().err
    assert f"for {flag}. Must be >= 0" in said and said.count("\n") == 1
    assert not (tmp_path / "out").exists()


SCRIPT = """
import json, sys
from clearhead.cli import run
for words in json.loads(sys.argv[1]):
    assert run(words) == 0, words
assert "torch" not in sys.modules, "torch was imported"
import clearhead
model = clearhead.load(sys.argv[2])
model.translate("zwei", beam_size=3)
if model.engine.name == "onnx":
    assert model.translate("zwei", strategy="sample", seed=7) == sys.argv[3]
assert not sys.modules.keys() & {"torch", "onnx", "onnxscript", "transformers"}, "only what runs it is imported"
"""


def without_torch(model: Path, drawn: str, *commands: list[str]) -> str:
    words = [sys.executable, "-c", SCRIPT, json.dumps(commands), str(model), drawn]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, capture_output=True, text=True, encoding="utf-8", env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def use_without_torch(trained: Path, model: Path, engine: str, tmp_path: Path) -> None:
    for side_, place in (("de", 0), ("en", 1)):
        (tmp_path / f"test.{side_}").write_text("".join(f"{pair[place]}\n" for pair in PAIRS), encoding="utf-8")
    files = ["--source", str(tmp_path / "test.de"), "--target", str(tmp_path / "test.en")]
    original = clearhead.load(trained, "cpu")
    said = without_torch(
        model,
        original.translate("zwei", strategy="sample", seed=7),
        ["translate", "--model", str(model), "--engine", engine, *NUMBERS],
        ["translate", "--model", str(model), "--beam", "3", "--nbest", "2", "--scores", "--threads", "1", "zwei"],
        ["score", "--model", str(model), "--engine", engine, *files, "--json"],
        ["info", str(model)],
    )
    assert said.split("\n")[: len(NUMBERS)] == original.translate(NUMBERS)


def test_ctranslate2_translates_and_scores_without_torch(trained: Path, small: Path, tmp_path: Path) -> None:
    use_without_torch(trained, small, "ctranslate2", tmp_path)


def test_onnx_translates_and_scores_without_torch(trained: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs ONNX Runtime: pip install 'clearhead[export]'")
    pytest.importorskip("onnxscript", reason="needs onnxscript: pip install 'clearhead[export]'")
    parity = export(trained, "onnx", tmp_path / "model")
    assert (parity.identical, parity.agreement) == (1.0, 1.0)
    assert parity.logit_difference < 1e-4
    use_without_torch(trained, tmp_path / "model", "onnx", tmp_path)
