"""Named parameters in, an optimizer out; its state is read and written by parameter name, to be stored safely.

A new optimizer is one function and one line in OPTIMIZERS.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clearhead.nn.embedding import OutputLayer, TokenEmbedding
from clearhead.nn.patches import ClassToken, Grid
from clearhead.nn.positions import Positions
from clearhead.nn.reduction import Prune
from clearhead.nn.stacks import Stack
from clearhead.training.distributed import SOLO, Team
from clearhead.training.precision import PRECISIONS, settled

if TYPE_CHECKING:
    from clearhead.training.settings import TrainConfig

Optimizer = torch.optim.Optimizer
Betas = tuple[float, float]


def uncompiled(kind: type[Optimizer]) -> type[Any]:
    """The same optimizer without what keeps torch.compile out of it: the import of that alone takes seconds."""
    names = ("add_param_group", "state_dict", "load_state_dict", "zero_grad")
    plain: dict[str, Any] = {name: inspect.unwrap(getattr(kind, name)) for name in names}
    return type(kind.__name__, (kind,), {**plain, "step": torch.no_grad()(inspect.unwrap(kind.step))})


Adam, AdamW = uncompiled(torch.optim.Adam), uncompiled(torch.optim.AdamW)


def adam(
    model: nn.Module, *, betas: Betas, eps: float, weight_decay: float, team: Team = SOLO, precision: str = "fp32"
) -> Optimizer:
    """Adam as in the paper; weight decay, if any, is added to the gradient."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    return Adam(parameters, lr=0.0, betas=betas, eps=eps, weight_decay=weight_decay, fused=True)


