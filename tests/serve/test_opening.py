"""Which engine a model is served on: its own, CTranslate2 where that says the same, or else torch, with the reason."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests.serve import made_up_models
from tests.serve.conftest import Start

import clearhead
from clearhead.data.numbers import LANGUAGES
from clearhead.engines import extras
from clearhead.engines import opening as engine_opening
from clearhead.errors import UnavailableError, UsageError
from clearhead.export import targets
from clearhead.run.exporting import export
from clearhead.serve.app import Application
from clearhead.serve.bounds import Bounds
from clearhead.serve.catalogue import Catalogue
from clearhead.serve.gate import Policy
from clearhead.serve.opening import open_models
from clearhead.serve.translating import Wish, translate

pytest.importorskip("ctranslate2", reason="needs CTranslate2: pip install 'clearhead[export]'")
pytestmark = pytest.mark.usefixtures("unchecked")

WORDS = [LANGUAGES["de"].spell(number) for number in range(1, 121)]


@pytest.fixture(scope="module")
def converted(trained: Path) -> Catalogue:
    """A translator of ours, as a server opens it when nobody says how."""
    return open_models([trained], device="cpu")


@pytest.fixture(scope="module")
def small(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same translator, exported."""
    path = tmp_path_factory.mktemp("exported") / "small"
    export(trained, "ctranslate2", path)
    return path


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary directories are made."""
    path = tmp_path / "scratch"
    path.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    return path


def test_a_translator_answers_on_ctranslate2_what_the_library_says(
    start: Start, converted: Catalogue, trained: Path
) -> None:
    (model,) = converted
    assert (model.engine, model.remark, model.parameters) == ("ctranslate2", "", 23_424)
    client, library = start(*converted), clearhead.load(trained, "cpu")
    answer = client.post("/translate", json={"q": WORDS[:60], "source": "de", "target": "en"}).json()
    assert answer["translatedText"] == library.translate(WORDS[:60])
    found = client.post("/translate", json={"q": "zwölf", "source": "de", "target": "en", "alternatives": 3}).json()
    best = next(library.stream(["zwölf"], library.configured(beam_size=4, nbest=4)))
    assert [found["translatedText"], *found["alternatives"]] == [one.text for one in best]
    assert client.get("/models").json()["models"][0]["engine"] == "ctranslate2"


def test_it_is_looked_into_with_torch(start: Start, converted: Catalogue, trained: Path) -> None:
    client, library = start(*converted), clearhead.load(trained, "cpu")
    off = ["decoder.0.cross"]
    found = client.post("/attention", json={"text": "dreizehn", "ablate": off}).json()
    expected = library.inspect("dreizehn", ablate=off)
    assert (found["text"], found["view"]) == (expected.translation, expected.view)
    # Heads are off for those who look, and for nobody else.
    whole = client.post("/translate", json={"q": "dreizehn", "source": "de", "target": "en"}).json()
    assert whole["translatedText"] == library.translate("dreizehn") != found["text"]


def test_a_thousand_requests_alone_and_in_mixed_batches_give_the_same(converted: Catalogue) -> None:
    numbers = [LANGUAGES["de"].spell(number) for number in range(1, 1001)]

    async def answers() -> tuple[list[str], list[str]]:
        server = Application(converted, Policy(Bounds(queue=1000))).server
        until = asyncio.get_running_loop().time() + 250

        async def ask(text: str) -> str:
            return (await translate(server, Wish([text], "de", "en"), until))[0].text

        try:
            alone = [await ask(text) for text in numbers]
            # Another order, so that each is in other company; all wait at once, so that batches are full.
            mixed = dict(zip(numbers[::-1], await asyncio.gather(*map(ask, numbers[::-1])), strict=True))
            batches = server.metrics.text().decode().split('clearhead_batch_rows_count{task="Translating"} ')[1]
            assert float(batches.split()[0]) < 1000 + 1000 / 8, "hardly anything was put together"
            return alone, [mixed[text] for text in numbers]
        finally:
            server.close()

    alone, mixed = asyncio.run(answers())
    assert alone == mixed and len({*alone}) > 100


def test_what_is_converted_leaves_no_files_behind(trained: Path, scratch: Path) -> None:
    (model,) = open_models([trained], engine="ctranslate2", device="cpu", threads=3)
    assert model.engine == "ctranslate2" and list(scratch.iterdir()) == []
    assert model.translator is not None and model.translator.lane.width == 3


def test_models_on_one_engine_share_the_cores(trained: Path, tmp_path: Path) -> None:
    catalogue = open_models([trained, made_up_models.translator(tmp_path / "other")], device="cpu")
    assert [model.engine for model in catalogue] == ["ctranslate2"] * 2
    assert [(lane.name, lane.width) for lane in catalogue.lanes] == [
        ("ctranslate2", engine_opening.cores()),
        ("torch", 1),
    ]


SHAPES: list[tuple[dict[str, Any], str]] = [
    ({"shape": {"norm": "batch"}}, "CTranslate2 cannot express this model: it has no norm 'batch'"),
    ({"generation": {"strategy": "sample"}}, "CTranslate2 cannot draw the same twice from one seed"),
]


@pytest.mark.parametrize(("changes", "reason"), SHAPES)
def test_what_ctranslate2_cannot_do_is_done_by_torch_and_said(
    tmp_path: Path, scratch: Path, changes: dict[str, dict[str, Any]], reason: str
) -> None:
    path = made_up_models.translator(tmp_path / "odd", changes.get("generation"), **changes.get("shape", {}))
    (model,) = open_models([path], device="cpu")
    assert model.engine == "torch" and model.remark.startswith(f"not on ctranslate2: {reason}")
    assert list(scratch.iterdir()) == []
    if "shape" in changes:
        with pytest.raises(UnavailableError, match=f"^{reason}"):
            open_models([path], engine="ctranslate2", device="cpu")


def test_a_language_model_writes_on_ctranslate2_and_draws_on_torch(start: Start, tmp_path: Path) -> None:
    path = made_up_models.gpt(tmp_path / "some-gpt")
    (model,) = open_models([path], device="cpu")
    assert (model.engine, model.remark) == ("ctranslate2", "what is drawn, on torch")
    likeliest, drawing, writer, inspector = model.writer_at(0), model.writer_at(0.1), model.writer, model.inspector
    assert likeliest is writer is not None and drawing is model.drawer is not None and inspector is not None
    assert (likeliest.lane.name, drawing.lane.name, inspector.lane.name) == ("ctranslate2", "torch", "torch")
    (alone,) = open_models([path], engine="torch", device="cpu")
    for temperature in (0, 1):
        wish = {"model": "some-gpt", "prompt": "to be", "temperature": temperature, "seed": 1, "logprobs": 2}
        found, expected = (start(one).post("/v1/completions", json=wish).json()["choices"] for one in (model, alone))
        assert found[0]["text"] == expected[0]["text"]
        probs = [choices[0]["logprobs"]["token_logprobs"] for choices in (found, expected)]
        assert probs[0] == pytest.approx(probs[1], abs=1e-3)


def test_a_language_model_that_ctranslate2_cannot_express_stays_on_torch(tmp_path: Path) -> None:
    path = made_up_models.gpt(tmp_path / "odd", window=4)
    (model,) = open_models([path], device="cpu")
    assert (model.engine, model.drawer) == ("torch", None)
    assert model.remark.startswith("not on ctranslate2: CTranslate2 cannot express this model: it ")
    with pytest.raises(UnavailableError, match=r"^CTranslate2 cannot express this model: it "):
        open_models([path], engine="ctranslate2", device="cpu")


def test_a_copy_that_says_something_else_is_not_served(
    trained: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = targets.TARGETS["ctranslate2"]["translator"]

    def wrong(model: Any, tokenizers: Any, directory: Path, quantize: str | None) -> None:
        write(made_up_sibling(model), tokenizers, directory, quantize)

    monkeypatch.setitem(targets.TARGETS["ctranslate2"], "translator", wrong)
    (model,) = open_models([trained], device="cpu")
    assert model.engine == "torch" and "it is not the same: scores differ by up to" in model.remark
    assert list(scratch.iterdir()) == []


def made_up_sibling(model: Any) -> Any:
    """A model of the same shape that has learnt nothing."""
    return type(model)(model.config).eval()


def test_without_the_package_torch_serves(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda package: None)
    (model,) = open_models([trained], device="cpu")
    assert model.engine == "torch"
    assert model.remark == "not on ctranslate2: this needs ctranslate2: pip install 'clearhead[export]'"


def test_where_nothing_can_be_written_torch_serves(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc/nowhere")
    (model,) = open_models([trained], device="cpu")
    assert model.engine == "torch" and "for want of a temporary directory: " in model.remark


@pytest.mark.slow
def test_onnx_serves_if_it_is_asked_for(start: Start, trained: Path) -> None:
    for package in ("onnxruntime", "onnxscript"):
        pytest.importorskip(package, reason=f"needs {package}: pip install 'clearhead[export]'")
    catalogue = open_models([trained], engine="onnx", device="cpu")
    assert catalogue.models[0].engine == "onnx"
    answer = start(*catalogue).post("/translate", json={"q": WORDS, "source": "de", "target": "en"}).json()
    assert answer["error"].startswith("Invalid request: request (120) exceeds")
    answer = start(*catalogue).post("/translate", json={"q": WORDS[60:], "source": "de", "target": "en"}).json()
    assert answer["translatedText"] == clearhead.load(trained, "cpu").translate(WORDS[60:])


def test_engines_that_a_model_is_not_for_are_refused(small: Path, tmp_path: Path) -> None:
    labels, gaps = made_up_models.classifier(tmp_path / "labels"), made_up_models.bert(tmp_path / "gaps")
    picture = shutil.copytree(small, tmp_path / "picture")
    notes = json.loads((picture / "export.json").read_text(encoding="utf-8"))
    (picture / "export.json").write_text(json.dumps({**notes, "kind": "vit"}), encoding="utf-8")
    for path, engine, said in (
        (small, "torch", "small was exported for ctranslate2 and cannot be served on torch: leave --engine out"),
        (small, "onnx", "small was exported for ctranslate2 and cannot be served on onnx: leave --engine out"),
        (labels, "ctranslate2", "labels is a classifier, which is served on torch or onnx only: leave --engine out"),
        (gaps, "onnx", "gaps is a bert, which is served on torch only: leave --engine out"),
        (picture, "auto", "picture is an exported vit, which the server does not serve: name the original"),
    ):
        with pytest.raises(UsageError, match=f"{said}$"):
            open_models([path], engine=engine, device="cpu")
    (model,) = open_models([labels], device="cpu")
    assert (model.engine, model.remark) == ("torch", "")


SCRIPT = """
import json, sys
from pathlib import Path
from starlette.testclient import TestClient
from clearhead.serve.app import Application
from clearhead.serve.bounds import Bounds
from clearhead.serve.gate import Policy
from clearhead.serve.opening import open_models

catalogue = open_models([Path(sys.argv[1])], threads=1)
with TestClient(Application(catalogue, Policy(Bounds())).gate) as client:
    answer = client.post("/translate", json={"q": json.loads(sys.argv[2]), "source": "auto", "target": "en"}).json()
    looked = client.post("/attention", json={"text": "zwei"})
    listed = client.get("/models").json()["models"]
assert "torch" not in sys.modules, "torch was imported"
print(json.dumps({"texts": answer["translatedText"], "looked": looked.json(), "listed": listed}))
"""


def test_an_exported_model_is_served_without_torch(trained: Path, small: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT, str(small), json.dumps(WORDS[:20])]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["texts"] == clearhead.load(trained, "cpu").translate(WORDS[:20])
    assert found["looked"] == {"error": "no model here can be looked into"}
    (listed,) = found["listed"]
    assert (listed["name"], listed["kind"], listed["engine"]) == ("small", "translator", "ctranslate2")
    assert (listed["sources"], listed["target"], listed["parameters"]) == (["de"], "en", None)
    assert listed["shows_attention"] is False
