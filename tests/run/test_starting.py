"""Weights of another model to start from: what is taken, and what somebody has said otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.checkpoint import StoredModel, named_tensors
from clearhead.errors import ConfigError
from clearhead.models.classifier import Classifier, ClassifierConfig
from clearhead.models.reduction import ReduceConfig
from clearhead.models.translator import Translator, TranslatorConfig
from clearhead.run.starting import take_weights


def classifier(kind: str, threshold: float | None) -> Classifier:
    reduce = ReduceConfig(kind=kind, threshold=threshold)
    sizes: dict[str, Any] = {
        "dim": 8,
        "ff_dim": 8,
        "num_heads": 2,
        "num_layers": 2,
        "vocab_size": 9,
        "labels": ["a", "b"],
    }
    return Classifier(ClassifierConfig(reduce=reduce, **sizes))


def thresholds(model: Classifier) -> list[float]:
    return [tensor.item() for name, tensor in named_tensors(model).items() if name.endswith(".reduction.threshold")]


@pytest.mark.parametrize("kind", ["prune", "prune_hard"])
@pytest.mark.parametrize(("said", "found"), [(None, [0.25, 0.5]), (0.8, [0.4, 0.8]), (0.0, [0.0, 0.0])])
def test_thresholds_are_those_that_were_learnt_unless_somebody_has_said_where_to_begin(
    kind: str, said: float | None, found: list[float]
) -> None:
    start, model = classifier("prune", 0.5), classifier(kind, said)
    note = take_weights(model, StoredModel(start, None, None, Path("runs/soft")))
    assert thresholds(model) == pytest.approx(found)
    assert ("new: encoder.blocks.0.reduction.threshold" in note) == (said is not None)
    ours, theirs = named_tensors(model), named_tensors(start)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours if not name.endswith(".threshold"))


def translator(decoder_layers: int, start: str = "glorot", encoder_layers: int = 1) -> Translator:
    sizes: dict[str, Any] = {"dim": 8, "ff_dim": 8, "num_heads": 2, "encoder_layers": encoder_layers, "max_len": 8}
    vocabulary: dict[str, Any] = {"source_vocab_size": 9, "target_vocab_size": 9}
    return Translator(TranslatorConfig(decoder_layers=decoder_layers, start=start, **sizes, **vocabulary)).eval()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_heads", 4),
        ("positions", "rotary"),
        ("feedforward", "gelu"),
        ("residual", "post"),
        ("norm", "rms"),
        ("decoder_norm", "rms"),
    ],
)
def test_weights_that_would_be_read_otherwise_are_not_taken(name: str, value: Any) -> None:
    known = translator(1)
    other = Translator(known.config.model_copy(update={name: value}))
    with pytest.raises(ConfigError, match=rf"from runs/known, .*: model\.{name} is .* there and {value} here"):
        take_weights(other, StoredModel(known, None, None, Path("runs/known")))


def tied(tie: str) -> Translator:
    return Translator(translator(1).config.model_copy(update={"tie": tie})).eval()


@pytest.mark.parametrize(("there", "here"), [("all", "target"), ("all", "none"), ("target", "none")])
def test_a_table_that_was_tied_is_taken_for_all_that_it_was(there: str, here: str) -> None:
    known, model = tied(there), tied(here)
    note = take_weights(model, StoredModel(known, None, None, Path("runs/known")))
    assert "new:" not in note
    source, target = torch.randint(3, 9, (2, 5)), torch.randint(3, 9, (2, 4))
    assert torch.equal(model(source, target), known(source, target))


@pytest.mark.parametrize(("there", "here"), [("none", "target"), ("none", "all"), ("target", "all")])
def test_tables_that_differ_are_not_made_one(there: str, here: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot start .* from runs/known, .* are two tables there and one here"):
        take_weights(tied(here), StoredModel(tied(there), None, None, Path("runs/known")))


def test_new_decoder_layers_change_nothing_at_a_still_start() -> None:
    known, deeper = translator(2), translator(4, "still")
    note = take_weights(deeper, StoredModel(known, None, None, Path("runs/known")))
    assert "new: decoder.blocks.2." in note
    source, target = torch.randint(3, 9, (2, 5)), torch.randint(3, 9, (2, 4))
    assert torch.equal(deeper(source, target), known(source, target))
    loud = translator(4)
    take_weights(loud, StoredModel(known, None, None, Path("runs/known")))
    assert not torch.allclose(loud(source, target), known(source, target))


def test_new_encoder_layers_change_nothing_at_a_still_start_and_are_refused_at_others() -> None:
    known = translator(1)
    deeper, loud = (translator(2, start, encoder_layers=3) for start in ("still", "glorot"))
    note = take_weights(deeper, StoredModel(known, None, None, Path("runs/known")))
    assert "new: encoder.blocks.1." in note
    source, target = torch.randint(3, 9, (2, 5)), torch.randint(3, 9, (2, 4))
    assert torch.equal(deeper(source, target), known(source, target))
    with pytest.raises(ConfigError, match=r"it has no encoder\.blocks\.1\."):
        take_weights(loud, StoredModel(known, None, None, Path("runs/known")))


@pytest.mark.parametrize("feedforward", ["relu", "swiglu"])
@pytest.mark.parametrize("start", ["glorot", "still"])
def test_a_wider_feed_forward_changes_nothing_at_first_and_learns_in_all_its_parts(
    feedforward: str, start: str
) -> None:
    shape = translator(2).config.model_copy(update={"feedforward": feedforward})
    known, wider = (Translator(shape.model_copy(update=it)).eval() for it in ({}, {"ff_dim": 12, "start": start}))
    note = take_weights(wider, StoredModel(known, None, None, Path("runs/known")))
    assert "new:" not in note and "are wider here" in note
    source, target = torch.randint(3, 9, (2, 5)), torch.randint(3, 9, (2, 4))
    found = wider(source, target)
    torch.testing.assert_close(found, known(source, target))
    found.square().sum().backward()
    outer = wider.encoder.blocks[0].feedforward.outer.weight
    assert outer.grad is not None
    assert outer.grad[:, 8:].any(), "a new feature is never read"


def test_a_narrower_feed_forward_is_refused() -> None:
    known = translator(1)
    narrower = Translator(known.config.model_copy(update={"ff_dim": 6}))
    with pytest.raises(ConfigError, match=r"inner\.\w+ is 8.* there and 6.* here; give \[model\] the sizes"):
        take_weights(narrower, StoredModel(known, None, None, Path("runs/known")))
