"""What a recorder hears is what the heads did, and afterwards nothing is changed."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from clearhead.inspection.record import kind_and_layer, recording
from clearhead.models.translator import Translator, TranslatorConfig
from clearhead.nn.attention import Attention
from clearhead.nn.kernels import KERNELS
from clearhead.nn.positions import POSITIONS

SOURCE_LENGTHS, TARGET_LENGTHS = (7, 4, 1), (5, 5, 2)


def translator(**changes: object) -> Translator:
    torch.manual_seed(3)
    settings = {"dim": 16, "ff_dim": 24, "num_heads": 4, "encoder_layers": 2, "decoder_layers": 3, "max_len": 16}
    sizes = {"source_vocab_size": 30, "target_vocab_size": 40}
    return Translator(TranslatorConfig.model_validate({**settings, **sizes, **changes})).eval()


def batch() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Source and target ids of three rows, and which of them are not padding."""
    real = [torch.arange(max(lengths)) < torch.tensor(lengths)[:, None] for lengths in (SOURCE_LENGTHS, TARGET_LENGTHS)]
    source = torch.randint(4, 30, real[0].shape, generator=torch.Generator().manual_seed(1))
    target = torch.randint(4, 40, real[1].shape, generator=torch.Generator().manual_seed(2))
    return source, target, real[0], real[1]


VARIANTS = [
    *({"positions": positions} for positions in POSITIONS),
    *({"kernel": kernel} for kernel in KERNELS),
    {"num_kv_heads": 1}, {"num_kv_heads": 2}, {"window": 2}, {"residual": "post"}, {"tie": "none"},
]  # fmt: skip


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_listening_changes_nothing_that_is_said(changes: dict[str, object]) -> None:
    model = translator(**changes)
    with torch.no_grad():
        outside = model(*batch())
        with recording(model):
            inside = model(*batch())
        again = model(*batch())
    torch.testing.assert_close(inside, outside, atol=1e-5, rtol=1e-5)
    assert torch.equal(again, outside)


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_each_row_is_spread_over_what_may_be_seen(changes: dict[str, object]) -> None:
    model = translator(**changes)
    source, target, source_real, target_real = batch()
    with torch.no_grad(), recording(model) as tape:
        model(source, target, source_real, target_real)
    for kind, looking, hidden in (
        ("encoder", source_real, ~source_real[:, None, None, :]),
        ("cross", target_real, ~source_real[:, None, None, :]),
        ("decoder", target_real, torch.ones(5, 5, dtype=torch.bool).triu(1)[None, None]),
    ):
        for look in tape.of(kind):
            assert look.weights.min() >= 0
            assert look.weights.masked_select(hidden.expand_as(look.weights)).abs().max() == 0
            # Padding itself may see nothing at all, and then looks at nothing.
            sums = look.weights.sum(-1).transpose(1, 2)[looking]
            torch.testing.assert_close(sums, torch.ones_like(sums))


def test_looks_are_labelled_by_kind_and_layer() -> None:
    model = translator()
    with recording(model) as tape:
        model(*batch())
    assert [(look.kind, look.layer) for look in tape.looks] == [
        *(("encoder", layer) for layer in range(2)),
        *((kind, layer) for layer in range(3) for kind in ("decoder", "cross")),
    ]
    shapes = {look.kind: tuple(look.weights.shape) for look in tape.looks}
    assert shapes == {"encoder": (3, 4, 7, 7), "decoder": (3, 4, 5, 5), "cross": (3, 4, 5, 7)}
    assert [look.layer for look in tape.of("cross")] == [0, 1, 2]
    assert tape.of("nothing") == []


