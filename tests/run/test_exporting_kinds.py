"""Language models, classifiers, BERTs and Vision Transformers go out with proof, and are used there without torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.export.making import made, made_bert, made_classifier, made_gpt, made_vit, saved, texts

import clearhead
from clearhead.cli import run
from clearhead.errors import ParityError, UnavailableError, UsageError
from clearhead.export import targets
from clearhead.export.verify import Parity
from clearhead.run.exporting import export
from clearhead.storage import read_json

for package in ("ctranslate2", "onnxruntime", "onnxscript"):
    pytest.importorskip(package, reason="needs the engines: pip install 'clearhead[export]'")
pytestmark = pytest.mark.usefixtures("unchecked")

MADE: dict[str, Callable[[], Any]] = {
    "gpt": lambda: made_gpt(kind="bpe", num_layers=1),
    "classifier": lambda: made_classifier(num_layers=1, reduce={"kind": "merge", "r": 2}),
    "bert": lambda: made_bert(num_layers=1),
    "vit": lambda: made_vit(num_layers=1),
}
SCRIPT = """
import json, sys
from clearhead.cli import run
for words in json.loads(sys.argv[1]):
    assert run(words) == 0, words
assert "torch" not in sys.modules, "torch was imported"
"""


def without_torch(*commands: list[str]) -> str:
    words = [sys.executable, "-c", SCRIPT, json.dumps(commands)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, capture_output=True, text=True, encoding="utf-8", env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model directory of each kind."""
    root = tmp_path_factory.mktemp("models")
    return {kind: saved(make(), root / kind) for kind, make in MADE.items()}


def answer(loaded: Any, kind: str) -> Any:
    """Something that a model of a kind says."""
    if kind == "gpt":
        return loaded.generate(["abc", "LMNOP"], length=40, seed=3)
    if kind == "classifier":
        return loaded.classify(texts(20, 60))
    if kind == "bert":
        return [loaded.fill(text + "[MASK]").text for text in texts(10)]
    pictures = np.random.default_rng(3).integers(0, 256, (20, 3, 8, 12), dtype=np.uint8)
    return loaded.probabilities(pictures).argmax(1).tolist()


WAYS = [("gpt", "ctranslate2"), *((kind, "onnx") for kind in MADE)]
QUICK = (("gpt", "ctranslate2"), ("classifier", "onnx"), ("vit", "onnx"))
Copy = Callable[[str, str], tuple[Parity, Path]]


def ways(chosen: Sequence[tuple[str, str]]) -> list[Any]:
    """Those that `make test` takes, and the rest for `make slow`: writing a graph takes many seconds."""
    return [way if way in QUICK else pytest.param(*way, marks=pytest.mark.slow) for way in chosen]


