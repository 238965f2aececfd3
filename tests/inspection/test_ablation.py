"""A head that is off contributes nothing, comes back afterwards, and can be taken out for good."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from clearhead.checkpoint import load_model, save_model
from clearhead.errors import ConfigError
from clearhead.inspection.ablation import ablated, prune_heads
from clearhead.inspection.names import all_heads
from clearhead.inspection.record import recording
from clearhead.models.reduction import ReduceConfig
from clearhead.models.translator import Translator
from clearhead.nn.masks import real_tokens
from clearhead.nn.positions import POSITIONS
from clearhead.text.specials import PAD_ID
from clearhead.text.tokenizer import TokenizerPair

pytestmark = pytest.mark.usefixtures("unchecked")

Maker = Callable[..., Translator]


def batch() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    source = torch.randint(4, 260, (3, 7), generator=torch.Generator().manual_seed(1))
    target = torch.randint(4, 260, (3, 5), generator=torch.Generator().manual_seed(2))
    source[1, 4:] = source[2, 1:] = target[1, 3:] = PAD_ID
    return source, target, real_tokens(source, PAD_ID), real_tokens(target, PAD_ID)


@torch.no_grad()
def said(model: Translator) -> Tensor:
    """What a model says where it is asked something."""
    source, target, *real = batch()
    return model(source, target, *real)[real[1]]


def hooks(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def without_its_output(model: Translator, path: str, places: list[int]) -> Tensor:
    """The same by other means: the columns of the output projection that read these heads are zero."""
    attention = model.get_submodule(path)
    assert isinstance(attention.output, nn.Linear)
    kept = attention.output.weight.data.clone()
    for place in places:
        attention.output.weight.data[:, 4 * place : 4 * place + 4] = 0.0
    found = said(model)
    attention.output.weight.data = kept
    return found


@pytest.mark.parametrize(
    ("name", "path", "places"),
    [
        ("decoder.1.cross.2", "decoder.blocks.1.cross", [2]),
        ("cross.1.2", "decoder.blocks.1.cross", [2]),
        ("decoder.0.self.0", "decoder.blocks.0.attention", [0]),
        ("encoder.1.3", "encoder.blocks.1.attention", [3]),
        ("encoder.0.self", "encoder.blocks.0.attention", [0, 1, 2, 3]),
    ],
)
def test_a_head_that_is_off_contributes_zero(make: Maker, name: str, path: str, places: list[int]) -> None:
    model = make()
    whole = said(model)
    with ablated(model, name) as silent:
        found = said(model)
    assert {head.number for head in silent} == set(places) and len(silent) == len(places)
    torch.testing.assert_close(found, without_its_output(model, path, places), atol=1e-6, rtol=1e-6)
    assert float((found - whole).abs().max()) > 1e-3
    assert torch.equal(said(model), whole) and hooks(model) == 0


def test_a_layer_that_is_off_hands_on_what_it_was_given(make: Maker) -> None:
    model = make()
    with ablated(model, "encoder.0", "decoder.1") as silent:
        found = said(model)
    assert sorted(head.name for head in silent) == sorted(
        f"{part}.{head}" for part in ("encoder.0.self", "decoder.1.self", "decoder.1.cross") for head in range(4)
    )
    del model.encoder.blocks[0], model.decoder.blocks[1]
    torch.testing.assert_close(found, said(model))


def test_everything_comes_back_after_an_error(make: Maker) -> None:
    model = make()
    whole = said(model)
    with pytest.raises(ZeroDivisionError), ablated(model, "encoder.0", "decoder.1.cross.1"):
        raise ZeroDivisionError
    assert hooks(model) == 0 and torch.equal(said(model), whole)


def test_recording_and_ablation_go_together_in_either_order(make: Maker) -> None:
    model = make()
    with ablated(model, "encoder.0.self.1"):
        expected = said(model)
        with recording(model) as tape:
            inside = said(model)
    with recording(model), ablated(model, "encoder.0.self.1"):
        outside = said(model)
    torch.testing.assert_close(inside, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(outside, expected, atol=1e-5, rtol=1e-5)
    assert tape.of("encoder")[0].weights.shape[1] == 4


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("decoder.1.cros.2", r"no head or layer 'decoder.1.cros.2': did you mean 'decoder.1.cross.2'\?"),
        ("encoder.0.self.4", r"did you mean 'encoder.0.self.[0-3]'\?"),
        ("head", "names are like encoder.0, decoder.2.self or decoder.2.cross.5"),
    ],
)
def test_an_unknown_name_is_met_with_the_nearest(make: Maker, name: str, advice: str) -> None:
    model = make()
    with pytest.raises(ConfigError, match=advice), ablated(model, "encoder.0", name):
        raise AssertionError
    assert hooks(model) == 0


PRUNED = ["decoder.1.cross.2", "decoder.1.cross.0", "decoder.0.self.3", "encoder.0.self.0", "encoder.0.self.1"]


@pytest.mark.parametrize(
    "changes", [*({"positions": name} for name in POSITIONS), {"tie": "all"}, {"residual": "post"}]
)
def test_a_pruned_model_says_what_the_ablated_one_says(make: Maker, changes: dict[str, str]) -> None:
    model = make(**changes)
    with ablated(model, *PRUNED):
        expected = said(model)
    smaller = prune_heads(model, PRUNED)
    torch.testing.assert_close(said(smaller), expected, atol=1e-5, rtol=1e-5)
    assert sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in smaller.parameters()) == 5 * (
        4 * 4 * 16 + 3 * 4
    )
    assert [head.name for head in all_heads(smaller)] == [
        head.name for head in all_heads(model) if head.name not in PRUNED
    ]


def test_pruning_twice_is_pruning_both(make: Maker) -> None:
    model = make(positions="alibi")
    twice = prune_heads(prune_heads(model, PRUNED[:2]), PRUNED[2:])
    assert twice.config == prune_heads(model, PRUNED).config
    torch.testing.assert_close(said(twice), said(prune_heads(model, PRUNED)))


def test_heads_that_share_their_keys_are_pruned_together(make: Maker) -> None:
    model = make(num_kv_heads=2)
    with pytest.raises(ConfigError, match=r"encoder.0.self.2, encoder.0.self.3 share .*: prune all of them or none"):
        prune_heads(model, ["encoder.0.self.3"])
    names = ["encoder.0.self.2", "encoder.0.self.3", "decoder.1.cross.0", "decoder.1.cross.1"]
    with ablated(model, *names):
        expected = said(model)
    torch.testing.assert_close(said(prune_heads(model, names)), expected, atol=1e-5, rtol=1e-5)


def test_what_cannot_be_pruned_is_refused(make: Maker) -> None:
    model = make()
    with pytest.raises(ConfigError, match=r"'encoder.0' is a whole layer: name heads, such as encoder.0.self.0"):
        prune_heads(model, ["encoder.0"])
    with pytest.raises(ConfigError, match=r"decoder.1.cross would lose all its heads: leave it at least one"):
        prune_heads(model, ["decoder.1.cross"])
    with pytest.raises(ConfigError, match=r"did you mean 'decoder.1.cross.1'"):
        prune_heads(model, ["decoder.1.crosss.1"])


def test_heads_that_have_a_say_in_which_tokens_become_fewer_stay(make: Maker) -> None:
    model = make(reduce=ReduceConfig(kind="merge", r=2))
    with pytest.raises(ConfigError, match=r"encoder.0.self.1 cannot be taken out while tokens become fewer"):
        prune_heads(model, ["encoder.0.self.1", "decoder.1.cross.2"])
    with ablated(model, "decoder.1.cross.2"):
        expected = said(model)
    torch.testing.assert_close(said(prune_heads(model, ["decoder.1.cross.2"])), expected, atol=1e-5, rtol=1e-5)


def test_a_pruned_model_is_stored_and_loaded(make: Maker, tokenizers: TokenizerPair, tmp_path: Path) -> None:
    smaller = prune_heads(make(), PRUNED)
    save_model(tmp_path / "small", smaller, tokenizers, generation={}, card="", training_config="")
    loaded = load_model(tmp_path / "small").model
    assert loaded.config == smaller.config and torch.equal(said(loaded), said(smaller))


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ([[0], [1], [2]], "heads must have one list for each of 2 layers, not 3"),
        ([[0], []], r"heads \[\] must be some of 0 to 3, in order"),
        ([[0], [1, 0]], r"heads \[1, 0\] must be some of 0 to 3"),
        ([[0], [4]], r"heads \[4\] must be some of 0 to 3"),
    ],
)
def test_a_config_with_impossible_heads_is_refused(make: Maker, heads: list[list[int]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(encoder_heads=heads)
