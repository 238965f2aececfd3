"""ONNX graphs say what torch says, at every shape, with every part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.export import making
from tests.export.making import made, texts

from clearhead.engines.onnx import OnnxEngine
from clearhead.engines.opening import open_exported
from clearhead.engines.texts import ExportedTranslator
from clearhead.errors import UnavailableError
from clearhead.run.exporting import Original
from clearhead.run.translating import LoadedTranslator
from clearhead.text.specials import BOS_ID

pytest.importorskip("onnxruntime", reason="needs ONNX Runtime: pip install 'clearhead[export]'")
pytest.importorskip("onnxscript", reason="needs onnxscript: pip install 'clearhead[export]'")
pytestmark = pytest.mark.usefixtures("unchecked_for_all")

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "mixed": {
        "residual": "post", "positions": "rotary", "num_kv_heads": 2, "feedforward": "swiglu", "norm": "rms",
        "tie": "none", "output_bias": True, "prune": ("encoder.0.self.0", "encoder.0.self.1"), "window": 4,
    },
    "odd": {
        "residual": "none", "positions": "alibi", "norm": "instance", "decoder_norm": "batch", "feedforward": "gelu",
        "tie": "all", "prune": ("decoder.0.self.2", "decoder.0.cross.1"), "scale_embeddings": False,
    },
    "bare": {"positions": "learned", "norm": "group", "decoder_norm": "layer", "feedforward": "silu", "joint": False},
}  # fmt: skip
"""Nearly every member of every family once: writing a model takes seconds."""


QUICK = ("mixed",)
"""Those that are always tried."""
SHAPES = 200
"""Of a batch: how many rows, how long their sources, and how far a past grows that is empty at first."""


def exported(translator: LoadedTranslator, directory: Path, quantize: str | None = None) -> ExportedTranslator:
    found = making.exported(translator, "onnx", directory, quantize, threads=2)
    assert isinstance(found, ExportedTranslator)
    return found


@pytest.fixture(
    scope="module", params=[name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in VARIANTS]
)
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, unchecked_for_all: None
) -> tuple[LoadedTranslator, ExportedTranslator]:
    """A translator and its copy; writing one takes seconds, so all tests share them."""
    translator = made(encoder_layers=1, decoder_layers=1, **VARIANTS[request.param])
    return translator, exported(translator, tmp_path_factory.mktemp("onnx") / "model")


def test_all_shapes_give_torchs_scores_from_an_empty_past_on(
    both: tuple[LoadedTranslator, ExportedTranslator],
) -> None:
    translator, copy = both
    engine, original = copy.engine, Original(translator)
    assert isinstance(engine, OnnxEngine)
    chance = np.random.default_rng(0)
    config = translator.model.config
    for _ in range(SHAPES):
        batch, steps = int(chance.integers(1, 5)), int(chance.integers(1, config.max_len))
        sources = [chance.integers(4, config.source_vocab_size, chance.integers(1, 23)).tolist() for _ in range(batch)]
        target = chance.integers(4, config.target_vocab_size, (batch, steps))
        read = torch.from_numpy(np.concatenate((np.full((batch, 1), BOS_ID), target[:, :-1]), 1))
        expected = [_logits(original, source, row) for source, row in zip(sources, read, strict=True)]
        state, found = engine.start(sources), []
        for step in range(steps):
            logits, state = engine.step(read[:, step].numpy(), state)
            found.append(logits)
        np.testing.assert_allclose(np.stack(found, 1), np.stack(expected), atol=1e-4)


@torch.inference_mode()
def _logits(original: Original, source: list[int], read: torch.Tensor) -> Any:
    return original.translator.model(torch.tensor([[*source, 1]]), read[None])[0].numpy()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beam_size": 4, "nbest": 3},
        {"beam_size": 3, "length_penalty": 0.0, "no_repeat_ngram": 2},
        {"strategy": "sample", "nbest": 2, "seed": 4},
        {"strategy": "sample", "top_k": 5, "top_p": 0.9, "temperature": 0.7},
    ],
    ids=str,
)
def test_searches_find_what_torch_finds(
    both: tuple[LoadedTranslator, ExportedTranslator], options: dict[str, Any]
) -> None:
    translator, copy = both
    config = translator.configured(**options)
    sources = ["", *texts(20), " "]
    ours, theirs = list(translator.stream(sources, config, 1)), list(copy.stream(sources, config))
    assert [[one.text for one in best] for best in theirs] == [[one.text for one in best] for best in ours]
    for one, other in zip(ours, theirs, strict=True):
        assert [found.score for found in one] == pytest.approx([found.score for found in other], abs=1e-4)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_row_that_is_unwanted_ends_at_the_next_step_and_changes_nothing_for_the_rest(
    both: tuple[LoadedTranslator, ExportedTranslator], beam_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = both[1].engine
    assert isinstance(engine, OnnxEngine)
    sources = [both[1].tokenizers.source.encode(text) for text in texts(40)[::-1]]
    config = both[1].configured(beam_size=beam_size, min_len=5, loop_guard=False)
    steps, plain = [0], engine.step

    def counted(ids: Any, state: Any) -> Any:
        steps[0] += 1
        return plain(ids, state)

    monkeypatch.setattr(engine, "step", counted)
    monkeypatch.setattr(engine, "threads", 1)
    whole = engine.search(sources, config, range(len(sources)))
    patient, gone = steps[0], {*range(0, len(sources), 3)}
    some = engine.search(sources, config, range(len(sources)), lambda: gone)
    for row, (one, other) in enumerate(zip(some, whole, strict=True)):
        assert [found.ids for found in one] == ([()] if row in gone else [found.ids for found in other])
    steps[0] = 0
    assert all(best[0].ids == () for best in engine.search(sources, config, range(40), lambda: range(40)))
    assert steps[0] <= 5 < patient


def test_int8_is_smaller_and_near(tmp_path: Path) -> None:
    translator = made(encoder_layers=1, decoder_layers=1, dim=128, ff_dim=512)
    copy = exported(translator, tmp_path / "int8", "int8")
    size = sum(path.stat().st_size for path in (tmp_path / "int8").glob("*.onnx"))
    assert size < 0.5 * 4 * sum(weights.numel() for weights in translator.model.parameters())
    (source,) = translator.encode(["abcdef"], 0)
    target = (5, 6, 7, 8)
    apart = np.abs(copy.engine.logits(source, target) - Original(translator).logits("abcdef", target)).max()
    assert 0 < apart < 1.0


def test_every_graph_is_one_file(both: tuple[LoadedTranslator, ExportedTranslator]) -> None:
    path = both[1].path
    assert path is not None and {file.name for file in path.glob("*.onnx*")} == {"encoder.onnx", "decoder.onnx"}


def test_only_a_cpu_will_do(both: tuple[LoadedTranslator, ExportedTranslator]) -> None:
    _, copy = both
    assert copy.path is not None
    with pytest.raises(UnavailableError, match="the onnx engine computes on the CPU"):
        open_exported(copy.path, "cuda", sealed=False)
