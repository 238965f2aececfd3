"""A stream and a sublayer in, the stream after it out: where norm and skip connection stand is written once, here.

A new arrangement is one class and one line in RESIDUALS.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from jaxtyping import Bool, Float
from torch import Tensor, nn

from clearhead.nn.dropout import Dropout
from clearhead.nn.norms import Norm

Sublayer = Callable[[Tensor], Tensor]


class Residual(nn.Module, ABC):
    """What surrounds a sublayer: its norm, its dropout, and a way around it."""

    needs_final_norm = False
    """Whether the stream leaves the last block without having been normed."""

    def __init__(self, norm: Norm, dropout: float) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)

    @abstractmethod
    def forward(
        self, x: Float[Tensor, "batch time dim"], sublayer: Sublayer, real: Bool[Tensor, "batch time"] | None = None
    ) -> Float[Tensor, "batch time dim"]: ...


class PreNorm(Residual):
    """Norm inside the branch: the stream itself runs through untouched, and deep stacks train without warm-up."""

    needs_final_norm = True

    def forward(
        self, x: Float[Tensor, "batch time dim"], sublayer: Sublayer, real: Bool[Tensor, "batch time"] | None = None
    ) -> Float[Tensor, "batch time dim"]:
        return self.dropout.onto(x, sublayer(self.norm(x, real)))


class PostNorm(Residual):
    """Norm after the sum, as in the paper."""

    def forward(
        self, x: Float[Tensor, "batch time dim"], sublayer: Sublayer, real: Bool[Tensor, "batch time"] | None = None
    ) -> Float[Tensor, "batch time dim"]:
        return self.norm(self.dropout.onto(x, sublayer(x)), real)


class NoResidual(Residual):
    """No way around the sublayer: for experiments that show why there should be one."""

    def forward(
        self, x: Float[Tensor, "batch time dim"], sublayer: Sublayer, real: Bool[Tensor, "batch time"] | None = None
    ) -> Float[Tensor, "batch time dim"]:
        return self.norm(self.dropout(sublayer(x)), real)


RESIDUALS: dict[str, type[Residual]] = {"pre": PreNorm, "post": PostNorm, "none": NoResidual}