@pytest.fixture(scope="module")
def copied(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """A model in an engine, and how near it came; each is made when it is first wanted."""
    root = tmp_path_factory.mktemp("copies")

    @cache
    def copy(kind: str, engine: str) -> tuple[Parity, Path]:
        options: dict[str, Any] = {"reduce": "none"} if kind == "classifier" else {}
        place = root / f"{kind}-{engine}"
        return clearhead.load(models[kind], "cpu").export(engine, place, **options), place

    return copy


@pytest.mark.parametrize(("kind", "engine"), ways(WAYS))
def test_a_copy_says_the_same_and_brings_its_proof(
    models: dict[str, Path], copied: Copy, kind: str, engine: str
) -> None:
    parity, place = copied(kind, engine)
    assert (parity.kind, parity.engine, parity.identical) == (kind, engine, 1.0)
    assert parity.logit_difference < 1e-4 and parity.exported.accuracy is None
    original, copy = clearhead.load(models[kind], "cpu"), clearhead.load(place, "cpu")
    if kind == "classifier":
        original.reduce(kind="none")
    assert (copy.kind, copy.path) == (kind, place)
    assert answer(copy, kind) == answer(original, kind)
    assert read_json(place / "parity.json") == json.loads(json.dumps(parity.as_json()))
    card = (place / "README.md").read_text(encoding="utf-8")
    assert card.startswith("# A model") and f"Exported for {engine} by `clearhead export`" in card
    assert ("| same label |" in card) == (kind in ("classifier", "vit"))
    assert (place / "generation_config.json").is_file() == (kind == "gpt")


def test_labels_make_accuracy_a_part_of_the_proof(models: dict[str, Path], tmp_path: Path) -> None:
    loaded = clearhead.load(models["classifier"], "cpu")
    loaded.reduce(kind="none")
    sources = texts(40, 30)
    pairs = list(zip(sources, loaded.classify(sources[:30]) + ["bad"] * 10, strict=True))
    options: dict[str, Any] = {"quantize": "int8", "accuracy_drop": 100.0, "reduce": "none"}
    parity = export(models["classifier"], "onnx", tmp_path / "int8", pairs=pairs, **options)
    assert parity.original.accuracy is not None and 0.75 <= parity.original.accuracy <= 1.0
    assert parity.exported.accuracy is not None
    card = (tmp_path / "int8" / "README.md").read_text(encoding="utf-8")
    assert "with int8 weights" in card and f"| accuracy | {100 * parity.original.accuracy:.2f} % |" in card


def test_labels_that_are_lost_are_too_much(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = targets.TARGETS["onnx"]["vit"]

    def wrong(model: Any, tokenizers: Any, directory: Path, quantize: str | None) -> None:
        kept = model.output.weight.data.clone()
        model.output.weight.data *= -1.0
        write(model, tokenizers, directory, quantize)
        model.output.weight.data = kept

    monkeypatch.setitem(targets.TARGETS["onnx"], "vit", wrong)
    loaded = clearhead.load(models["vit"], "cpu")
    pictures = np.random.default_rng(3).integers(0, 256, (20, 3, 8, 12), dtype=np.uint8)
    labels = [loaded.labels[place] for place in loaded.probabilities(pictures).argmax(1)]
    with pytest.raises(ParityError, match=r"accuracy falls by \d+\.\d\d points, to "):
        export(models["vit"], "onnx", tmp_path / "out", pairs=list(zip(pictures, labels, strict=True)))
    assert list(tmp_path.iterdir()) == []


def test_what_an_engine_has_not_is_said(models: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"^a bert cannot be exported to ctranslate2: --to onnx can$"):
        export(models["bert"], "ctranslate2", tmp_path / "out")
    with pytest.raises(UnavailableError, match=r"its tokens become fewer on the way \(reduce\.kind is 'merge'\)"):
        export(models["classifier"], "onnx", tmp_path / "out")
    with pytest.raises(UsageError, match="the tokens of a gpt do not become fewer: leave out --reduce"):
        export(models["gpt"], "onnx", tmp_path / "out", reduce="none")
    with pytest.raises(UsageError, match="a gpt is not judged by BLEU: leave out --max-bleu-drop"):
        export(models["gpt"], "onnx", tmp_path / "out", bleu_drop=1.0)
    with pytest.raises(UsageError, match="a vit is not judged by BLEU: leave out --max-bleu-drop"):
        export(models["vit"], "onnx", tmp_path / "out", bleu_drop=1.0)
    with pytest.raises(UsageError, match="a bert is not judged by accuracy: leave out --max-accuracy-drop"):
        export(models["bert"], "onnx", tmp_path / "out", accuracy_drop=1.0)
    assert list(tmp_path.iterdir()) == []


def test_a_translator_whose_tokens_become_fewer_goes_out_with_all_of_them_or_not_at_all(tmp_path: Path) -> None:
    fewer = saved(made(encoder_layers=1, decoder_layers=1, reduce={"kind": "prune"}), tmp_path / "fewer")
    for engine in ("ctranslate2", "onnx"):
        with pytest.raises(UnavailableError, match=r"^no export can express .* \(reduce\.kind is 'prune'\), .*kept$"):
            export(fewer, engine, tmp_path / "out")
    assert export(fewer, "ctranslate2", tmp_path / "whole", reduce="none").identical == 1.0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fewer", "whole"]


# The command line ----------------------------------------------------------------------------------------------------


def test_the_command_compares_a_language_model_on_lines(
    models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, out = tmp_path / "lines.txt", tmp_path / "copy"
    lines.write_text("abc\n\nhijk LM\n", encoding="utf-8")
    words = ["export", str(models["gpt"]), "--to", "ctranslate2", "--out", str(out)]
    assert run([*words, "--text", str(lines), "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["texts"] == 2
    assert "same greedy output" in said.err and f"generate --model {out}" in said.err
    assert run([*words, "--tsv", "a.tsv"]) == 2
    assert "a gpt is compared on --text: leave out --tsv" in capsys.readouterr().err


@pytest.mark.parametrize(("kind", "engine"), ways(WAYS[:2]))
def test_a_language_model_goes_on_without_torch(
    models: dict[str, Path], copied: Copy, kind: str, engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--length", "30", "abc"]
    commands = [[*asked, "--temperature", "0"], [*asked, "--seed", "4", "--stop", "e"], [*asked, "--stream"]]
    ours, place = "", str(copied(kind, engine)[1])
    for command in commands:
        assert run(["generate", "--model", str(models[kind]), *command]) == 0
        ours += capsys.readouterr().out
    copies = (["generate", "--model", place, "--engine", engine, *command] for command in commands)
    assert without_torch(*copies, ["info", place]).startswith(ours)
    (tmp_path / "text.txt").write_text("abc hijk LMNOP xyz\n" * 20, encoding="utf-8")
    losses = []
    for model in (str(models[kind]), place):
        assert run(["score", "--model", model, "--text", str(tmp_path / "text.txt"), "--json"]) == 0
        losses.append(json.loads(capsys.readouterr().out)["loss"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


@pytest.mark.parametrize(("kind", "engine"), ways(WAYS[2:]))
def test_a_reader_answers_without_torch(
    models: dict[str, Path], copied: Copy, kind: str, engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs Pillow: pip install 'clearhead[pictures]'")
    pixels = np.random.default_rng(0).integers(0, 256, (8, 12, 3), dtype=np.uint8)
    image.fromarray(pixels).save(tmp_path / "picture.png")
    verb, *rest = {
        "classifier": ["classify", "--probabilities", "abcde", "0123456789xyz"],
        "bert": ["fill", "--top", "3", "ab[MASK]de"],
        "vit": ["classify", str(tmp_path / "picture.png")],
    }[kind]
    fewer = ["--reduce", "none"] if kind == "classifier" else []
    assert run([verb, "--model", str(models[kind]), *fewer, *rest]) == 0
    ours, place = capsys.readouterr().out, str(copied(kind, engine)[1])
    assert without_torch([verb, "--model", place, "--engine", engine, *rest]) == ours


def test_a_copy_is_scored_on_the_engine_that_is_named(
    copied: Copy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, sources = copied("classifier", "onnx")[1], texts(20, 30)
    (tmp_path / "test.tsv").write_text("text\tlabel\n" + "".join(f"{text}\tgood\n" for text in sources), "utf-8")
    words = ["score", "--model", str(place), "--tsv", str(tmp_path / "test.tsv"), "--json", "--engine"]
    assert run([*words, "onnx"]) == 0
    share = clearhead.load(place).classify(sources).count("good") / len(sources)
    assert json.loads(capsys.readouterr().out)["accuracy"] == pytest.approx(share)
    assert run([*words, "ctranslate2"]) == 2
    assert "is a model for onnx, not for ctranslate2" in capsys.readouterr().err


def test_a_copy_is_refused_what_it_cannot(
    models: dict[str, Path], copied: Copy, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(copied("classifier", "onnx")[1])
    assert run(["fill", "--model", place, "abc[MASK]"]) == 2
    assert run(["classify", "--model", place, "--reduce", "merge", "abc"]) == 2
    assert run(["generate", "--model", str(models["gpt"]), "--engine", "onnx", "abc"]) == 2
    said = capsys.readouterr().err
    assert "is a classifier: use clearhead classify" in said
    assert "an exported model keeps all its tokens: leave out --reduce" in said
    assert "is a model for torch, not for onnx: clearhead export" in said