@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
def test_weights_equal_those_worked_out_by_hand_from_the_projections(num_kv_heads: int) -> None:
    model = translator(num_kv_heads=num_kv_heads)
    projected: dict[str, Tensor] = {}
    for path, module in model.named_modules():
        if isinstance(module, nn.Linear) and path.endswith((".query", ".key")):
            module.register_forward_hook(lambda _, inputs, output, path=path: projected.update({path: output}))
    with torch.no_grad(), recording(model) as tape:
        model(*batch())
    paths = [path for path, module in model.named_modules() if isinstance(module, Attention)]
    assert len(paths) == len(tape.looks) == 8
    for path in paths:
        kind, layer = kind_and_layer(path)
        found = tape.of(kind)[layer].weights
        expected = by_hand(projected[f"{path}.query"], projected[f"{path}.key"], num_kv_heads, kind)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def by_hand(query: Tensor, key: Tensor, num_kv_heads: int, kind: str) -> Tensor:
    """Softmax of scaled products, one row, head and position at a time, over the keys that may be seen."""
    weights = torch.zeros(3, 4, query.shape[1], key.shape[1])
    for row in range(3):
        for head in range(4):
            own, shared = slice(4 * head, 4 * head + 4), head // (4 // num_kv_heads)
            for place in range(query.shape[1]):
                seen = place + 1 if kind == "decoder" else SOURCE_LENGTHS[row]
                keys = key[row, :seen, 4 * shared : 4 * shared + 4]
                scores = keys @ query[row, place, own] / math.sqrt(4)
                weights[row, head, place, :seen] = scores.exp() / scores.exp().sum()
    return weights


def kernels(model: nn.Module) -> list[int]:
    return [id(module.kernel) for module in model.modules() if isinstance(module, Attention)]


def test_the_kernels_come_back_also_after_an_error() -> None:
    model = translator()
    before, names, mode = kernels(model), list(model.state_dict()), model.training
    with recording(model):
        assert not set(kernels(model)) & set(before)
    assert kernels(model) == before
    with pytest.raises(ZeroDivisionError), recording(model):
        raise ZeroDivisionError
    assert kernels(model) == before and list(model.state_dict()) == names and model.training == mode


def test_recordings_can_be_nested_and_hear_only_while_they_last() -> None:
    model = translator()
    with torch.no_grad(), recording(model) as outer:
        model(*batch())
        with recording(model) as inner:
            model(*batch())
        model(*batch())
    model(*batch())
    assert (len(outer.looks), len(inner.looks)) == (16, 8)


def test_generation_is_heard_step_by_step() -> None:
    model = translator()
    source, _, source_real, _ = batch()
    with torch.no_grad(), recording(model) as tape:
        state = model.start(source, source_real)
        for length in range(1, 4):
            _, state = model.step(torch.full((3,), 5), state)
            assert tuple(tape.of("decoder")[length - 1].weights.shape) == (3, 4, 1, length)
    assert len(tape.of("cross")) == 9


def test_hypotheses_of_one_sentence_are_heard_apart() -> None:
    model = translator()
    source, _, source_real, _ = batch()
    # Six hypotheses of three sentences, in no order; then four of two, so that a memory is left behind.
    seated = (torch.tensor([0, 1, 1, 2, 0, 1]), torch.tensor([5, 0, 4, 1]))
    sentence, said = torch.arange(3), torch.full((3, 1), 1)
    with torch.no_grad():
        state = model.start(source, source_real)
        for rows in (torch.arange(3), *seated):
            sentence, said, state = sentence[rows], said[rows], state.select(rows)
            with recording(model) as tape:
                _, state = model.step(said[:, -1], state)
            with recording(model) as alone:
                model(source[sentence], said, source_real[sentence])
            for kind in ("decoder", "cross"):
                for heard, expected in zip(tape.of(kind), alone.of(kind), strict=True):
                    torch.testing.assert_close(heard.weights, expected.weights[:, :, -1:], atol=1e-5, rtol=1e-5)
            for look in tape.of("cross"):
                assert look.allowed is not None
                assert torch.equal(look.allowed[:, 0, 0], source_real[sentence])
            said = torch.cat((said, 5 + torch.arange(len(rows))[:, None]), 1)
    assert not model.decoder.blocks[0].cross._forward_pre_hooks


def test_weights_are_heard_before_dropout_and_hold_no_graph() -> None:
    model = translator(attention_dropout=0.5).train()
    with recording(model) as tape:
        model(*batch())
    for look in tape.of("encoder"):
        torch.testing.assert_close(look.weights.sum(-1), torch.ones(3, 4, 7))
        assert not look.weights.requires_grad


def test_parts_of_a_model_can_be_recorded_alone() -> None:
    model = translator()
    source, _, source_real, _ = batch()
    with torch.no_grad(), recording(model.encoder) as tape:
        model.encode(source, source_real)
    assert [(look.kind, look.layer) for look in tape.looks] == [("attention", 0), ("attention", 1)]
    alone = model.encoder.blocks[0].attention
    with torch.no_grad(), recording(alone) as tape:
        alone(torch.randn(1, 3, 16))
    assert [(look.kind, look.layer) for look in tape.looks] == [("attention", 0)]
