"""Pictures in, a row of patches out, and what tells the patches where in the picture they are.

Where a patch stands is one of GRIDS; a new one is one class and one line there.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clearhead.nn.positions import waves


def patchify(
    x: Float[Tensor, "batch channels height width"], patch: int
) -> Float[Tensor, "batch patches channels*{patch}*{patch}"]:
    """Cut pictures into squares, row by row; each is laid out channel by channel, as a convolution's weights are."""
    batch, channels, height, width = x.shape
    cells = x.view(batch, channels, height // patch, patch, width // patch, patch)
    return cells.permute(0, 2, 4, 1, 3, 5).reshape(batch, -1, channels * patch * patch)


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
