"""The ONNX graph of a language model says what torch says: at every shape, from an empty past on, with every part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.export.making import exported, made_gpt

from clearhead.engines.onnx_writing import OnnxWriter
from clearhead.engines.writing import ExportedWriter
from clearhead.errors import UnavailableError
from clearhead.export.onnx_gpt import AnyPlace
from clearhead.nn.positions import POSITIONS
from clearhead.run.continuing import LoadedGpt
from clearhead.text.specials import PAD_ID

pytest.importorskip("onnxruntime", reason="needs ONNX Runtime: pip install 'clearhead[export]'")
pytest.importorskip("onnxscript", reason="needs onnxscript: pip install 'clearhead[export]'")
pytestmark = pytest.mark.usefixtures("unchecked_for_all")

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "mixed": {
        "residual": "post", "positions": "alibi", "num_kv_heads": 2, "feedforward": "swiglu", "norm": "rms",
        "tied": False, "prune": ("decoder.0.self.0", "decoder.0.self.1"), "window": 4, "num_layers": 1,
    },
    "learned": {
        "positions": "learned", "residual": "none", "norm": "batch", "feedforward": "silu", "scale_embeddings": False,
        "num_layers": 1,
    },
}  # fmt: skip
"""Nearly every member of every family once: writing a model takes seconds."""
Both = tuple[LoadedGpt, ExportedWriter]


QUICK = ("plain",)
"""Those that are always tried."""


@pytest.fixture(
    scope="module", params=[name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in VARIANTS]
)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, unchecked_for_all: None) -> Both:
    """A model and its copy; writing one takes seconds, so all tests share them."""
    model = made_gpt(max_len=12, **VARIANTS[request.param])
    return model, exported(model, "onnx", tmp_path_factory.mktemp("onnx") / "model")


@torch.inference_mode()
def test_all_shapes_give_torchs_scores_from_an_empty_past_on(both: Both) -> None:
    model, copy = both
    graph = copy.engine._graph  # type: ignore[attr-defined]
    chance = np.random.default_rng(0)
    for number in range(70):
        rows, past = int(chance.integers(1, 6)), 0 if number % 3 == 0 else int(chance.integers(0, 11))
        time = int(chance.integers(1, 13 - past))
        ids = chance.integers(4, model.tokenizer.vocab_size, (rows, past + time))
        given = graph.empty_past(rows)
        if past:
            answer = graph.run({"ids": ids[:, :past], **given})
            given = {name.replace("present", "past"): array for name, array in answer.items() if name != "logits"}
        found = graph.run({"ids": ids[:, past:], **given})["logits"]
        expected = model.model(torch.from_numpy(ids))[:, -1].numpy()
        np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"strategy": "greedy"},
        {"strategy": "greedy", "loop_guard": True},
        {"seed": 4, "nbest": 2},
        {"top_k": 5, "top_p": 0.9, "temperature": 0.7},
        {"stop": ["e", "H"], "seed": 2},
        {"strategy": "beam", "beam_size": 3, "nbest": 2},
    ],
    ids=str,
)
def test_searches_find_what_torch_finds_past_all_that_is_seen(both: Both, options: dict[str, Any]) -> None:
    model, copy = both
    config = model.configured(length=20, **options)
    prompts = ["", "a", "b", "abc", "abcdefghijklmnopqrstuvwxyz"]
    ours, theirs = model.continuations(prompts, config), copy.continuations(prompts, config)
    assert [[one.text for one in best] for best in theirs] == [[one.text for one in best] for best in ours]
    for one, other in zip(ours, theirs, strict=True):
        assert [found.log_prob for found in one] == pytest.approx([found.log_prob for found in other], abs=1e-3)


@pytest.mark.parametrize("scheme", POSITIONS)
def test_places_are_the_same_though_nothing_is_asked_about_lengths(scheme: str) -> None:
    positions = POSITIONS[scheme](dim=12, num_heads=2, head_dim=6, max_len=20)
    if scheme == "learned":
        torch.nn.init.normal_(positions.get_parameter("weight"))
    anywhere = AnyPlace(positions)
    for offset, time in ((0, 1), (0, 20), (7, 3), (19, 1)):
        x, heads = torch.randn(2, time, 12), torch.randn(2, 2, time, 6)
        torch.testing.assert_close(anywhere.embed(x, offset), positions.embed(x, offset))
        torch.testing.assert_close(anywhere.rotate(heads, offset), positions.rotate(heads, offset))
        ours, theirs = anywhere.bias(time, offset + time), positions.bias(time, offset + time)
        assert (ours is None) == (theirs is None) and (ours is None or torch.equal(ours, theirs))


def test_texts_are_as_surprising_as_in_torch(both: Both) -> None:
    model, copy = both
    chance = np.random.default_rng(1)
    inputs, answers = (chance.integers(4, model.tokenizer.vocab_size, (5, 12)) for _ in range(2))
    answers[3, 7:] = PAD_ID
    np.testing.assert_allclose(copy.surprise(inputs, answers), model.surprise(inputs, answers), rtol=1e-5)


def test_a_stream_is_the_text_in_pieces(both: Both) -> None:
    model, copy = both
    assert isinstance(copy.engine, OnnxWriter)
    for options in ({"seed": 5}, {"seed": 6, "stop": ["e"]}, {"strategy": "greedy"}):
        pieces = list(copy.stream("abc", length=30, **options))
        assert "".join(pieces) == model.generate("abc", length=30, **options)
    assert len(pieces) == 30


@pytest.mark.slow
def test_int8_is_smaller_and_near(tmp_path: Path) -> None:
    model = made_gpt(num_layers=1, dim=128, ff_dim=512)
    copy = exported(model, "onnx", tmp_path / "int8", "int8")
    size = (tmp_path / "int8" / "model.onnx").stat().st_size
    assert size < 0.5 * 4 * sum(weights.numel() for weights in model.model.parameters())
    ids = model.encode("abcdef")
    apart = np.abs(copy.logits(ids, (5, 6, 7)) - model.logits(ids, (5, 6, 7))).max()
    assert 0 < apart < 1.0


def test_only_a_cpu_will_do(both: Both) -> None:
    from clearhead.engines.opening import open_exported

    path = both[1].path
    assert path is not None
    with pytest.raises(UnavailableError, match="the onnx engine computes on the CPU"):
        open_exported(path, "cuda", sealed=False)
