"""Hidden vectors and labels in, the summed loss out: sums, so that accumulation can divide by all real tokens.

A loss is the divergence from a smoothed label, and a label is three numbers: what stands on the right entry, on
padding, and on each of the others. The output layer is applied here, to real positions only. A new loss is one class
and one line in LOSSES.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from clearhead.nn.embedding import OutputLayer
from clearhead.nn.linear import filled, rounded_rows

ROWS_AT_ONCE = 512
"""Positions whose logits exist at the same time: many enough for quick products, few enough for a CPU's cache."""
CHUNKS_TOGETHER = 4
"""Chunks whose gradients by the weights are added up in bf16, before their sum is added to the others' in fp32."""


class LossSum(NamedTuple):
    """Sums over answers: what is minimised, and the plain negative log-likelihood that perplexity is made of."""

    total: Float[Tensor, ""]
    nll: Float[Tensor, ""]
    tokens: int
    """How many answers were asked for."""
    right: int | None = None
    """How many of them were right, where that is counted."""


class SmoothLabel(NamedTuple):
    """How one label is spread over the vocabulary; the whole is 1."""

    right: float
    padding: float
    others: float
    entropy: float
    """The label's own part of the loss, which no model can change."""


class Loss(nn.Module, ABC):
    """What all losses share: the output layer, and the divergence from a smoothed label."""

    def __init__(
        self,
        smoothing: float = 0.0,
        pad_id: int = 2,
        *,
        agreement: float = 0.0,
        rows_at_once: int | None = ROWS_AT_ONCE,
    ) -> None:
        super().__init__()
        self.smoothing, self.pad_id, self.rows_at_once = smoothing, pad_id, rows_at_once
        self.agreement = agreement

    @abstractmethod
    def label(self, vocab_size: int, *, has_padding: bool = True) -> SmoothLabel:
        """How a label is spread; without padding, over all entries alike."""

    def forward(
        self, hidden: Float[Tensor, "tokens dim"], labels: Int[Tensor, "tokens"], output: OutputLayer
    ) -> LossSum:
        label = self.label(output.weight.shape[0])
        if self.rows_at_once is not None and not torch.is_grad_enabled():
            total, nll = measured(hidden, labels, output, label, self.pad_id, self.rows_at_once)
        # A bias is rare: it takes the plain way.
        elif self.rows_at_once is not None and output.bias is None:
            total, nll = _ChunkedDivergence.apply(hidden, output.weight, labels, label, self.pad_id, self.rows_at_once)
        else:
            total, nll = divergence(output(hidden).float(), labels, label, self.pad_id)
        return LossSum(total, nll.detach(), len(labels))

    def of_classes(
        self,
        logits: Float[Tensor, "examples classes"],
        labels: Int[Tensor, "examples"],
        again: Float[Tensor, "examples classes"] | None = None,
    ) -> LossSum:
        """The loss where the answers are classes: few, none of them padding, and how many were right is counted.

        `again` are the logits of a second pass, which should agree with the first: see `of_two`.
        """
        label = self.label(logits.shape[1], has_padding=False)
        # No entry is padding, and so the one that is named here is spread over like any other.
        if again is None:
            total, nll = divergence(logits.float(), labels, label, pad_id=0)
        else:
            total, nll = agreeing(logits.float(), again.float(), labels, label, 0, self.agreement)
        right = int((logits.argmax(-1) == labels).sum())
        return LossSum(total, nll.detach(), len(labels), right)

    def of_two(
        self,
        first: Float[Tensor, "tokens dim"],
        second: Float[Tensor, "tokens dim"],
        labels: Int[Tensor, "tokens"],
        output: OutputLayer,
    ) -> LossSum:
        """Two passes over the same tokens, with different features dropped: their mean loss, and what divides them.

        This is half of R-Drop's loss (Liang et al. 2021), so that it weighs as much as one pass; `agreement` is its α.
        """
        label = self.label(output.weight.shape[0])
        if self.rows_at_once is not None and output.bias is None:
            # As many rows of logits as in one pass.
            how = label, self.pad_id, self.agreement, max(1, self.rows_at_once // 2)
            total, nll = _ChunkedAgreement.apply(first, second, output.weight, labels, *how)
        else:
            logits = output(first).float(), output(second).float()
            total, nll = agreeing(*logits, labels, label, self.pad_id, self.agreement)
        return LossSum(total, nll.detach(), len(labels))


def agreeing(
    first: Float[Tensor, "tokens vocab"],
    second: Float[Tensor, "tokens vocab"],
    labels: Int[Tensor, "tokens"],
    label: SmoothLabel,
    pad_id: int,
    agreement: float,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The mean loss of two passes and their distance, from logits that exist all at once: the plain way."""
    (one, one_nll), (two, two_nll) = (divergence(logits, labels, label, pad_id) for logits in (first, second))
    apart = (first.softmax(-1) - second.softmax(-1)) * (first.log_softmax(-1) - second.log_softmax(-1))
    return (one + two) / 2 + agreement / 4 * apart.sum(), (one_nll + two_nll) / 2


class Points(NamedTuple):
    """What the loss needs to know of each row of logits besides their logarithmic norm."""

    right: Float[Tensor, "tokens"]
    padding: Float[Tensor, "tokens"]
    everything: Float[Tensor, "tokens"]
    """The sum over the vocabulary."""


def divergence(
    logits: Float[Tensor, "tokens vocab"], labels: Int[Tensor, "tokens"], label: SmoothLabel, pad_id: int
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The summed loss and the summed negative log-likelihood, from logits that exist all at once: the plain way."""
    return _summed(_points(logits, labels, pad_id), logits.logsumexp(-1), label, logits.shape[1])


def measured(
    hidden: Float[Tensor, "tokens dim"],
    labels: Int[Tensor, "tokens"],
    output: OutputLayer,
    label: SmoothLabel,
    pad_id: int,
    rows_at_once: int,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The same without gradients, a few rows at a time, so that validation needs no more memory than training."""
    chunks = zip(hidden.split(rows_at_once), labels.split(rows_at_once), strict=True)
    sums = [divergence(output(rows).float(), right, label, pad_id) for rows, right in chunks]
    total, nll = (torch.stack(parts).sum() for parts in zip(*sums, strict=True))
    return total, nll


def _points(logits: Float[Tensor, "tokens vocab"], labels: Int[Tensor, "tokens"], pad_id: int) -> Points:
    return Points(logits.gather(-1, labels[:, None])[:, 0], logits[:, pad_id].clone(), logits.sum(-1))


def _summed(
    points: Points, log_norm: Float[Tensor, "tokens"], label: SmoothLabel, vocab_size: int
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    nll = log_norm - points.right
    if label.others == 0.0:
        return nll.sum(), nll.sum()
    loss = label.entropy + label.others * (vocab_size * log_norm - points.everything)
    loss = loss + (label.right - label.others) * nll + (label.padding - label.others) * (log_norm - points.padding)
    return loss.sum(), nll.sum()


class _ChunkedDivergence(torch.autograd.Function):
    """The same, a few rows at a time: logits, loss and both gradients at once, so tokens × vocab never exists.

    The gradient of the loss by the logits is softmax − label, whatever the label is.
    """

    @staticmethod
    def forward(
        context: Any,
        hidden: Tensor,
        weight: Tensor,
        labels: Tensor,
        label: SmoothLabel,
        pad_id: int,
        rows_at_once: int,
    ) -> tuple[Tensor, Tensor]:
        narrow_hidden, narrow_weight = _narrow(hidden, weight)
        with torch.autocast(hidden.device.type, enabled=False):
            found = _chunks(narrow_hidden, narrow_weight, labels, label, pad_id, rows_at_once)
        total, nll_sum, hidden_grad, weight_grad = found
        context.found = hidden_grad.to(hidden.dtype), weight_grad
        context.mark_non_differentiable(nll_sum)
        return total, nll_sum

    @staticmethod
    @once_differentiable
    def backward(context: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        # In place, which can be done once, like most of what autograd does: nobody needs them again.
        (hidden_grad, weight_grad), context.found = context.found, None
        return hidden_grad.mul_(grads[0]), weight_grad.mul_(grads[0]), None, None, None, None


Found = tuple[Tensor, Tensor, Tensor, Tensor]
"""Loss, negative log-likelihood, and the gradients by hidden vectors and weights."""


def _chunks(
    hidden: Tensor, weight: Tensor, labels: Tensor, label: SmoothLabel, pad_id: int, rows_at_once: int
) -> Found:
    """Products, and a softmax as the only pass over the logits, for in the time of another one much can be multiplied.

    The label is taken off the products instead, and the sum of all logits is a product with the sum of the weights.
    """
    fine, count = torch.promote_types(weight.dtype, torch.float), len(labels)
    is_narrow = weight.dtype != fine
    if is_narrow:
        # The last chunk, too, has one of few numbers of rows; see docs/log.md.
        rows_at_once = min(rounded_rows(rows_at_once), rounded_rows(max(1, count)))
        whole = (count - 1) // rows_at_once * rows_at_once
        hidden = filled(hidden, whole + rounded_rows(count - whole), hidden.dtype)
    chunks = range(0, count, rows_at_once)
    together = CHUNKS_TOGETHER if is_narrow else len(chunks)
    # The same memory for all chunks: pages that are new to a process take longer than what is computed in them.
    memory, part = hidden.new_empty(min(rows_at_once, len(hidden)), len(weight)), torch.zeros_like(weight)
    by_hidden, weight_grad = torch.empty_like(hidden), torch.zeros_like(weight, dtype=fine) if is_narrow else part
    total, nll_sum = (hidden.new_zeros((), dtype=torch.float) for _ in range(2))
    # Added up in fp32 all the same, without a copy of the weights.
    weight_sum, fine_hidden = weight.sum(0).to(fine), hidden[:count].to(fine)
    for number, start in enumerate(chunks):
        rows = slice(start, start + rows_at_once)
        chunk, right = hidden[rows], labels[rows, None]
        logits = torch.mm(chunk, weight.t(), out=memory[: len(chunk)])
        asked = logits[: len(right)]
        everything = torch.mv(fine_hidden[rows], weight_sum)
        points = Points(asked.gather(-1, right)[:, 0].to(fine), asked[:, pad_id].to(fine, copy=True), everything)
        probs = torch.softmax(logits, -1, out=logits)
        torch.mm(probs, weight, out=by_hidden[rows])
        torch.addmm(part, probs.t(), chunk, beta=int(number % together > 0), out=part)
        if is_narrow and ((number + 1) % together == 0 or number + 1 == len(chunks)):
            weight_grad += part
        log_norm = _log_norm(probs[: len(right)].gather(-1, right)[:, 0].to(fine), points.right, chunk, weight)
        loss, nll = _summed(points, log_norm, label, len(weight))
        total += loss
        nll_sum += nll
    hidden_grad = by_hidden[:count].to(fine)
    hidden_grad.sub_(F.embedding(labels, weight).to(fine), alpha=label.right - label.others)
    weight_grad.index_add_(0, labels, fine_hidden, alpha=label.others - label.right)
    if label.others:
        hidden_grad -= label.others * weight_sum + (label.padding - label.others) * weight[pad_id].to(fine)
        hidden_sum = fine_hidden.sum(0)
        weight_grad -= label.others * hidden_sum
        weight_grad[pad_id] -= (label.padding - label.others) * hidden_sum
    return total, nll_sum, hidden_grad, weight_grad


def _log_norm(right_prob: Tensor, right_logit: Tensor, hidden: Tensor, weight: Tensor) -> Tensor:
    """The logarithmic norm of each row: the right entry's probability is exp(its logit - norm)."""
    log_norm = right_logit - right_prob.log()
    lost = (right_prob < torch.finfo(torch.float).tiny).nonzero()[:, 0]
    if len(lost):
        # A probability of nothing says nothing of the norm.
        log_norm[lost] = (hidden[lost] @ weight.t()).to(log_norm.dtype).logsumexp(-1)
    return log_norm


class _ChunkedAgreement(torch.autograd.Function):
    """`agreeing`, a few rows of both passes at a time.

    With d = log p − log q, the gradient of Σ(p − q)·d by the logits of p is p·(d − Σp·d) + p − q.
    """

    @staticmethod
    def forward(
        context: Any,
        first: Tensor,
        second: Tensor,
        weight: Tensor,
        labels: Tensor,
        label: SmoothLabel,
        pad_id: int,
        agreement: float,
        rows_at_once: int,
    ) -> tuple[Tensor, Tensor]:
        passes = torch.stack([first, second])
        narrow_passes, narrow_weight = _narrow(passes, weight)
        grads = torch.empty_like(narrow_passes)
        weight_grad = torch.zeros_like(weight)
        total, nll_sum = first.new_zeros((), dtype=torch.float), first.new_zeros((), dtype=torch.float)
        with torch.autocast(first.device.type, enabled=False):
            for start in range(0, len(labels), rows_at_once):
                rows = slice(start, start + rows_at_once)
                chunk, right = narrow_passes[:, rows], labels[rows, None]
                logs = (chunk @ narrow_weight.t()).float().log_softmax(-1)
                for log_probs in logs:
                    loss, nll = divergence(log_probs, right[:, 0], label, pad_id)
                    total += loss / 2
                    nll_sum += nll / 2
                apart = logs[0] - logs[1]
                probs = logs.exp_()
                between = probs[0] - probs[1]
                total += agreement / 4 * torch.dot(between.flatten(), apart.flatten())
                by_logits = torch.empty_like(probs)
                for side, sign in ((0, 1.0), (1, -1.0)):
                    mine = probs[side]
                    lean = (mine * apart).sum(-1, keepdim=True)
                    pull = torch.addcmul(between, mine, apart - lean).mul_(sign * agreement / 4)
                    torch.add(pull, _less_label(mine, right, label, pad_id), alpha=0.5, out=by_logits[side])
                narrow = by_logits.to(narrow_weight.dtype)
                grads[:, rows] = narrow @ narrow_weight
                weight_grad += (narrow.flatten(0, 1).t() @ chunk.flatten(0, 1)).to(weight_grad.dtype)
        context.save_for_backward(grads.to(first.dtype), weight_grad)
        context.mark_non_differentiable(nll_sum)
        return total, nll_sum

    @staticmethod
    def backward(context: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden_grads, weight_grad = context.saved_tensors
        first, second = hidden_grads * grads[0].to(hidden_grads.dtype)
        return first, second, weight_grad * grads[0], None, None, None, None, None


def _narrow(hidden: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Under autocast the products run in the narrow format, as the output layer's own would."""
    if not torch.is_autocast_enabled(hidden.device.type):
        return hidden, weight
    dtype = torch.get_autocast_dtype(hidden.device.type)
    return hidden.to(dtype), weight.to(dtype)


def _less_label(probs: Tensor, right: Tensor, label: SmoothLabel, pad_id: int) -> Tensor:
    """Take the smoothed label off the probabilities, in place: what is left is the gradient by the logits."""
    if label.others:
        probs -= label.others
        probs[:, pad_id] -= label.padding - label.others
    return probs.scatter_add_(1, right, probs.new_full(right.shape, label.others - label.right))


class CrossEntropy(Loss):
    """Cross-entropy against a label that gives ε to the whole vocabulary evenly, as torch defines it."""

    def label(self, vocab_size: int, *, has_padding: bool = True) -> SmoothLabel:
        share = self.smoothing / vocab_size
        return SmoothLabel(right=1 - self.smoothing + share, padding=share, others=share, entropy=0.0)


class SmoothedKl(Loss):
    """Kullback-Leibler divergence from a label with ε/(V−2) on each entry but itself and padding (the notes' form)."""

    def label(self, vocab_size: int, *, has_padding: bool = True) -> SmoothLabel:
        if self.smoothing == 0.0:
            return SmoothLabel(right=1.0, padding=0.0, others=0.0, entropy=0.0)
        keep, share = 1 - self.smoothing, self.smoothing / (vocab_size - 1 - has_padding)
        entropy = keep * math.log(keep) + self.smoothing * math.log(share)
        return SmoothLabel(right=keep, padding=0.0 if has_padding else share, others=share, entropy=entropy)


LOSSES: dict[str, type[Loss]] = {"cross_entropy": CrossEntropy, "kl": SmoothedKl}
