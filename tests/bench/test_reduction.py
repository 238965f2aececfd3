"""Fewer tokens measured: every way is tried on the same batches, and the model is afterwards what it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from clearhead.bench.reduction import Measured, Way, draw, measure, reduced, remark, row, ways
from clearhead.data.labelled import LabelledBatch, framed
from clearhead.data.pictures import PictureBatch
from clearhead.models.classifier import Classifier, ClassifierConfig
from clearhead.models.reduction import ReduceConfig
from clearhead.models.vit import Vit, VitConfig


def new_vit(**settings: object) -> Vit:
    torch.manual_seed(0)
    config = VitConfig(
        labels=["a", "b"], height=8, width=8, channels=1, mean=[0.5], spread=[0.3], patch=2, dim=8, ff_dim=8,
        num_heads=2, num_layers=2, **settings,
    )  # fmt: skip
    return Vit(config).eval()


def batches(count: int) -> list[PictureBatch]:
    chance = np.random.default_rng(0)
    shapes = [(chance.integers(0, 256, (4, 1, 8, 8)).astype(np.uint8), chance.integers(0, 2, 4)) for _ in range(count)]
    return [PictureBatch(pixels, labels, np.arange(4)) for pixels, labels in shapes]


def test_every_way_has_its_own_settings() -> None:
    merging = ways("merge", [0, 4])
    assert [way.name for way in merging] == ["all tokens", "merge, r = 0", "merge, r = 4"]
    assert [way.config.r for way in merging[1:]] == [0, 4]
    falling = ways("merge", [4], r_last=0)[1]
    assert (falling.name, falling.config.r, falling.config.r_last) == ("merge, r = 4 to 0", 4, 0)
    untaught, taught = ways("prune", [0.5]), ways("prune", [0.5], learnt=True)
    assert (untaught[1].config.threshold, untaught[1].scale) == (0.5, 1.0)
    assert (taught[1].config.threshold, taught[1].scale) == (None, 0.5)


@pytest.mark.parametrize("way", [*ways("merge", [3]), *ways("prune", [0.0, 2.0], learnt=True)])
def test_afterwards_the_model_is_what_it_was(way: Way) -> None:
    model = new_vit(reduce=ReduceConfig(kind="prune"))
    with torch.no_grad():
        model.encoder.blocks[0].reduction.threshold.fill_(0.7)
    before = {name: x.clone() for name, x in model.state_dict().items()}
    with reduced(model, way):
        if way.config.kind == "prune_hard":
            assert model.encoder.blocks[0].reduction.threshold.item() == pytest.approx(0.7 * way.scale)
    assert model.config.reduce == ReduceConfig(kind="prune")
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())


def test_right_answers_are_those_of_the_model() -> None:
    model, given = new_vit(), batches(3)
    found = measure(model, given, ways("merge", [0, 4]), rounds=2, timed=1)
    whole = sum(int((model(torch.from_numpy(b.pictures)).argmax(1).numpy() == b.labels).sum()) for b in given)
    assert [one.total for one in found] == [12, 12, 12]
    assert found[0].right == found[1].right == whole
    assert [one.tokens for one in found] == [17.0, 17.0, 9.0]
    assert found[0].faster == 1.0 and all(one.per_second > 0 for one in found)


def test_tokens_are_counted_in_short_and_in_long_texts() -> None:
    sizes = {"dim": 8, "ff_dim": 8, "num_heads": 2, "num_layers": 2, "max_len": 16}
    model = Classifier(ClassifierConfig(labels=["a", "b"], vocab_size=9, **sizes)).eval()
    texts = [[np.array([4, 5])] * 3, [np.array([6, 7, 8, 4, 5, 6])] * 3]
    given = [LabelledBatch(*framed(rows), np.zeros(3, dtype=np.int64), None, np.arange(3)) for rows in texts]
    assert [one.tokens for one in measure(model, given, ways("merge", [1]), rounds=1)] == [6.0, 4.5]


def test_figures_are_told_and_drawn(tmp_path: Path) -> None:
    found = [Measured("all tokens", 90, 100, 50.0, 1.0, 197.0), Measured("merge, r = 8", 100, 100, 81.4, 1.63, 149.0)]
    assert row(found[1]) == ("merge, r = 8", "100.00 %", "96.30 to 100.00", "81", "1.63", "149.0")
    assert remark(found, 2).startswith("100 examples; 2 threads; ")
    draw(found, tmp_path / "curve.png", "a model")
    assert (tmp_path / "curve.png").stat().st_size > 1000
