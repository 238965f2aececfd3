"""Patches against torch's own unfolding and convolution, and where the grid says they are."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearhead.errors import ConfigError
from clearhead.nn.initialise import initialise
from clearhead.nn.patches import GRIDS, STEMS, ClassToken, SinusoidalGrid, patchify
from clearhead.nn.positions import waves

ROWS, COLUMNS, DIM = 3, 4, 10


@pytest.mark.parametrize(("channels", "patch"), [(1, 1), (1, 2), (3, 2), (3, 4)])
def test_patchify_is_torchs_unfold(channels: int, patch: int) -> None:
    x = torch.randn(2, channels, 3 * patch, 5 * patch)
    wanted = F.unfold(x, kernel_size=patch, stride=patch).transpose(1, 2)
    assert torch.equal(patchify(x, patch), wanted)


def test_a_linear_map_of_patches_is_a_convolution() -> None:
    x, convolution = torch.randn(2, 3, 8, 12), nn.Conv2d(3, DIM, kernel_size=4, stride=4)
    wanted = convolution(x).flatten(2).transpose(1, 2)
    found = F.linear(patchify(x, 4), convolution.weight.flatten(1), convolution.bias)
    torch.testing.assert_close(found, wanted)


def test_a_linear_stem_is_that_map() -> None:
    x, stem = torch.randn(2, 3, 8, 12), STEMS["linear"](3, DIM, 4)
    assert isinstance(stem, nn.Linear)
    assert torch.equal(stem(x), F.linear(patchify(x, 4), stem.weight, stem.bias))


@pytest.mark.parametrize("patch", [2, 4, 8])
def test_convolutions_see_a_patch_and_what_is_next_to_it(patch: int) -> None:
    stem = STEMS["convolutions"](3, DIM, patch)
    initialise(stem)
    x = torch.randn(2, 3, 5 * patch, 6 * patch)
    before = stem(x)
    assert before.shape == (2, 5 * 6, DIM)
    row, column = 2, 3
    x[:, :, row * patch : (row + 1) * patch, column * patch : (column + 1) * patch] += 1.0
    changed = (stem(x) != before).any(-1).any(0).view(5, 6).nonzero().tolist()
    assert [row, column] in changed
    # Each looks one pixel back at every size of the picture, so all that changes is to the right and below.
    assert all(row <= r <= row + 1 and column <= c <= column + 1 for r, c in changed)


@pytest.mark.parametrize("patch", [2, 4, 8])
def test_a_deep_stem_sees_a_patch_and_what_is_around_it(patch: int) -> None:
    stem = STEMS["deep"](3, DIM, patch)
    initialise(stem)
    x = torch.randn(2, 3, 5 * patch, 6 * patch)
    before = stem(x)
    assert before.shape == (2, 5 * 6, DIM)
    row, column = 2, 3
    x[:, :, row * patch : (row + 1) * patch, column * patch : (column + 1) * patch] += 1.0
    changed = (stem(x) != before).any(-1).any(0).view(5, 6).nonzero()
    assert {(row, column), (row - 1, column), (row, column - 1), (row + 1, column + 1)} <= set(
        map(tuple, changed.tolist())
    )
    assert (changed - torch.tensor([row, column])).abs().max() <= 2


def test_a_deep_stem_is_its_convolutions_normed_and_bent() -> None:
    stem = STEMS["deep"](3, DIM, 2)
    initialise(stem)
    x = torch.randn(2, 3, 8, 12)
    wanted = x
    for look in (module for module in stem.modules() if isinstance(module, nn.Conv2d)):
        found = F.conv2d(wanted, look.weight, look.bias, look.stride, look.padding)
        centred = found - found.mean(1, keepdim=True)
        wanted = F.gelu(centred / (centred.square().mean(1, keepdim=True) + 1e-5).sqrt())
    output = stem.get_submodule("output")
    torch.testing.assert_close(stem(x), output(wanted.flatten(2).mT))


@pytest.mark.parametrize("stem", ["convolutions", "deep"])
@pytest.mark.parametrize("patch", [1, 3, 6])
def test_convolutions_can_only_halve(patch: int, stem: str) -> None:
    with pytest.raises(ConfigError, match=f"set model.patch to 2, 4, 8, …, not {patch}"):
        STEMS[stem](3, DIM, patch)


@pytest.mark.parametrize("name", [name for name in GRIDS if name != "none"])
def test_every_place_of_a_grid_is_another(name: str) -> None:
    grid = GRIDS[name](DIM, ROWS, COLUMNS)
    initialise(grid)
    added = grid(torch.zeros(1, ROWS * COLUMNS, DIM))[0]
    assert len({tuple(row) for row in added.tolist()}) == ROWS * COLUMNS


def test_no_grid_adds_nothing() -> None:
    x = torch.randn(2, ROWS * COLUMNS, DIM)
    assert torch.equal(GRIDS["none"](DIM, ROWS, COLUMNS)(x), x)


@pytest.mark.parametrize("dim", [10, 11])
def test_sinusoidal_places_are_waves_down_beside_waves_across(dim: int) -> None:
    added = SinusoidalGrid(dim, ROWS, COLUMNS)(torch.zeros(1, ROWS * COLUMNS, dim))[0].view(ROWS, COLUMNS, dim)
    for row in range(ROWS):
        for column in range(COLUMNS):
            assert torch.equal(added[row, column, : dim // 2], waves(ROWS, dim // 2)[row])
            assert torch.equal(added[row, column, dim // 2 :], waves(COLUMNS, dim - dim // 2)[column])


@pytest.mark.parametrize("name", GRIDS)
def test_fixed_tables_are_not_saved_with_the_weights(name: str) -> None:
    grid = GRIDS[name](DIM, ROWS, COLUMNS)
    assert set(grid.state_dict()) == {name for name, _ in grid.named_parameters()}


def test_the_class_token_stands_in_front_of_every_sequence() -> None:
    token, x = ClassToken(DIM), torch.randn(2, 5, DIM)
    initialise(token)
    found = token(x)
    assert torch.equal(found[:, 1:], x)
    assert torch.equal(found[:, 0], token.weight.expand(2, DIM))
