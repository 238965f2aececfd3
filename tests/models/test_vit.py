"""The laws of the Vision Transformer, with every grid, pooling and reduction."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.config import build
from clearhead.errors import ConfigError
from clearhead.models.reduction import ReduceConfig, reduce_tokens
from clearhead.models.vit import Vit, VitConfig
from clearhead.nn.norms import Norm
from clearhead.nn.patches import GRIDS, STEMS
from clearhead.nn.pooling import POOLINGS
from clearhead.nn.reduction import REDUCTIONS

SMALL: dict[str, Any] = {
    "labels": ["cat", "dog", "owl"], "height": 8, "width": 12, "channels": 3, "mean": [0.4, 0.5, 0.6],
    "spread": [0.2, 0.3, 0.1], "patch": 2, "dim": 16, "ff_dim": 24, "num_heads": 4, "num_layers": 2, "dropout": 0.0,
}  # fmt: skip
AT_WORK = {"none": {}, "merge": {"r": 3}, "prune": {"threshold": 0.95}, "prune_hard": {"threshold": 0.95}}


def new_vit(**settings: Any) -> Vit:
    torch.manual_seed(0)
    return Vit(VitConfig(**{**SMALL, **settings})).eval()


def pictures(count: int = 4) -> Tensor:
    torch.manual_seed(1)
    return torch.randint(0, 256, (count, 3, 8, 12), dtype=torch.uint8)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("positions", GRIDS)
def test_there_is_one_score_for_each_label(positions: str, pooling: str) -> None:
    model = new_vit(positions=positions, pooling=pooling)
    assert model(pictures()).shape == (4, 3)
    assert model.config.max_len == 4 * 6 + POOLINGS[pooling].is_first


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("kind", REDUCTIONS)
def test_batched_equals_one_by_one(kind: str, pooling: str, stem: str) -> None:
    model = new_vit(stem=stem, pooling=pooling, reduce=ReduceConfig(kind=kind, **AT_WORK[kind])).double()
    together = model(pictures())
    for row in range(4):
        torch.testing.assert_close(model(pictures()[row : row + 1])[0], together[row], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("kind", ["merge", "prune", "prune_hard"])
def test_fewer_tokens_than_patches_come_back_and_the_class_token_among_them(kind: str) -> None:
    tokens = new_vit(reduce=ReduceConfig(kind=kind, **AT_WORK[kind])).encode(pictures())
    assert tokens.x.shape[1] < 25
    assert tokens.holder is not None
    assert (tokens.holder[:, 0] == 0).all() and ((tokens.holder == 0).sum(1) == 1).all()


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("kind", REDUCTIONS)
def test_where_nothing_is_asked_for_nothing_changes_to_the_bit(kind: str, pooling: str) -> None:
    rest = ReduceConfig(kind=kind, r=0, threshold=0.0)
    assert torch.equal(new_vit(pooling=pooling, reduce=rest)(pictures()), new_vit(pooling=pooling)(pictures()))


def test_equal_patches_can_be_merged_without_a_trace_in_the_answer() -> None:
    """Mean pooling and attention count a token for all that it holds."""
    model = new_vit(pooling="mean", positions="none").double()
    same = pictures(1)[:, :, :2, :2].repeat(1, 1, 4, 6)
    wanted = model(same)
    reduce_tokens(model, ReduceConfig(kind="merge", r=8))
    assert model.encode(same).x.shape[1] < 24
    torch.testing.assert_close(model(same), wanted, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("kind", REDUCTIONS)
@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("positions", GRIDS)
def test_every_parameter_gets_a_gradient(positions: str, pooling: str, kind: str) -> None:
    model = new_vit(positions=positions, pooling=pooling, reduce=ReduceConfig(kind=kind, **AT_WORK[kind])).train()
    tokens = model.encode(pictures())
    logits = model.answer(tokens)
    total = (logits * torch.randn_like(logits)).sum()
    total = total if tokens.price is None else total + tokens.price.sum()
    total.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        if not name.endswith("key.bias"):
            assert parameter.grad.abs().max() > 1e-9, name


def test_one_batch_can_be_learnt_by_heart() -> None:
    model, labels = new_vit().train(), torch.tensor([0, 1, 2, 0])
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(60):
        loss = torch.nn.functional.cross_entropy(model(pictures()), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.05
    assert model.eval()(pictures()).argmax(1).tolist() == labels.tolist()


def test_norms_add_to_the_variance_what_was_asked_for() -> None:
    model, eps = new_vit(norm_eps=0.25), new_vit().encoder.final_norm.eps
    assert {module.eps for module in model.modules() if isinstance(module, Norm)} == {0.25} != {eps}


def test_pictures_are_put_in_order_by_mean_and_spread() -> None:
    """A picture of the mean colour is nothing but positions."""
    model = new_vit(mean=[0.2, 0.4, 0.6])
    mean = torch.tensor([51, 102, 153], dtype=torch.uint8)[None, :, None, None].expand(1, 3, 8, 12)
    seen: list[Tensor] = []
    model.patches.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    model(mean)
    torch.testing.assert_close(seen[0], torch.zeros_like(seen[0]), atol=1e-6, rtol=0)


def test_a_reduction_can_be_switched_on_and_off_in_a_model_that_is_there() -> None:
    model = new_vit()
    whole = model(pictures())
    reduce_tokens(model, ReduceConfig(kind="merge", r=4))
    assert model.config.reduce.kind == "merge"
    assert not torch.equal(model(pictures()), whole)
    reduce_tokens(model, ReduceConfig())
    assert torch.equal(model(pictures()), whole)


def test_learnt_thresholds_stay_unless_others_are_asked_for() -> None:
    model = new_vit(reduce=ReduceConfig(kind="prune"))
    with torch.no_grad():
        model.encoder.blocks[1].reduction.threshold.fill_(0.77)
    reduce_tokens(model, ReduceConfig(kind="prune_hard"))
    assert model.encoder.blocks[1].reduction.threshold.item() == pytest.approx(0.77)
    reduce_tokens(model, ReduceConfig(kind="prune_hard", threshold=0.5))
    assert model.encoder.blocks[1].reduction.threshold.item() == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"labels": ["cat"]}, "a ViT needs at least two labels and the size of its pictures: they come from the data"),
        ({"height": 0}, "a ViT needs at least two labels and the size of its pictures: they come from the data"),
        ({"mean": [0.5]}, "a ViT needs mean and spread for each of 3 channels: they come from the data"),
        (
            {"patch": 3},
            "pictures of 8 x 12 cannot be cut into patches of 3 x 3: set model.patch to one of 1, 2, 4",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        new_vit(**settings)
    assert str(error.value) == message


def test_misspelt_settings_of_the_reduction_are_named() -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'reduce\.rr', did you mean 'r'\?|'reduce\.rr'"):
        build(VitConfig, {**SMALL, "reduce": {"kind": "merge", "rr": 3}}, "here")
    with pytest.raises(ConfigError, match="unknown reduction, did you mean 'merge'"):
        build(VitConfig, {**SMALL, "reduce": {"kind": "murge"}}, "here")
