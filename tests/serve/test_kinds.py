"""Language models, classifiers and masked models behind the server: what they say on any engine the library says."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.serve import made_up_models
from tests.serve.conftest import Start
from tests.shared.shapes import unchecked_shapes

import clearhead
from clearhead.serve.backends import Piece, Prompt, WriteOptions, Writer
from clearhead.serve.catalogue import Catalogue
from clearhead.serve.opening import open_models

pytestmark = pytest.mark.usefixtures("unchecked")
PROMPTS = ["to be", "or not", "whether", "我", "the question: ", ""]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("kinds")
    makers = {"gpt": made_up_models.gpt, "classifier": made_up_models.classifier, "bert": made_up_models.bert}
    return {kind: make(root / f"some-{kind}") for kind, make in makers.items()}


@pytest.fixture(scope="module")
def library(paths: dict[str, Path]) -> Catalogue:
    return open_models(list(paths.values()), engine="torch", device="cpu")


@pytest.fixture(scope="module", params=["torch", "ctranslate2", pytest.param("onnx", marks=pytest.mark.slow)])
def kinds(request: pytest.FixtureRequest, paths: dict[str, Path], library: Catalogue) -> Catalogue:
    """All kinds, each on this engine if it can be."""
    if request.param == "torch":
        return library
    for package in {"ctranslate2": ["ctranslate2"], "onnx": ["onnxruntime", "onnxscript"]}[request.param]:
        pytest.importorskip(package, reason=f"needs {package}: pip install 'clearhead[export]'")
    able = ["gpt", "classifier"] if request.param == "onnx" else ["gpt"]
    with unchecked_shapes():
        on_it = open_models([paths[kind] for kind in able], engine=request.param, device="cpu")
    assert [model.engine for model in on_it] == [request.param] * len(able)
    return Catalogue([*on_it, *library.models[len(able) :]])


class Listener:
    """A watch that writes down what it hears, and loses interest in some rows after some steps."""

    def __init__(self, leaving: dict[int, int] | None = None) -> None:
        self.leaving = leaving or {}
        self.asked = 0
        self.heard: dict[int, list[Piece]] = {}

    def unwanted(self) -> list[int]:
        self.asked += 1
        return [row for row, step in self.leaving.items() if self.asked > step]

    def tell(self, place: int, news: Any) -> None:
        self.heard.setdefault(place, []).append(news)


def writer_of(catalogue: Catalogue) -> Writer:
    writer = catalogue.models[0].writer
    assert writer is not None
    return writer


def complete(client: Any, **wishes: Any) -> list[dict[str, Any]]:
    body = {"model": "some-gpt", "max_tokens": 12, "temperature": 0, **wishes}
    response = client.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    return list(response.json()["choices"])


def test_the_likeliest_continuation_is_the_librarys(start: Start, kinds: Catalogue, paths: dict[str, Path]) -> None:
    client = start(*kinds)
    library = clearhead.load(paths["gpt"], "cpu")
    expected = library.generate(PROMPTS, length=12, strategy="greedy")
    assert [choice["text"] for choice in complete(client, prompt=PROMPTS)] == expected
    tokens = [library.encode(prompt) for prompt in PROMPTS if prompt]
    assert [choice["text"] for choice in complete(client, prompt=tokens)] == expected[:-1]


def test_continuations_alone_and_in_mixed_batches_are_the_same(start: Start, kinds: Catalogue) -> None:
    client = start(*kinds)
    wishes = [
        {"prompt": prompt, "temperature": temperature, "seed": seed, "max_tokens": 4 + seed % 3}
        for prompt in PROMPTS
        for temperature in (0, 0.9)
        for seed in range(4)
    ]
    alone = [complete(client, **wish) for wish in wishes]
    with ThreadPoolExecutor(12) as pool:
        together = list(pool.map(lambda wish: complete(client, **wish), wishes))
    assert together == alone


def test_a_stream_says_what_the_whole_says(start: Start, kinds: Catalogue) -> None:
    client = start(*kinds)
    wish = {"prompt": ["to be", "我吃"], "temperature": 1, "seed": 5, "n": 2, "max_tokens": 20, "logprobs": 2}
    whole = complete(client, **wish)
    with client.stream("POST", "/v1/completions", json={"model": "some-gpt", **wish, "stream": True}) as response:
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    chunks = [json.loads(line)["choices"][0] for line in lines[:-1]]
    for number, choice in enumerate(whole):
        parts = [chunk for chunk in chunks if chunk["index"] == number]
        assert "".join(part["text"] for part in parts) == choice["text"]
        told = [token for part in parts if part["logprobs"] for token in part["logprobs"]["tokens"]]
        assert told == choice["logprobs"]["tokens"] and len(told) == 20
        for likely, chosen in zip(
            choice["logprobs"]["top_logprobs"], choice["logprobs"]["token_logprobs"], strict=True
        ):
            assert len(likely) == 2 and max(likely.values()) >= chosen - 1e-6


def test_a_stop_ends_a_text_before_it(start: Start, kinds: Catalogue) -> None:
    client = start(*kinds)
    (whole,) = complete(client, prompt="to be", max_tokens=30)
    stop = whole["text"][6:8]
    (cut,) = complete(client, prompt="to be", max_tokens=30, stop=stop)
    assert cut["finish_reason"] == "stop" and cut["text"] == whole["text"][: whole["text"].index(stop)]
    assert whole["finish_reason"] == "length"


def test_a_continuation_that_nobody_waits_for_ends_within_a_step(kinds: Catalogue) -> None:
    writer = writer_of(kinds)
    ids = writer.read("to be")
    prompts = [Prompt(ids, 20, chance) for chance in range(4)]
    patient, hasty, all_gone = Listener(), Listener({1: 3, 3: 5}), Listener(dict.fromkeys(range(4), 2))
    whole = writer.write_batch(prompts, WriteOptions(), patient)
    some = writer.write_batch(prompts, WriteOptions(), hasty)
    for row in (0, 2):
        assert (some[row].text, some[row].finish) == (whole[row].text, whole[row].finish)
        # With fewer rows sums are added up in another order, so the last digits may differ.
        probs = [[token.log_prob for token in one[row].tokens] for one in (some, whole)]
        assert probs[0] == pytest.approx(probs[1], abs=1e-5)
    assert len(some[1].tokens) == 3 and len(some[3].tokens) == 5
    writer.write_batch(prompts, WriteOptions(), all_gone)
    assert all_gone.asked == 3
    assert ["".join(piece.text for piece in patient.heard[row]) for row in range(4)] == [one.text for one in whole]
    assert max(len(piece.tokens) for row in range(4) for piece in patient.heard[row]) < 5, "they are told as they come"


def test_what_is_drawn_is_what_torch_draws(kinds: Catalogue, library: Catalogue) -> None:
    for options in (
        WriteOptions(temperature=0.9, top_p=0.8, top=3),
        WriteOptions(temperature=0.0, top=1),
        WriteOptions(stop=("e", "to"), top_p=0.0),
    ):
        found, expected = (
            writer.write_batch([Prompt(writer.read("to be"), 80, chance) for chance in (3, 4, 5)], options, Listener())
            for writer in map(writer_of, (kinds, library))
        )
        # Longer than all that the model sees.
        assert not options.top or {len(one.tokens) for one in expected} == {80}
        for ours, theirs in zip(found, expected, strict=True):
            assert (ours.text, ours.finish) == (theirs.text, theirs.finish)
            for token, other in zip(ours.tokens, theirs.tokens, strict=True):
                assert (token.text, len(token.top)) == (other.text, options.top)
                assert token.log_prob == pytest.approx(other.log_prob, abs=1e-3)
                assert dict(token.top) == pytest.approx(dict(other.top), abs=1e-3)


def test_prompts_that_are_none_are_refused(start: Start, kinds: Catalogue) -> None:
    client = start(*kinds)
    for prompt in ([0], [3], [10**6], [-1]):
        response = client.post("/v1/completions", json={"model": "some-gpt", "prompt": prompt})
        assert response.status_code == 400 and response.json()["error"]["param"] == "prompt"
    missing = client.post("/v1/completions", json={"model": "some-classifier", "prompt": "a"})
    assert "its route is /classify" in missing.json()["error"]["message"]


def test_labels_are_the_librarys_likeliest_first(start: Start, kinds: Catalogue, paths: dict[str, Path]) -> None:
    client = start(*kinds)
    library = clearhead.load(paths["classifier"], "cpu")
    texts = ["to be or not", "whether 'tis nobler " * 20, "我"]
    answer = client.post("/classify", json={"text": texts}).json()
    assert answer["model"] == "some-classifier"
    for text, labels in zip(texts, answer["labels"], strict=True):
        expected = library.probabilities(text)
        assert labels[0]["label"] == library.classify(text)
        assert {one["label"]: one["probability"] for one in labels} == pytest.approx(expected, abs=1e-5)
    one = client.post("/classify", json={"text": texts[0], "model": "some-classifier"}).json()
    for alone, together in zip(one["labels"], answer["labels"][0], strict=True):
        assert alone["label"] == together["label"]
        assert alone["probability"] == pytest.approx(together["probability"], abs=1e-6)
    assert client.post("/classify", json={"text": ""}).json()["labels"] == []
    wrong = client.post("/classify", json={"text": "a", "model": "some-gpt"})
    assert wrong.status_code == 400 and "ask it on /v1/completions" in wrong.json()["error"]


@pytest.mark.parametrize(
    ("name", "text", "off"),
    [
        ("some-gpt", "to be or not", "decoder.0.self.1"),
        ("some-classifier", "to be or not", "encoder.1.self.0"),
        ("some-bert", "to be or [MASK] to be", "encoder.0"),
    ],
)
def test_every_kind_can_be_looked_into(
    start: Start, kinds: Catalogue, paths: dict[str, Path], name: str, text: str, off: str
) -> None:
    client = start(*kinds)
    library = clearhead.load(paths[name.removeprefix("some-")], "cpu")
    plain = client.post("/attention", json={"text": text, "model": name}).json()
    assert plain["view"] == library.inspect(text).view and plain["text"]
    without = client.post("/attention", json={"text": text, "model": name, "ablate": [off]}).json()
    assert without["view"]["ablated"] == [off] and without["view"] != plain["view"]


def test_of_a_long_text_the_end_is_looked_at_that_a_language_model_sees(
    start: Start, kinds: Catalogue, paths: dict[str, Path]
) -> None:
    text = "to be or not to be, " * 40
    answer = start(*kinds).post("/attention", json={"text": text, "model": "some-gpt"}).json()
    (seen,) = answer["sentences"]
    assert text.endswith(seen) and answer["view"] == clearhead.load(paths["gpt"], "cpu").inspect(seen).view
    tokens = made_up_models.tokenizer().encode
    assert len(tokens(seen)) < made_up_models.SHAPE["max_len"] <= len(tokens(text[-len(seen) - 1 :])) + 1


def test_what_is_served_is_listed(start: Start, kinds: Catalogue) -> None:
    listed = start(*kinds).get("/models").json()
    assert [(one["name"], one["route"], one["shows_attention"]) for one in listed["models"]] == [
        ("some-gpt", "/v1/completions", True),
        ("some-classifier", "/classify", True),
        ("some-bert", "/attention", True),
    ]
