"""Pictures in, a row of patches out, and what tells the patches where in the picture they are.

How pixels become a patch's vector is one of STEMS, where a patch stands one of GRIDS; a new one is one class and one
line there.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from clearhead.errors import ConfigError
from clearhead.nn.norms import LayerNorm
from clearhead.nn.positions import waves


def patchify(
    x: Float[Tensor, "batch channels height width"], patch: int
) -> Float[Tensor, "batch patches channels*{patch}*{patch}"]:
    """Cut pictures into squares, row by row; each is laid out channel by channel, as a convolution's weights are."""
    batch, channels, height, width = x.shape
    cells = x.view(batch, channels, height // patch, patch, width // patch, patch)
    return cells.permute(0, 2, 4, 1, 3, 5).reshape(batch, -1, channels * patch * patch)


class LinearStem(nn.Linear):
    """Each patch through one linear map (Dosovitskiy et al. 2021)."""

    def __init__(self, channels: int, dim: int, patch: int) -> None:
        super().__init__(channels * patch**2, dim)
        self.patch = patch

    def forward(self, x: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch patches dim"]:
        return super().forward(patchify(x, self.patch))


class ConvolutionStem(nn.Module):
    """Convolutions that halve the picture until a pixel is a patch: edges are found sooner (Xiao et al. 2021)."""

    def __init__(self, channels: int, dim: int, patch: int) -> None:
        super().__init__()
        widths = [channels, *(max(1, dim >> left) for left in range(_halvings(patch), 0, -1))]
        self.halvings = nn.ModuleList(
            nn.Conv2d(before, after, kernel_size=3, stride=2, padding=1) for before, after in pairwise(widths)
        )
        self.output = nn.Linear(widths[-1], dim)

    def forward(self, x: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch patches dim"]:
        for halve in self.halvings:
            x = F.gelu(halve(x))
        return self.output(x.flatten(2).mT)


class DeepStem(nn.Module):
    """The same twice as wide, and after each halving one more convolution, which sees its neighbours; all normed."""

    def __init__(self, channels: int, dim: int, patch: int) -> None:
        super().__init__()
        widths = [channels, *(max(1, 2 * dim >> left) for left in range(_halvings(patch), 0, -1))]
        self.steps = nn.ModuleList(
            step for before, after in pairwise(widths) for step in (_Look(before, after, 2), _Look(after, after, 1))
        )
        self.output = nn.Linear(widths[-1], dim)

    def forward(self, x: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch patches dim"]:
        for step in self.steps:
            x = step(x)
        return self.output(x.flatten(2).mT)


class _Look(nn.Module):
    """A convolution, its channels normed pixel by pixel, and bent."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.look = nn.Conv2d(before, after, kernel_size=3, stride=stride, padding=1)
        self.norm = LayerNorm(after)

    def forward(self, x: Float[Tensor, "batch before height width"]) -> Float[Tensor, "batch after lower narrower"]:
        # Channels last in memory: a norm reads them in a row, and so do convolutions on a CPU.
        x = self.look(x.contiguous(memory_format=torch.channels_last)).permute(0, 2, 3, 1)
        return F.gelu(self.norm(x.flatten(1, 2)).view(x.shape)).permute(0, 3, 1, 2)


def _halvings(patch: int) -> int:
    count = patch.bit_length() - 1
    if patch != 2**count or count == 0:
        raise ConfigError(f"convolutions halve the picture: set model.patch to 2, 4, 8, …, not {patch}")
    return count


STEMS: dict[str, type[LinearStem | ConvolutionStem | DeepStem]] = {
    "linear": LinearStem,
    "convolutions": ConvolutionStem,
    "deep": DeepStem,
}


class Grid(nn.Module):
    """No positions at all: patches are a bag."""

    def __init__(self, dim: int, rows: int, columns: int) -> None:
        super().__init__()
        self.dim, self.rows, self.columns = dim, rows, columns

    def forward(self, x: Float[Tensor, "batch patches dim"]) -> Float[Tensor, "batch patches dim"]:
        return x


class LearnedGrid(Grid):
    """One trained vector for each place (Dosovitskiy et al. 2021)."""

    def __init__(self, dim: int, rows: int, columns: int) -> None:
        super().__init__(dim, rows, columns)
        self.weight = nn.Parameter(torch.empty(rows * columns, dim))

    def forward(self, x: Float[Tensor, "batch patches dim"]) -> Float[Tensor, "batch patches dim"]:
        return x + self.weight.to(x.dtype)


class SinusoidalGrid(Grid):
    """Fixed waves: half of the features say how far down a patch is, the others how far across."""

    def __init__(self, dim: int, rows: int, columns: int) -> None:
        super().__init__(dim, rows, columns)
        down, across = waves(rows, dim // 2), waves(columns, dim - dim // 2)
        places = [down[:, None].expand(-1, columns, -1), across[None].expand(rows, -1, -1)]
        self.table: Tensor
        self.register_buffer("table", torch.cat(places, dim=-1).flatten(0, 1), persistent=False)

    def forward(self, x: Float[Tensor, "batch patches dim"]) -> Float[Tensor, "batch patches dim"]:
        return x + self.table.to(x.dtype)


class ClassToken(nn.Module):
    """One trained vector in front of each sequence, which belongs to no place and may gather what the others know."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(dim))

    def forward(self, x: Float[Tensor, "batch time dim"]) -> Float[Tensor, "batch time+1 dim"]:
        return torch.cat([self.weight.to(x.dtype).expand(x.shape[0], 1, -1), x], dim=1)


GRIDS: dict[str, type[Grid]] = {"none": Grid, "learned": LearnedGrid, "sinusoidal": SinusoidalGrid}
