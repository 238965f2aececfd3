"""Optimizers: what orthogonalising does, and which parameters it is done to."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from clearhead.models.reduction import ReduceConfig
from clearhead.models.translator import Translator, TranslatorConfig
from clearhead.models.vit import Vit, VitConfig
from clearhead.training.distributed import SOLO, Team
from clearhead.training.optimizers import (
    OPTIMIZERS,
    Adam,
    AdamW,
    Muon,
    make_optimizer,
    orthogonalise,
    orthogonalised,
    rate_shares,
    set_rate,
    state_tensors,
)
from clearhead.training.settings import TrainConfig


def translator() -> Translator:
    shape = {"dim": 16, "ff_dim": 32, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    return Translator(TranslatorConfig(source_vocab_size=20, target_vocab_size=20, tie="all", **shape))


@pytest.mark.parametrize("shape", [(3, 16, 16), (2, 16, 48), (2, 48, 16)])
def test_orthogonalised_matrices_have_singular_values_near_one_and_the_same_directions(
    shape: tuple[int, int, int],
) -> None:
    torch.manual_seed(1)
    x = torch.randn(shape)
    u, _, v = torch.linalg.svd(x, full_matrices=False)
    found = u.mT @ orthogonalise(x) @ v.mT
    values = found.diagonal(dim1=1, dim2=2)
    assert ((values > 0.3) & (values < 1.3)).all()
    assert torch.allclose(found, torch.diag_embed(values), atol=1e-4)


@pytest.mark.parametrize("shape", [(24, 24), (40, 16), (16, 40)])
def test_orthogonalising_in_bf16_finds_about_the_same(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape)
    wide, (narrow,) = orthogonalise(x), orthogonalised([x], torch.bfloat16)
    assert narrow.dtype == torch.float32 and narrow.shape == x.shape
    assert float((narrow - wide).norm() / wide.norm()) < 0.03


def test_stacked_matrices_are_orthogonalised_as_each_alone() -> None:
    x = torch.randn(4, 8, 12)
    alone = torch.cat([orthogonalise(matrix[None]) for matrix in x])
    assert torch.allclose(orthogonalise(x), alone, atol=1e-5)


def vit(**more: Any) -> Vit:
    picture = {"height": 8, "width": 8, "channels": 1, "mean": [0.5], "spread": [0.5], "patch": 4, "pooling": "first"}
    shape = {"dim": 16, "ff_dim": 32, "num_heads": 2, "num_layers": 2, "positions": "learned"}
    return Vit(VitConfig(labels=["bag", "boot"], **picture, **shape, **more))


@pytest.mark.parametrize("make", [translator, vit, partial(vit, stem="deep")])
def test_muon_moves_matrices_inside_the_layers_and_leaves_tables_places_and_vectors_to_adam(
    make: Callable[[], nn.Module],
) -> None:
    model = make()
    optimizer = OPTIMIZERS["muon"](model, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0)
    for group in optimizer.param_groups:
        group["lr"] = 1e-3
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    kinds = {name.rsplit("/", 1)[0]: name.rsplit("/", 1)[1] for name in state_tensors(optimizer, model)}
    assert set(kinds) == {name for name, _ in model.named_parameters()}
    for name, parameter in model.named_parameters():
        # The first convolution reads pixels, and embeds.
        by_muon = (parameter.ndim == 2 and ".blocks." in name) or (parameter.ndim == 4 and ".0." not in name)
        assert (kinds[name] == "momentum") == by_muon, name


def test_what_reads_a_picture_learns_like_what_embeds_a_text() -> None:
    model = vit()
    shares = rate_shares(model, 0.5)
    found = {name: shares[parameter] for name, parameter in model.named_parameters()}
    assert {found[name] for name in found if name.startswith(("patches.", "grid.", "class_token."))} == {0.5**3}
    assert {found[name] for name in found if ".blocks.1." in name} == {0.5}
    assert found["output.weight"] == 1.0


def test_thresholds_move_by_a_rate_of_their_own() -> None:
    model = vit(reduce=ReduceConfig(kind="prune"))
    settings = TrainConfig(steps=1, layer_decay=0.5, threshold_rate=30.0)
    optimizer = make_optimizer(model, settings)
    set_rate(optimizer, 0.01)
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    found = {name: rates[id(p)] for name, p in model.named_parameters()}
    assert [rate for name, rate in found.items() if name.endswith(".threshold")] == pytest.approx([0.3, 0.3])
    assert found["encoder.blocks.1.attention.query.weight"] == pytest.approx(0.005)


def test_a_muon_step_is_about_as_large_as_one_of_adam() -> None:
    """The root mean square of an update is 0.2 times the rate, whatever the shape."""
    weights = [torch.zeros(64, 64), torch.zeros(64, 256), torch.zeros(256, 64), torch.zeros(64, 16, 3, 3)]
    optimizer = Muon(weights, [torch.zeros(3)], betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0)
    optimizer.param_groups[0]["lr"] = 0.5
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    optimizer.step()
    for weight in weights:
        assert weight.square().mean().sqrt() == pytest.approx(0.2 * 0.5, rel=0.25)


def test_muon_pulls_matrices_towards_zero_by_its_weight_decay() -> None:
    weight = torch.ones(8, 8)
    weight.grad = torch.zeros_like(weight)
    optimizer = Muon([weight], [torch.zeros(1)], betas=(0.9, 0.98), eps=1e-9, weight_decay=0.5)
    optimizer.param_groups[0]["lr"] = 0.1
    optimizer.step()
    assert torch.allclose(weight, torch.full((8, 8), 0.95))


class Alone(Team):
    """One of a team whose others never answer."""

    def add_up(self, tensor: torch.Tensor) -> None:
        pass


@pytest.mark.parametrize("products", [None, torch.bfloat16])
@pytest.mark.parametrize("size", [2, 3])
def test_a_team_shares_muons_matrices_out_and_misses_none(size: int, products: torch.dtype | None) -> None:
    """What each process would do alone adds up to what one process does, and no matrix is done twice."""

    def moves(team: Team) -> list[torch.Tensor]:
        chance = torch.Generator().manual_seed(1)
        weights = [torch.zeros(shape) for shape in [(8, 8), (8, 24), (24, 8), (8, 8), (8, 4, 3, 3)]]
        settings: dict[str, Any] = {"betas": (0.9, 0.98), "eps": 1e-9, "weight_decay": 0.0, "products": products}
        optimizer = Muon(weights, [torch.zeros(3)], **settings, team=team)
        optimizer.param_groups[0]["lr"] = 0.5
        for weight in weights:
            weight.grad = torch.randn(weight.shape, generator=chance)
        optimizer.step()
        return weights

    shares = [moves(Alone(rank=rank, size=size)) for rank in range(size)]
    for whole, *parts in zip(moves(SOLO), *shares, strict=True):
        assert sum(bool(part.any()) for part in parts) == 1
        assert torch.equal(whole, torch.stack(parts).sum(0))


@pytest.mark.parametrize(("ours", "torchs"), [(Adam, torch.optim.Adam), (AdamW, torch.optim.AdamW)])
def test_adam_steps_as_torchs_own_to_the_bit(ours: type[Any], torchs: type[torch.optim.Optimizer]) -> None:
    models = [translator().eval(), translator().eval()]
    models[1].load_state_dict(models[0].state_dict())
    settings = {"lr": 0.1, "betas": (0.9, 0.98), "weight_decay": 0.1, "fused": True}
    optimizers = [kind(model.parameters(), **settings) for kind, model in zip((ours, torchs), models, strict=True)]
    for _ in range(3):
        for model, optimizer in zip(models, optimizers, strict=True):
            model(torch.full((2, 4), 5), torch.full((2, 3), 6)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    mine, theirs = (model.state_dict() for model in models)
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


def test_training_does_not_import_the_compiler() -> None:
    """It takes two seconds, for each process that trains."""
    script = """
import sys, torch
from clearhead.models.translator import Translator, TranslatorConfig
from clearhead.training.optimizers import OPTIMIZERS
model = Translator(TranslatorConfig(dim=8, ff_dim=8, num_heads=1, source_vocab_size=9, target_vocab_size=9))
for make in OPTIMIZERS.values():
    optimizer = make(model, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.1)
    model(torch.full((2, 4), 5), torch.full((2, 3), 6)).mean().backward()
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.zero_grad()
assert "torch._dynamo" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
