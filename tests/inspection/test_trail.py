"""Trails: where tokens went is told truly, and looks and rollouts are told of the tokens that came in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.inspection.conftest import Maker
from torch import Tensor

from clearhead.inspection import measures
from clearhead.inspection.ablation import ablated
from clearhead.inspection.overlays import draw_overlays, draw_trail_on_picture, draw_trail_on_words
from clearhead.inspection.record import recording
from clearhead.inspection.trail import at_inputs, following, on_inputs, rollout, told_of_inputs
from clearhead.nn.initialise import initialise
from clearhead.nn.reduction import build_reductions
from clearhead.nn.stacks import Stack, build_stack
from clearhead.nn.tokens import Tokens

TIME, LAYERS = 9, 3


def new_encoder(kind: str = "none", **how: float) -> torch.nn.Module:
    torch.manual_seed(0)
    model = torch.nn.Module()
    model.encoder = build_stack(
        dim=8, num_heads=2, ff_dim=8, num_layers=LAYERS, max_len=TIME, positions="none",
        reductions=build_reductions(kind, LAYERS, **how),
    )  # fmt: skip
    initialise(model)
    return model.eval()


def run(model: torch.nn.Module, special: bool = False) -> Tokens:
    stack = model.encoder
    assert isinstance(stack, Stack)
    torch.manual_seed(1)
    first = (torch.arange(TIME) == 0)[None] if special else None
    with torch.no_grad():
        return stack.run(Tokens(torch.randn(1, TIME, 8), special=first))


@pytest.mark.parametrize(("kind", "how"), [("merge", {"r": 2}), ("prune_hard", {"threshold": 1.0}), ("none", {})])
def test_a_trail_ends_where_the_tokens_are(kind: str, how: dict[str, float]) -> None:
    model = new_encoder(kind, **how)
    with following(model) as trail:
        tokens = run(model)
    assert len(trail.holders) == LAYERS
    assert trail.left()[-1] == tokens.x.shape[1]
    if tokens.holder is not None:
        assert torch.equal(trail.holders[-1], tokens.holder)
    kept = {token for group in trail.groups(LAYERS - 1) for token in group}
    gone = {token for layer in trail.dropped() for token in layer}
    assert kept | gone == set(range(TIME)) and not kept & gone
    assert (len(gone) > 0) == (kind == "prune_hard")
    assert (max(map(len, trail.groups(LAYERS - 1))) > 1) == (kind == "merge")


def test_a_layer_that_is_switched_off_makes_nothing_fewer() -> None:
    model = new_encoder("merge", r=2)
    with ablated(model, "encoder.1"), recording(model) as tape, following(model) as trail:
        tokens = run(model)
    assert trail.left() == [7, 7, 5] and tokens.x.shape[1] == 5
    assert [look.weights.shape[2] for look in tape.of("encoder")] == [9, 7, 7]
    assert rollout(tape, trail) is not None


def test_nobody_listens_afterwards() -> None:
    model = new_encoder("merge", r=2)
    with following(model) as trail:
        pass
    run(model)
    assert trail.holders == []


def test_a_token_in_another_gets_its_even_share_and_looks_as_that_one_does() -> None:
    weights = torch.tensor([[[0.6, 0.4], [0.1, 0.9]]])
    found = on_inputs(weights, torch.tensor([0, 1, 1, -1]))
    wanted = [[0.6, 0.2, 0.2, 0.0], [0.1, 0.45, 0.45, 0.0], [0.1, 0.45, 0.45, 0.0], [0.0] * 4]
    torch.testing.assert_close(found[0], torch.tensor(wanted))


def test_who_looks_across_sees_a_token_in_another_by_its_even_share() -> None:
    found = at_inputs(torch.tensor([[[0.6, 0.4]]]), torch.tensor([0, 1, 1, -1]))
    torch.testing.assert_close(found, torch.tensor([[[0.6, 0.2, 0.2, 0.0]]]))


@pytest.mark.parametrize("how", [{"kind": "merge", "r": 2}, {"kind": "prune_hard", "threshold": 1.0}], ids=str)
def test_a_translators_heads_are_told_of_the_source_that_came_in(make: Maker, how: dict[str, object]) -> None:
    model, source, target = make(reduce=how), torch.randint(4, 260, (1, TIME)), torch.randint(4, 260, (1, 5))
    with torch.no_grad(), recording(model) as tape, following(model) as trail:
        model(source, target)
    assert len(trail.holders) == model.config.encoder_layers
    assert all(look.weights.shape[3] == trail.left()[-1] < TIME for look in tape.of("cross"))
    told_of_inputs(tape, trail)
    there = trail.holders[-1][0] >= 0
    for look in tape.of("cross"):
        assert look.weights.shape[2:] == (5, TIME)
        torch.testing.assert_close(look.weights.sum(-1), torch.ones_like(look.weights.sum(-1)))
        assert (look.weights[..., ~there] == 0).all() and look.allowed is not None
        assert torch.equal(look.allowed.flatten(), there)
    assert all(look.weights.shape[2:] == (TIME, TIME) for look in tape.of("encoder"))
    assert all(look.weights.shape[2:] == (5, 5) for look in tape.of("decoder"))


@pytest.mark.parametrize(("kind", "how"), [("merge", {"r": 2}), ("prune_hard", {"threshold": 1.0})])
def test_who_looks_gives_all_its_weight_to_what_came_in(kind: str, how: dict[str, float]) -> None:
    model = new_encoder(kind, **how)
    with recording(model) as tape, following(model) as trail:
        run(model)
    for look in tape.of("encoder"):
        holder = trail.before(look.layer)[0]
        sums = on_inputs(look.weights[0].double(), holder).sum(-1)
        torch.testing.assert_close(sums, (holder >= 0).double().expand_as(sums))
    rolled = rollout(tape, trail)
    assert rolled is not None
    torch.testing.assert_close(rolled.sum(-1), torch.ones(TIME, dtype=torch.double))
    for group in trail.groups(LAYERS - 1):
        assert (rolled[group] == rolled[group[0]]).all(), "what is together has one origin"


def test_where_nothing_became_of_tokens_rollout_is_the_plain_one() -> None:
    model = new_encoder()
    with recording(model) as tape, following(model) as trail:
        run(model)
    plain, found = measures.rollout(measures.active(tape, "encoder")), rollout(tape, trail)
    assert plain is not None and found is not None
    torch.testing.assert_close(found, plain)


# Pictures ------------------------------------------------------------------------------------------------------------


def pixels_of(path: Path) -> np.ndarray:
    from matplotlib.image import imread

    return imread(path)


def some_picture(channels: int) -> Tensor:
    return torch.arange(channels * 64).view(channels, 8, 8).mul(255 // (channels * 64)).to(torch.uint8)


@pytest.mark.parametrize("channels", [1, 3])
def test_overlays_show_where_the_weight_is(tmp_path: Path, channels: int) -> None:
    one, other = torch.zeros(2, 4, 4), torch.zeros(2, 4, 4)
    one[:, 0, 0] = other[:, 3, 3] = 1.0
    for name, maps in (("one", one), ("other", other)):
        draw_overlays(tmp_path / f"{name}.png", some_picture(channels), maps, ["encoder.0.self.0", "$all_1$"], "a & b")
    first, second = pixels_of(tmp_path / "one.png"), pixels_of(tmp_path / "other.png")
    assert first.shape == second.shape
    lighter = (first - second)[..., :3].sum(-1)
    here, there = (np.argwhere(side > 0.1).mean(0) for side in (lighter, -lighter))
    assert (here < there).all(), "the first weight lies above the other, and left of it"


@pytest.mark.parametrize("channels", [1, 3])
def test_a_trail_on_a_picture_shows_what_is_gone(tmp_path: Path, channels: int) -> None:
    whole = torch.arange(16)[None].repeat(2, 1)
    fewer = torch.where(whole % 3 == 0, -1, whole // 2)
    for name, holders in (("whole", whole), ("fewer", fewer)):
        draw_trail_on_picture(tmp_path / f"{name}.png", some_picture(channels), holders, 4, ["0", "1"])
    whole_white, fewer_white = ((pixels_of(tmp_path / f"{n}.png") == 1).all(-1).sum() for n in ("whole", "fewer"))
    assert fewer_white > whole_white


def test_a_trail_on_words_draws_words_of_any_script(tmp_path: Path) -> None:
    words = ["<s>", "Ein", "苹果", "$x_1$", "…", "</s>"]
    holders = torch.tensor([[0, 1, 1, 2, 3, 4], [0, 1, 1, -1, 2, 3]])
    draw_trail_on_words(tmp_path / "words.png", words, holders, ["layer 0", "layer 1"], "two layers")
    draw_trail_on_words(tmp_path / "alone.svg", words, torch.arange(6)[None], ["layer 0"])
    picture = pixels_of(tmp_path / "words.png")
    assert picture.shape[0] > 100 and len(np.unique(picture[..., :3].reshape(-1, 3), axis=0)) > 10
    assert "<svg" in (tmp_path / "alone.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("draw", ["overlays", "words"])
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, draw: str) -> None:
    from clearhead.errors import StorageError

    path = tmp_path / "none" / "x.png"
    with pytest.raises(StorageError, match=str(path)):
        if draw == "overlays":
            draw_overlays(path, some_picture(1), torch.ones(1, 4, 4), ["a"])
        else:
            draw_trail_on_words(path, ["a"], torch.zeros(1, 1, dtype=torch.long), ["0"])
