"""The ONNX graphs of classifiers, BERTs and Vision Transformers say what torch says, at every shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.export.making import exported, made_bert, made_classifier, made_vit, texts

from clearhead.engines.graph import Graph
from clearhead.errors import UnavailableError
from clearhead.export.targets import write_model
from clearhead.models.bert import Bert

pytest.importorskip("onnxruntime", reason="needs ONNX Runtime: pip install 'clearhead[export]'")
pytest.importorskip("onnxscript", reason="needs onnxscript: pip install 'clearhead[export]'")
pytestmark = pytest.mark.usefixtures("unchecked_for_all")

CLASSIFIERS: list[dict[str, Any]] = [
    {"pooling": "mean", "num_segments": 2, "feedforward": "swiglu", "norm": "instance", "num_layers": 1},
    {
        "pooling": "attention", "positions": "rotary", "norm": "group", "window": 5, "num_kv_heads": 2,
        "residual": "post", "num_layers": 1, "long_texts": "windows",
    },
]  # fmt: skip
VITS: list[dict[str, Any]] = [
    {"num_layers": 1},
    {
        "stem": "convolutions",
        "pooling": "attention",
        "positions": "sinusoidal",
        "norm": "rms",
        "num_kv_heads": 1,
        "num_layers": 1,
    },
    {"stem": "deep", "pooling": "mean", "num_layers": 1},
]
"""Few, for writing a model takes seconds; the parts themselves are those of the translators."""


@pytest.mark.parametrize("pooling", ["attention", pytest.param("mean", marks=pytest.mark.slow)])
def test_a_classifier_gives_the_same_labels_at_every_length(pooling: str, tmp_path: Path) -> None:
    model = made_classifier(**next(variant for variant in CLASSIFIERS if variant["pooling"] == pooling))
    copy = exported(model, "onnx", tmp_path / "model")
    chance = np.random.default_rng(0)
    for _ in range(60):
        rows, longest = int(chance.integers(1, 6)), int(chance.integers(1, 23))
        pieces = [chance.integers(4, 30, chance.integers(1, longest + 1)) for _ in range(rows)]
        np.testing.assert_allclose(copy.scores(pieces), model.scores(pieces), atol=1e-5)
    sources = ["", *texts(30, 60), "  "]
    assert copy.classify(sources) == model.classify(sources)
    for one, other in zip(copy.stream(sources), model.stream(sources), strict=True):
        assert (one.tokens, one.read) == (other.tokens, other.read)
        assert one.probabilities == pytest.approx(other.probabilities, abs=1e-5)


def test_a_bert_fills_gaps_with_the_same(tmp_path: Path) -> None:
    model = made_bert(positions="alibi", residual="post", num_layers=1)
    copy = exported(model, "onnx", tmp_path / "model")
    sources = [text[:at] + "[MASK]" + text[at + 1 :] for at, text in enumerate(texts(20)) if text]
    for text in [*sources, "[MASK]", "a [MASK] b[MASK]"]:
        one, other = copy.fill(text, 4), model.fill(text, 4)
        assert one.text == other.text
        for ours, theirs in zip(one.gaps, other.gaps, strict=True):
            assert [found.token for found in ours] == [found.token for found in theirs]
            sure = [found.probability for found in theirs]
            assert [found.probability for found in ours] == pytest.approx(sure, abs=1e-5)
    check_segments(Graph(tmp_path / "model" / "model.onnx"), model.model)


def check_segments(graph: Graph, model: Bert) -> None:
    """Two segments, hidden tokens and padding in: the same logits out, and the same opinion of what follows."""
    chance = np.random.default_rng(2)
    for rows, length in ((1, 1), (3, 8), (2, 21)):
        ids = chance.integers(4, 30, (rows, length))
        segments, hidden = chance.integers(0, 2, ids.shape), chance.random(ids.shape) < 0.2
        real = np.arange(length) < chance.integers(1, length + 1, (rows, 1))
        found = graph.run({"ids": ids, "hidden": hidden, "real": real, "segments": segments})
        with torch.inference_mode():
            given = (torch.from_numpy(array) for array in (ids, hidden, segments))
            x = model.encode(*given, real=torch.from_numpy(real))
            logits, follows = model.named(x.flatten(0, 1)), model.follows(x[:, 0])
        apart = np.abs(found["logits"].reshape(logits.shape) - logits.numpy())
        assert apart[real.flatten()].max() < 1e-5
        np.testing.assert_allclose(found["follows"], follows.numpy(), atol=1e-5)


@pytest.mark.parametrize("variant", VITS, ids=lambda variant: variant.get("pooling", "first"))
def test_pictures_get_the_same_labels_in_any_number(variant: dict[str, Any], tmp_path: Path) -> None:
    model = made_vit(**variant)
    copy = exported(model, "onnx", tmp_path / "model")
    assert (copy.form, copy.labels, copy.batch_size) == (model.form, model.labels, model.batch_size)
    pictures = np.random.default_rng(1).integers(0, 256, (40, 3, 8, 12), dtype=np.uint8)
    for count in (1, 2, 40):
        np.testing.assert_allclose(copy.logits(pictures[:count]), model.logits(pictures[:count]), atol=1e-5)


@pytest.mark.slow
def test_int8_is_smaller_and_near(tmp_path: Path) -> None:
    model = made_bert(dim=128, ff_dim=512, num_layers=1)
    copy = exported(model, "onnx", tmp_path / "int8", "int8")
    size = (tmp_path / "int8" / "model.onnx").stat().st_size
    assert size < 0.5 * 4 * sum(weights.numel() for weights in model.model.parameters())
    given = model.encode("ab[MASK]de")
    apart = np.abs(copy.logits(given) - model.logits(given)).max()
    assert 0 < apart < 1.0


@pytest.mark.slow
def test_int8_pictures_get_nearly_the_same_scores(tmp_path: Path) -> None:
    model = made_vit(dim=128, ff_dim=512, num_layers=1)
    copy = exported(model, "onnx", tmp_path / "int8", "int8")
    size = (tmp_path / "int8" / "model.onnx").stat().st_size
    assert size < 0.5 * 4 * sum(weights.numel() for weights in model.model.parameters())
    pictures = np.random.default_rng(1).integers(0, 256, (8, 3, 8, 12), dtype=np.uint8)
    apart = np.abs(copy.logits(pictures) - model.logits(pictures)).max()
    assert 0 < apart < 1.0


@pytest.mark.parametrize("kind", ["merge", "prune", "prune_hard"])
def test_tokens_that_become_fewer_are_refused(kind: str, tmp_path: Path) -> None:
    said = (
        f"no export can express this model: its tokens become fewer on the way (reduce.kind is '{kind}'), and how many "
        "are left depends on what it reads; with --reduce none all of them are kept"
    )
    for loaded in (made_classifier(reduce={"kind": kind}), made_vit(reduce={"kind": kind})):
        with pytest.raises(UnavailableError) as error:
            write_model("onnx", loaded.model, None, tmp_path, None)
        assert str(error.value) == said
    assert list(tmp_path.iterdir()) == []
