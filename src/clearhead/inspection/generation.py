"""A search under watch in, what it did out: the candidates of each step, and the tree of kept and dropped paths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor

from clearhead.generate.step import Choice, Hypothesis

MOST_CANDIDATES = 5
"""Tokens that are remembered of each step, and the chosen one if it is not among them."""

Path = tuple[int, ...]


class Candidate(NamedTuple):
    """A token that might have come next."""

    token: int
    log_prob: float
    is_chosen: bool


class Branch(NamedTuple):
    """A hypothesis that was followed for at least one step."""

    path: Path
    """What it had said, </s> included if it ended."""
    log_prob: float
    """Of its last token."""
    total: float
    """Of all it had said."""


@dataclass
class Diary:
    """What a search of one text did, step by step; give it to `generate` as `watch`."""

    candidates: dict[Path, list[tuple[int, float]]] = field(default_factory=dict)
    """For each hypothesis, the likeliest tokens to come next."""
    branches: dict[Path, Branch] = field(default_factory=dict)
    """Every hypothesis that was chosen to go on or to end, in the order of its choice."""

    def __call__(self, choice: Choice) -> None:
        histories = [tuple(row) for row in choice.history.tolist()]
        for path, likeliest in zip(histories, _likeliest(choice.log_probs), strict=True):
            self.candidates.setdefault(path, likeliest)
        chosen = choice.log_probs[choice.rows, choice.tokens].tolist()
        totals = choice.total[choice.rows].tolist()
        for row, token, log_prob, total in zip(
            choice.rows.tolist(), choice.tokens.tolist(), chosen, totals, strict=True
        ):
            path = (*histories[row], token)
            self.branches.setdefault(path, Branch(path, log_prob, total + log_prob))

    def steps(self, written: Sequence[int]) -> list[list[Candidate]]:
        """What there was to choose from at each step of what was written, likeliest first."""
        found = []
        for place, token in enumerate(written):
            path = tuple(written[:place])
            branch = self.branches[(*path, token)]
            found.append(with_chosen(self.candidates[path], token, branch.log_prob))
        return found


def with_chosen(likeliest: Sequence[tuple[int, float]], token: int, log_prob: float) -> list[Candidate]:
    """Candidates with the chosen one marked, and added at the end if it is not among them."""
    found = [Candidate(index, value, index == token) for index, value in likeliest]
    return found if any(one.is_chosen for one in found) else [*found, Candidate(token, log_prob, True)]


def forced_steps(log_probs: Float[Tensor, "target vocab"], written: Sequence[int]) -> list[list[Candidate]]:
    """What a model would have chosen from at each step of a target it was led through."""
    likeliest = _likeliest(log_probs)
    return [
        with_chosen(row, token, float(log_probs[place, token]))
        for place, (row, token) in enumerate(zip(likeliest, written, strict=True))
    ]


def _likeliest(log_probs: Float[Tensor, "rows vocab"]) -> list[list[tuple[int, float]]]:
    values, tokens = log_probs.topk(min(MOST_CANDIDATES, log_probs.shape[1]))
    rows: Int[Tensor, "rows few"] = tokens
    return [
        [(token, value) for token, value in zip(row, numbers, strict=True) if value > float("-inf")]
        for row, numbers in zip(rows.tolist(), values.tolist(), strict=True)
    ]


class Node(NamedTuple):
    """A token in the tree of hypotheses."""

    id: int
    parent: int | None
    """The token before it; None if it is the first."""
    step: int
    token: int
    log_prob: float
    score: float
    """Of the hypothesis up to here: its log-probability normalised for length, as hypotheses are compared."""
    fate: str
    """`winner` on the way of the result, `finished` where another ended, `kept` where it went on, else `dropped`."""


def tree(diary: Diary, winner: Hypothesis, eos_id: int, normalise: Callable[[float, int], float]) -> list[Node]:
    """All hypotheses that were followed, as a tree; parents come before their children."""
    won = {winner.ids[: place + 1] for place in range(len(winner.ids))}
    if winner.said_end:
        won.add((*winner.ids, eos_id))
    went_on = {path[:-1] for path in diary.branches}
    ids = {path: number for number, path in enumerate(diary.branches)}
    nodes = []
    for path, branch in diary.branches.items():
        if path in won:
            fate = "winner"
        elif path[-1] == eos_id:
            fate = "finished"
        else:
            fate = "kept" if path in went_on else "dropped"
        score = normalise(branch.total, len(path))
        nodes.append(Node(ids[path], ids.get(path[:-1]), len(path) - 1, path[-1], branch.log_prob, score, fate))
    return nodes


class Ending(NamedTuple):
    """A hypothesis that came to its end, or to the longest length."""

    ids: Path
    score: float
    finished: bool


def endings(diary: Diary, winner: Hypothesis, eos_id: int, normalise: Callable[[float, int], float]) -> list[Ending]:
    """The hypotheses that ended, best first, the winner before all."""
    finished = [
        Ending(path[:-1], normalise(branch.total, len(path)), True)
        for path, branch in diary.branches.items()
        if path[-1] == eos_id and path[:-1] != winner.ids
    ]
    return [
        Ending(winner.ids, winner.score, winner.finished),
        *sorted(finished, key=lambda ending: ending.score, reverse=True),
    ]
