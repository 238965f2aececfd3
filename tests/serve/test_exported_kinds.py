"""Language models and classifiers that were exported, behind the server: the library's answers, without torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.serve import made_up_models
from tests.shared.shapes import unchecked_shapes

import clearhead
from clearhead.engines.opening import open_exported
from clearhead.errors import UsageError
from clearhead.run.exporting import export
from clearhead.serve import exported
from clearhead.serve.backends import Lane
from clearhead.serve.opening import open_models

pytestmark = pytest.mark.usefixtures("unchecked")
PROMPTS = ["to be", "or not", "我"]
TEXTS = ["to be or not", "whether 'tis nobler " * 20, "我", ""]


def needs(*packages: str) -> None:
    for package in packages:
        pytest.importorskip(package, reason=f"needs {package}: pip install 'clearhead[export]'")


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("originals")
    return {"gpt": made_up_models.gpt(root / "words"), "classifier": made_up_models.classifier(root / "labels")}


@pytest.fixture(scope="module")
def copies(originals: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A language model for CTranslate2 and a classifier for ONNX."""
    needs("ctranslate2", "onnxruntime", "onnxscript")
    root = tmp_path_factory.mktemp("copies")
    made = {"gpt": ("ctranslate2", root / "words"), "classifier": ("onnx", root / "labels")}
    with unchecked_shapes():
        for kind, (engine, path) in made.items():
            export(originals[kind], engine, path, most=4)
    return {kind: path for kind, (_, path) in made.items()}


SCRIPT = """
import json, sys
from pathlib import Path
from starlette.testclient import TestClient
from clearhead.serve.app import Application
from clearhead.serve.bounds import Bounds
from clearhead.serve.gate import Policy
from clearhead.serve.opening import open_models

found = []
catalogue = open_models([Path(path) for path in sys.argv[2:]], threads=1)
with TestClient(Application(catalogue, Policy(Bounds())).gate) as client:
    for path, body in json.loads(sys.argv[1]):
        answer = client.post(path, json=body) if body is not None else client.get(path)
        found.append(answer.json())
assert "torch" not in sys.modules, "torch was imported"
print(json.dumps(found))
"""


def asked(paths: list[Path], *requests: tuple[str, dict[str, Any] | None]) -> list[Any]:
    """What a server of these models answers, in a process of its own that has no torch."""
    command = [sys.executable, "-c", SCRIPT, json.dumps(requests), *map(str, paths)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def assert_continues(path: Path, original: Path) -> None:
    wish = {"model": "words", "prompt": PROMPTS, "max_tokens": 12}
    likeliest, drawn, again, listed, looked = asked(
        [path],
        ("/v1/completions", {**wish, "temperature": 0, "logprobs": 1}),
        ("/v1/completions", {**wish, "temperature": 0.8, "seed": 4, "n": 2}),
        ("/v1/completions", {**wish, "temperature": 0.8, "seed": 4, "n": 2, "stop": "\x00"}),
        ("/models", None),
        ("/attention", {"text": "to be"}),
    )
    library = clearhead.load(original, "cpu")
    expected = library.generate(PROMPTS, length=12, strategy="greedy")
    assert [choice["text"] for choice in likeliest["choices"]] == expected
    assert likeliest["usage"]["completion_tokens"] == 36
    assert len(drawn["choices"]) == 6 and drawn["choices"] == again["choices"]
    (model,) = listed["models"]
    assert (model["kind"], model["route"], model["shows_attention"]) == ("gpt", "/v1/completions", False)
    assert looked == {"error": "no model here can be looked into"}


def assert_labels(path: Path, original: Path) -> None:
    found, listed = asked([path], ("/classify", {"text": TEXTS}), ("/models", None))
    library = clearhead.load(original, "cpu")
    for text, labels in zip(TEXTS, found["labels"], strict=True):
        shares = {one["label"]: one["probability"] for one in labels}
        assert shares == pytest.approx(library.probabilities(text), abs=1e-4)
        assert [one["label"] for one in labels[:1]] == ([library.classify(text)] if text else [])
    assert [(one["engine"], one["route"]) for one in listed["models"]] == [("onnx", "/classify")]


def test_a_language_model_for_ctranslate2(copies: dict[str, Path], originals: dict[str, Path]) -> None:
    assert_continues(copies["gpt"], originals["gpt"])


def test_a_classifier_for_onnx(copies: dict[str, Path], originals: dict[str, Path]) -> None:
    assert_labels(copies["classifier"], originals["classifier"])
    with pytest.raises(UsageError, match="labels was exported for onnx and cannot be served on ctranslate2"):
        open_models([copies["classifier"]], engine="ctranslate2")


@pytest.mark.slow
def test_a_language_model_for_onnx(originals: dict[str, Path], tmp_path: Path) -> None:
    needs("onnxruntime", "onnxscript")
    export(originals["gpt"], "onnx", tmp_path / "words", most=4)
    assert_continues(tmp_path / "words", originals["gpt"])


def test_what_a_batch_would_change_is_computed_alone(copies: dict[str, Path]) -> None:
    # Numbers of 8 bits have one scale for a batch in ONNX, and one for each token in CTranslate2.
    rows = {}
    for kind, path in copies.items():
        opened = open_exported(path, threads=1)
        for quantize in (None, "int8"):
            (backend,) = exported.PARTS[kind](opened, Lane("here"), quantize).values()
            rows[opened.engine.name, quantize] = backend.most_rows
    assert rows["onnx", "int8"] == 1 < rows["onnx", None] and rows["ctranslate2", "int8"] == rows["ctranslate2", None]
