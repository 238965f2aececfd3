"""The laws of the language model, over every member of every table it is wired from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.shared.weights import stir
from torch import Tensor

from clearhead.checkpoint import model_tensors
from clearhead.config import build
from clearhead.errors import ConfigError
from clearhead.models.gpt import Gpt, GptConfig, GptState
from clearhead.nn.feedforward import FEED_FORWARDS
from clearhead.nn.kernels import KERNELS
from clearhead.nn.norms import NORMS
from clearhead.nn.positions import POSITIONS
from clearhead.nn.residual import RESIDUALS

VOCAB, BATCH, TIME = 11, 3, 6
SMALL: dict[str, Any] = {
    "vocab_size": VOCAB, "dim": 16, "ff_dim": 24, "num_heads": 4, "num_layers": 2, "dropout": 0.0, "max_len": 9,
}  # fmt: skip
Variant = dict[str, Any]
NewGpt = Callable[..., Gpt]

FITTING_NORMS = [name for name, kind in NORMS.items() if not kind.mixes_time]
VARIANTS: list[Variant] = [
    *({"norm": norm, "residual": residual} for norm in FITTING_NORMS for residual in RESIDUALS),
    *({"positions": positions} for positions in POSITIONS),
    *({"kernel": kernel, "window": 2, "positions": "alibi"} for kernel in KERNELS),
    *({"num_kv_heads": count, "kernel": kernel} for count, kernel in [(1, "exact"), (2, "fused"), (4, "batched")]),
    *({"feedforward": feedforward} for feedforward in FEED_FORWARDS),
    {"tied": False, "scale_embeddings": False},
    {"output_bias": True, "norm_eps": 1e-2},
    {"window": 2, "positions": "rotary", "num_kv_heads": 1},
    {"decoder_heads": [[0, 2, 3], [1]], "positions": "alibi"},
    {"decoder_heads": [[2, 3], [0, 1, 2, 3]], "num_kv_heads": 2},
]
ALL = pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: "-".join(f"{k}-{v}" for k, v in variant.items()))


@pytest.fixture
def new() -> NewGpt:
    """Build a small model in double precision, so that laws hold to the last digits, ready for inference."""

    def make(**settings: Any) -> Gpt:
        torch.manual_seed(0)
        model = Gpt(GptConfig(**{**SMALL, **settings}))
        stir(model)
        return model.double().eval()

    return make


def some_ids(batch: int = BATCH, time: int = TIME) -> Tensor:
    return torch.randint(VOCAB, (batch, time), generator=torch.Generator().manual_seed(1))


def lengths(time: int, *counts: int) -> Tensor:
    return torch.arange(time) < torch.tensor(counts)[:, None]


def assert_close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, atol=1e-8, rtol=1e-8)


def walk(model: Gpt, ids: Tensor, state: GptState) -> tuple[Tensor, GptState]:
    """The logits after each of some further tokens."""
    steps = []
    for column in ids.unbind(1):
        logits, state = model.step(column, state)
        steps.append(logits)
    return torch.stack(steps, 1), state


# Time and padding ----------------------------------------------------------------------------------------------------


@torch.no_grad()
@ALL
def test_the_future_does_not_change_the_past(new: NewGpt, variant: Variant) -> None:
    model, ids = new(**variant), some_ids(batch=1)
    # Row by row, another future begins one position later.
    past = torch.ones(TIME, TIME, dtype=torch.bool).tril()
    changed = torch.where(past, ids, (ids + 1) % VOCAB)
    before, after = model(ids).expand(TIME, -1, -1), model(changed)
    assert_close(after[past], before[past])
    assert ((after - before)[~past].abs().amax(-1) > 1e-6).all()


@pytest.mark.usefixtures("unchecked")
@torch.no_grad()
@ALL
def test_padding_does_not_change_the_rest(new: NewGpt, variant: Variant) -> None:
    model, ids, real = new(**variant), some_ids(), lengths(TIME, 6, 3, 1)
    other = torch.where(real, ids, (ids + 1) % VOCAB)
    for one in (model, model.train()):
        assert_close(one(ids, real)[real], one(other, real)[real])


@pytest.mark.usefixtures("unchecked")
@torch.no_grad()
@ALL
def test_batched_equals_one_by_one(new: NewGpt, variant: Variant) -> None:
    model, ids, counts = new(**variant), some_ids(), (6, 3, 1)
    batched = model(ids, lengths(TIME, *counts))
    for row, count in enumerate(counts):
        assert_close(batched[row, :count], model(ids[row : row + 1, :count])[0])


@torch.no_grad()
def test_without_positions_the_order_of_the_past_is_nothing(new: NewGpt) -> None:
    ids = torch.tensor([[3, 7, 1, 9, 4, 2]])
    for positions in POSITIONS:
        model = new(positions=positions, num_layers=1)
        turned = model(ids[:, [4, 2, 0, 3, 1, 5]])[:, -1]
        assert torch.allclose(turned, model(ids)[:, -1], atol=1e-8) == (positions == "none"), positions


# Step by step --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("unchecked")
@torch.no_grad()
@ALL
def test_step_by_step_equals_all_at_once(new: NewGpt, variant: Variant) -> None:
    model, ids = new(**variant), some_ids(time=9)
    whole = model(ids)
    for read in (0, 1, 5):
        steps, _ = walk(model, ids[:, read:], model.start(ids[:, :read]))
        assert_close(steps, whole[:, read:])


@pytest.mark.usefixtures("unchecked")
@torch.no_grad()
@ALL
def test_past_the_longest_length_a_step_sees_the_window_and_nothing_else(new: NewGpt, variant: Variant) -> None:
    model, ids = new(**variant), some_ids(time=30)
    steps, state = walk(model, ids, model.start(ids[:, :0]))
    for length in range(1, 31):
        seen = ids[:, model.first_seen(length) : length]
        assert_close(steps[:, length - 1], model(seen)[:, -1])
    assert state.cache.length <= model.config.max_len


@pytest.mark.usefixtures("unchecked")
@torch.no_grad()
@pytest.mark.parametrize("positions", POSITIONS)
def test_it_does_not_matter_what_was_prompt_and_what_was_generated(new: NewGpt, positions: str) -> None:
    model, ids = new(positions=positions), some_ids(time=30)
    steps, _ = walk(model, ids, model.start(ids[:, :0]))
    for read in (1, 8, 9, 10, 13, 29):
        logits, _ = model.step(ids[:, read], model.start(ids[:, :read]))
        assert_close(logits, steps[:, read])


@pytest.mark.parametrize("max_len", [2, 3, 4, 8, 9, 256])
def test_the_window_is_never_longer_than_the_longest_length_and_never_far_shorter(max_len: int, new: NewGpt) -> None:
    model = new(max_len=max_len)
    for length in range(1, 4 * max_len):
        seen = length - model.first_seen(length)
        assert seen == length if length <= max_len else 3 * max_len / 4 <= seen <= max_len
        assert model.first_seen(length) <= model.first_seen(length + 1)


@pytest.mark.usefixtures("unchecked")
@torch.no_grad()
@pytest.mark.parametrize("rows", [[2, 0, 1], [1, 1, 0, 1, 2], [2], []], ids=str)
@pytest.mark.parametrize("positions", POSITIONS)
def test_selected_rows_go_on_as_if_they_had_been_alone(new: NewGpt, positions: str, rows: list[int]) -> None:
    model = new(positions=positions, num_kv_heads=2)
    ids, index = some_ids(), torch.tensor(rows, dtype=torch.long)
    state = model.start(ids)
    further = torch.randint(VOCAB, (len(rows), 6))
    steps, _ = walk(model, further, state.select(index))
    alone, _ = walk(model, further, model.start(ids[index]))
    assert_close(steps, alone)
    assert state.cache.length == TIME, "the state that was selected from is as it was"


# Gradients -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("unchecked")
@ALL
def test_every_parameter_gets_a_gradient(new: NewGpt, variant: Variant) -> None:
    model = new(**variant).train()
    output = model(some_ids())
    (output * torch.randn_like(output)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        # A shift of all keys moves every score alike.
        if not name.endswith(".bias") and name != "decoder.positions.weight":
            assert parameter.grad.abs().max() > 1e-8, name


@pytest.mark.usefixtures("unchecked")
@ALL
@pytest.mark.parametrize("kernel", [name for name in KERNELS if name != "exact"])
def test_all_kernels_agree_forward_and_backward(new: NewGpt, kernel: str, variant: Variant) -> None:
    results = []
    for name in ("exact", kernel):
        model = new(**{**variant, "kernel": name}).train()
        output = model(some_ids(), lengths(TIME, 2, 6, 3))
        (output * torch.linspace(-1, 1, output.numel()).view_as(output)).sum().backward()
        results.append([output.detach(), *(p.grad for p in model.parameters()), *model.buffers()])
    for one, other in zip(*results, strict=True):
        assert_close(one, other)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "variant",
    [{}, {"positions": "learned", "norm": "rms", "residual": "post"}, {"tied": False, "num_kv_heads": 1, "window": 4}],
    ids=str,
)
def test_one_batch_can_be_overfitted(variant: Variant) -> None:
    torch.manual_seed(0)
    model = Gpt(GptConfig(**{**SMALL, "dim": 32, **variant}))
    # From the second on, each row is another: the first token tells nothing of what follows.
    ids = torch.randint(VOCAB, (BATCH, 8))
    ids[:, 0] = torch.arange(BATCH)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(80):
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.1


def test_dropout_acts_in_training_only(new: NewGpt) -> None:
    model, ids = new(dropout=0.5, attention_dropout=0.5), some_ids()
    assert torch.equal(model(ids), model(ids))
    model.train()
    assert not torch.allclose(model(ids), model(ids), atol=0.01)


# Wiring --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_table_is_one_parameter(new: NewGpt, tied: bool) -> None:
    model = new(tied=tied)
    assert (model.output.weight is model.embedding.weight) == tied
    stored = [name for name in model_tensors(model) if name in ("embedding.weight", "output.weight")]
    assert len(stored) == (1 if tied else 2)


def test_parameter_paths_can_be_read_aloud(new: NewGpt) -> None:
    names = {name for name, _ in new().named_parameters()}
    assert names >= {
        "embedding.weight",
        "decoder.blocks.1.attention.query.weight",
        "decoder.blocks.0.feedforward.inner.weight",
        "decoder.final_norm.weight",
    }


# What is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", [name for name, kind in NORMS.items() if kind.mixes_time])
def test_a_norm_that_mixes_time_is_refused(new: NewGpt, norm: str) -> None:
    with pytest.raises(ConfigError, match=f"norm '{norm}' looks at later positions, which a decoder must not"):
        new(norm=norm)


def test_a_language_model_without_a_vocabulary_is_refused(new: NewGpt) -> None:
    with pytest.raises(ConfigError) as error:
        new(vocab_size=0)
    assert str(error.value) == "a language model needs vocab_size: it comes from the tokenizer"


def test_heads_of_another_depth_are_refused(new: NewGpt) -> None:
    with pytest.raises(ConfigError, match="heads must have one list for each of 2 layers, not 1"):
        new(decoder_heads=[[0]])


def test_a_misspelt_setting_is_met_with_the_nearest() -> None:
    with pytest.raises(ConfigError) as error:
        build(GptConfig, {"layers": 3, "positions": "rotarx"}, "config.json")
    assert "unknown key 'layers', did you mean 'num_layers'?" in str(error.value)
    assert "'positions' = 'rotarx': unknown position scheme, did you mean 'rotary'?" in str(error.value)