def adamw(
    model: nn.Module, *, betas: Betas, eps: float, weight_decay: float, team: Team = SOLO, precision: str = "fp32"
) -> Optimizer:
    """Adam with decoupled weight decay, on matrices only: norms and biases are left alone."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    return AdamW([group for group in groups if group["params"]], lr=0.0, betas=betas, eps=eps, fused=True)


def muon(
    model: nn.Module, *, betas: Betas, eps: float, weight_decay: float, team: Team = SOLO, precision: str = "fp32"
) -> Optimizer:
    """Muon for the matrices inside the layers, AdamW for all that embeds or tells places, output, norms and biases.

    Convolutions that read what others found are matrices inside layers, too; those that read pixels embed.
    """
    layers = [block for stack in model.modules() if isinstance(stack, Stack) for block in stack.blocks]
    inside = {id(p) for layer in layers for p in layer.parameters() if p.ndim == 2}
    inside |= {id(look.weight) for look in [m for m in model.modules() if isinstance(m, nn.Conv2d)][1:]}
    trained = [p for p in model.parameters() if p.requires_grad]
    matrices = [p for p in trained if id(p) in inside]
    others = [p for p in trained if id(p) not in inside]
    return Muon(
        matrices, others, betas=betas, eps=eps, weight_decay=weight_decay, team=team, products=PRECISIONS[precision]
    )


def _tables(model: nn.Module) -> set[int]:
    """The identities of what has a row for each token of a vocabulary."""
    return {id(table.weight) for table in model.modules() if isinstance(table, TokenEmbedding | OutputLayer)}


def _thresholds(model: nn.Module) -> set[int]:
    """The identities of what says which tokens are dropped, where that is learnt."""
    return {id(layer.threshold) for layer in model.modules() if isinstance(layer, Prune)}


MOMENTUM = 0.95


class Muon(uncompiled(Optimizer)):  # type: ignore[misc]
    """Momentum whose update is made orthogonal, so that every direction of a matrix moves alike (Jordan et al. 2024).

    `torch.optim.Muon` works in bfloat16, which many CPUs only emulate, and every process does all of it; here products
    are in the format that the run has chosen for them, and a team shares them out. The rate is scaled so that an update
    is as large as Adam's would be: one learning rate serves both halves (Liu et al. 2025, arXiv 2502.16982).
    """

    def __init__(
        self,
        matrices: Iterable[Tensor],
        others: Iterable[Tensor],
        *,
        betas: Betas,
        eps: float,
        weight_decay: float,
        team: Team = SOLO,
        products: torch.dtype | None = None,
    ) -> None:
        super().__init__([{"params": list(matrices), "orthogonal": True}], {"lr": 0.0, "weight_decay": weight_decay})
        self._adam = AdamW(list(others), lr=0.0, betas=betas, eps=eps, weight_decay=0.0, fused=True)
        self._team, self._products = team, products
        # One memory and one list of groups, so that schedules and checkpoints see a single optimizer.
        self._adam.state = self.state
        self.param_groups += self._adam.param_groups

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Move every parameter that has a gradient."""
        assert closure is None
        rates = {
            p: (group["lr"], group["weight_decay"])
            for group in self.param_groups
            if "orthogonal" in group
            for p in group["params"]
            if p.grad is not None
        }
        if rates:
            for (matrix, (rate, decay)), update in zip(rates.items(), self._updates(list(rates)), strict=True):
                if decay:
                    matrix.mul_(1 - rate * decay)
                matrix.add_(update, alpha=-rate * 0.2 * math.sqrt(max(matrix.flatten(1).shape)))
        self._adam.param_groups = [group for group in self.param_groups if "orthogonal" not in group]
        self._adam.step()

    def _updates(self, matrices: list[Tensor]) -> list[Tensor]:
        """An orthogonal update for each matrix; every process of the team works some of them out."""
        gradients = [p.grad for p in matrices if p.grad is not None]
        memories = [self.state[p].setdefault("momentum", torch.zeros_like(p)) for p in matrices]
        torch._foreach_mul_(memories, MOMENTUM)
        torch._foreach_add_(memories, gradients)
        ahead = torch._foreach_add(gradients, memories, alpha=MOMENTUM)
        if self._team.is_solo:
            return orthogonalised(ahead, self._products)
        # What others work out is zero here, so that the sum over the team is what each has found; in the format of the
        # products, in which it was found, nothing is lost, and half as much may have to be sent.
        dtype = self._products or ahead[0].dtype
        found = torch.zeros(sum(m.numel() for m in ahead), dtype=dtype, device=ahead[0].device)
        updates = [part.view_as(m) for part, m in zip(found.split([m.numel() for m in ahead]), ahead, strict=True)]
        # Large ones first, so that shares are about equal.
        mine = sorted(range(len(ahead)), key=lambda i: -ahead[i].numel())[self._team.rank :: self._team.size]
        for i, update in zip(mine, orthogonalised([ahead[i] for i in mine], self._products), strict=True):
            updates[i].copy_(update)
        self._team.add_up(found)
        return updates


def orthogonalised(matrices: Sequence[Tensor], products: torch.dtype | None = None) -> list[Tensor]:
    """Each matrix made orthogonal; on a GPU those of one shape side by side, on a CPU one by one is faster.

    Of a convolution, each row is all that one output channel is made of. `products` is their number format, if not the
    matrices' own.
    """
    if not matrices or matrices[0].device.type == "cpu":
        return [orthogonalise(matrix.flatten(1), products).reshape(matrix.shape) for matrix in matrices]
    alike: dict[torch.Size, list[int]] = {}
    for i, matrix in enumerate(matrices):
        alike.setdefault(matrix.shape, []).append(i)
    found: dict[int, Tensor] = {}
    for places in alike.values():
        stack = torch.stack([matrices[i] for i in places])
        found.update(zip(places, orthogonalise(stack.flatten(2), products).reshape(stack.shape).unbind(), strict=True))
    return [found[i] for i in range(len(matrices))]


NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""A quintic that drives singular values towards 1, steep at 0 rather than exact (Jordan et al. 2024)."""


def orthogonalise(
    x: Float[Tensor, "*stack rows columns"], products: torch.dtype | None = None, iterations: int = 5
) -> Float[Tensor, "*stack rows columns"]:
    """Bring all singular values of each matrix near 1 (between about 0.7 and 1.2), keeping its directions."""
    a, b, c = NEWTON_SCHULZ
    tall, own = x.shape[-2] > x.shape[-1], x.dtype
    # A stack of one is slower in bf16 than a matrix.
    add_product = torch.addmm if x.ndim == 2 else torch.baddbmm
    x = x.mT if tall else x
    x = (x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)).to(products or own)
    for _ in range(iterations):
        gram = x @ x.mT
        x = add_product(x, add_product(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(own)


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {"adam": adam, "adamw": adamw, "muon": muon}


def make_optimizer(model: nn.Module, settings: TrainConfig, team: Team = SOLO) -> Optimizer:
    """The optimizer that settings ask for; each group of parameters has in `share` its part of the learning rate."""
    optimizer = OPTIMIZERS[settings.optimizer](
        model,
        betas=(settings.beta1, settings.beta2),
        eps=settings.eps,
        weight_decay=settings.weight_decay,
        team=team,
        precision=settled(settings.precision, next(model.parameters()).device),
    )
    if settings.layer_decay != 1.0 or settings.table_rate != 1.0 or _thresholds(model):
        shares = rate_shares(model, settings.layer_decay, settings.table_rate, settings.threshold_rate)
        optimizer.param_groups = [part for group in optimizer.param_groups for part in _by_share(group, shares)]
    return optimizer


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """Give every parameter its share of the learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("share", 1.0)


def rate_shares(model: nn.Module, decay: float, tables: float = 1.0, thresholds: float = 1.0) -> dict[Tensor, float]:
    """Which part of the learning rate each parameter is trained with: the nearer to the input, the less.

    Block i of n, counted from 0, has decay ** (n - i), and what embeds the input decay ** (n + 1), as in BEiT
    (Bao et al. 2021); a table that is also the output layer counts as an embedding. All others have the whole. What is
    left to a table with an entry for each token is multiplied by `tables`. A threshold that is learnt has `thresholds`
    times the rate, in every layer.
    """
    shares: dict[Tensor, float] = dict.fromkeys(model.parameters(), 1.0)
    deepest = 0
    for stack in model.modules():
        if isinstance(stack, Stack):
            deepest = max(deepest, len(stack.blocks))
            for number, block in enumerate(stack.blocks):
                shares |= dict.fromkeys(block.parameters(), decay ** (len(stack.blocks) - number))
    for path, module in model.named_modules():
        if isinstance(module, TokenEmbedding | Positions | Grid | ClassToken) or path.endswith(
            ("embedding", "patches")
        ):
            shares |= dict.fromkeys(module.parameters(), decay ** (deepest + 1))
    rows, learnt = _tables(model), _thresholds(model)
    return {
        parameter: thresholds if id(parameter) in learnt else share * (tables if id(parameter) in rows else 1.0)
        for parameter, share in shares.items()
    }


def _by_share(group: dict[str, Any], shares: Mapping[Tensor, float]) -> list[dict[str, Any]]:
    parts: dict[float, list[Tensor]] = {}
    for parameter in group["params"]:
        parts.setdefault(shares[parameter], []).append(parameter)
    return [{**group, "params": parameters, "share": share} for share, parameters in parts.items()]


def state_tensors(optimizer: Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """Everything the optimizer remembers, as `parameter/name` → tensor, shards as they are."""
    return {
        f"{parameter}/{key}": torch.as_tensor(value)
        for parameter, weight in model.named_parameters()
        for key, value in optimizer.state.get(weight, {}).items()
    }


def restore_tensors(optimizer: Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `state_tensors` took out; each already lies where it belongs."""
    weights = dict(model.named_parameters())
    for name, value in tensors.items():
        parameter, key = name.rsplit("/", 1)
        optimizer.state[weights[parameter]][key] = value
