"""Served models whose tokens become fewer on the way: the library's answers, and one line for those that keep all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.serve import made_up_models
from tests.serve.conftest import Start

import clearhead
from clearhead.errors import ConfigError, UnavailableError, UsageError
from clearhead.serve.opening import open_models

pytestmark = pytest.mark.usefixtures("unchecked")
TEXTS = ["to be or not to be, that is the question", "whether 'tis nobler", "我吃了一个苹果", "a"]


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_up_models.classifier(tmp_path_factory.mktemp("fewer") / "labels")


@pytest.mark.parametrize("how", [{"kind": "merge", "r": 3}, {"kind": "prune", "threshold": 1.0}], ids=str)
def test_labels_are_those_of_the_library_with_as_few_tokens(start: Start, labels: Path, how: dict[str, Any]) -> None:
    catalogue = open_models([labels], device="cpu", reduce=how)
    assert (catalogue.models[0].engine, catalogue.models[0].remark) == ("torch", "")
    client, library = start(*catalogue), clearhead.load(labels, "cpu")
    whole = library.probabilities(TEXTS)
    library.reduce(**how)
    fewer = library.probabilities(TEXTS)
    assert max(abs(fewer[0][name] - whole[0][name]) for name in whole[0]) > 1e-4
    together = client.post("/classify", json={"text": TEXTS}).json()["labels"]
    alone = [client.post("/classify", json={"text": text}).json()["labels"] for text in TEXTS]
    for found in (together, alone):
        for shares, expected in zip(found, fewer, strict=True):
            assert {one["label"]: one["probability"] for one in shares} == pytest.approx(expected, abs=1e-5)
    looked = client.post("/attention", json={"text": TEXTS[0]}).json()
    assert looked["view"] == library.inspect(TEXTS[0]).view


@pytest.mark.parametrize("how", [{"kind": "merge", "r": 6}, {"kind": "prune", "threshold": 1.0}], ids=str)
def test_translations_are_those_of_the_library_with_as_few_tokens(
    start: Start, tmp_path: Path, how: dict[str, Any]
) -> None:
    pytest.importorskip("ctranslate2", reason="needs ctranslate2: pip install 'clearhead[export]'")
    path = made_up_models.translator(tmp_path / "words", {"strategy": "beam", "beam_size": 3}, encoder_layers=2)
    catalogue = open_models([path], device="cpu", languages="de:en", reduce=how)
    (model,) = catalogue.models
    assert model.engine == "torch"
    assert model.remark.startswith("not on ctranslate2: no export can express this model: its tokens become fewer")
    client, library = start(*catalogue), clearhead.load(path, "cpu")
    whole = library.translate(TEXTS)
    library.reduce(**how)
    fewer = library.translate(TEXTS)
    assert fewer != whole
    asked = {"source": "de", "target": "en"}
    together = client.post("/translate", json={"q": TEXTS, **asked}).json()["translatedText"]
    alone = [client.post("/translate", json={"q": text, **asked}).json()["translatedText"] for text in TEXTS]
    assert together == alone == fewer
    looked = client.post("/attention", json={"text": TEXTS[0]}).json()
    assert looked["view"] == library.inspect(TEXTS[0]).view
    assert open_models([path], device="cpu", reduce={"kind": "none"}).models[0].engine == "ctranslate2"


def test_models_that_keep_their_tokens_say_so_in_one_line(labels: Path, tmp_path: Path) -> None:
    words, copy = made_up_models.gpt(tmp_path / "words"), tmp_path / "copy"
    copy.mkdir()
    (copy / "export.json").write_text(json.dumps({"engine": "onnx", "kind": "classifier"}), encoding="utf-8")
    for path, said in (
        (words, "words is a gpt, whose tokens cannot become fewer: leave out --reduce, or this model"),
        (copy, "copy is an exported model, which keeps all its tokens: leave out --reduce, or name the original"),
    ):
        with pytest.raises(UsageError, match=f"{said}$"):
            open_models([labels, path], device="cpu", reduce={"kind": "merge"})
    with pytest.raises(ConfigError, match="did you mean 'merge'"):
        open_models([labels], device="cpu", reduce={"kind": "murge"})


def test_onnx_cannot_drop_tokens_on_the_way(labels: Path) -> None:
    for package in ("onnxruntime", "onnxscript"):
        pytest.importorskip(package, reason=f"needs {package}: pip install 'clearhead[export]'")
    with pytest.raises(UnavailableError, match=r"^no export can express this model: its tokens become fewer on"):
        open_models([labels], engine="onnx", device="cpu", reduce={"kind": "merge"})
