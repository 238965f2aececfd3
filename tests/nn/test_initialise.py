"""Initial values: the bounds they promise, and that nothing is forgotten."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from clearhead.errors import ConfigError
from clearhead.nn.embedding import OutputLayer, TokenEmbedding
from clearhead.nn.feedforward import FEED_FORWARDS
from clearhead.nn.initialise import STARTS, initialise
from clearhead.nn.norms import NORMS, Norm
from clearhead.nn.positions import POSITIONS, Learned
from clearhead.nn.stacks import build_stack

SMALL = {"dim": 16, "num_heads": 2, "ff_dim": 24, "num_layers": 1, "max_len": 8}


@pytest.mark.parametrize(("inputs", "outputs"), [(40, 40), (30, 120)])
def test_matrices_fill_the_glorot_interval_and_biases_are_zero(inputs: int, outputs: int) -> None:
    linear = nn.Linear(inputs, outputs)
    initialise(linear)
    bound = math.sqrt(6 / (inputs + outputs))
    assert 0.95 * bound < linear.weight.abs().max() <= bound
    assert linear.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)
    assert (linear.bias == 0).all()


def test_a_matrix_without_bias_is_fine() -> None:
    linear = nn.Linear(8, 8, bias=False)
    linear.weight.data.fill_(math.nan)
    initialise(linear)
    assert linear.weight.isfinite().all()


def test_scaled_tokens_enter_with_unit_variance_and_logits_start_at_about_one() -> None:
    embedding = TokenEmbedding(400, 64)
    output = OutputLayer(64, 400)
    initialise(nn.ModuleList([embedding, output]))
    for weight in (embedding.weight, output.weight):
        assert weight.std().item() == pytest.approx(1 / 8, rel=0.05)
        assert weight.mean().item() == pytest.approx(0, abs=0.01)
    tokens = embedding(torch.arange(400)[None])
    assert tokens.std().item() == pytest.approx(1, rel=0.05)
    assert output(torch.randn(1, 50, 64)).std().item() == pytest.approx(1, rel=0.1)


def test_an_annotated_start_draws_tables_as_it_draws_matrices() -> None:
    embedding, output = TokenEmbedding(400, 64), OutputLayer(64, 400)
    initialise(nn.ModuleList([embedding, output]), "annotated")
    bound = math.sqrt(6 / (400 + 64))
    for weight in (embedding.weight, output.weight):
        assert 0.95 * bound < weight.abs().max() <= bound
        assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)


def test_learned_positions_start_small() -> None:
    positions = Learned(dim=64, num_heads=2, head_dim=32, max_len=50)
    initialise(positions)
    assert positions.weight.std().item() == pytest.approx(0.02, rel=0.1)


VARIED = (
    [{"norm": name} for name in NORMS]
    + [{"positions": name} for name in POSITIONS]
    + [{"feedforward": name} for name in FEED_FORWARDS]
)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("variant", VARIED, ids=lambda variant: "-".join(*variant.items()))
def test_no_parameter_is_forgotten_and_norms_start_as_they_were_made(variant: dict[str, str], start: str) -> None:
    stack = build_stack(**SMALL, **variant, cross=True)
    norms = [module for module in stack.modules() if isinstance(module, Norm)]
    kept = {parameter: parameter.clone() for norm in norms for parameter in norm.parameters()}
    for parameter in stack.parameters():
        if parameter not in kept:
            parameter.data.fill_(math.nan)
    initialise(stack, start)
    for parameter in stack.parameters():
        assert parameter.isfinite().all()
        assert parameter not in kept or torch.equal(parameter, kept[parameter])


def test_a_seed_repeats_the_weights() -> None:
    stacks = [build_stack(**SMALL, positions="learned") for _ in range(2)]
    for stack in stacks:
        torch.manual_seed(7)
        initialise(stack)
    for one, other in zip(stacks[0].parameters(), stacks[1].parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("feedforward", FEED_FORWARDS)
def test_at_a_still_start_tokens_pass_through_as_they_are(feedforward: str) -> None:
    stack = build_stack(**SMALL, feedforward=feedforward, cross=True, positions="rotary")
    initialise(stack, "still")
    x, context = torch.randn(2, 5, 16), torch.randn(2, 3, 16)
    assert stack.final_norm is not None
    assert torch.equal(stack(x, context=context), stack.final_norm(x))


def test_a_still_start_differs_only_in_what_sublayers_add() -> None:
    stacks = {start: build_stack(**SMALL, cross=True) for start in STARTS}
    for start, stack in stacks.items():
        torch.manual_seed(7)
        initialise(stack, start)
    still = dict(stacks["still"].named_parameters())
    for name, parameter in stacks["glorot"].named_parameters():
        silent = name.endswith((".output.weight", ".outer.weight"))
        assert torch.equal(still[name], torch.zeros_like(parameter) if silent else parameter), name


def test_after_two_steps_from_a_still_start_every_matrix_has_moved() -> None:
    stack = build_stack(**SMALL, cross=True)
    initialise(stack, "still")
    before = {name: parameter.clone() for name, parameter in stack.named_parameters() if parameter.ndim == 2}
    optimizer = torch.optim.SGD(stack.parameters(), lr=0.1)
    x, context, wanted = torch.randn(2, 5, 16), torch.randn(2, 3, 16), torch.randn(2, 5, 16)
    for _ in range(2):
        optimizer.zero_grad()
        (stack(x, context=context) - wanted).square().mean().backward()
        optimizer.step()
    assert not [
        name for name, parameter in stack.named_parameters() if name in before and parameter.equal(before[name])
    ]


def test_a_still_start_without_a_way_around_is_refused() -> None:
    stack = build_stack(**SMALL, residual="none")
    with pytest.raises(ConfigError, match="start 'still' needs a way around each sublayer"):
        initialise(stack, "still")


def test_an_unknown_start_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="still"):
        initialise(nn.Linear(2, 2), "stil")
