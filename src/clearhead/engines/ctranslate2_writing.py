"""The newest tokens of texts in, scores of what comes next out, by CTranslate2.

CTranslate2 keeps what it has read for as long as it writes by itself, and only then. So it writes ahead: a few likely
tokens, with the scores at each, heard one by one as they come. As long as a search says the same, those are the
answers; where chance or a rule makes it say something else, the text is read anew from there. Greedy search hardly ever
does, sampling does often. What nobody follows any more ends at its next token.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clearhead.engines.ctranslate2 import opened
from clearhead.engines.directory import Exported
from clearhead.engines.ranking import Floats, Ids
from clearhead.engines.writing import first_seen
from clearhead.text.tokenizer import Tokenizer

FEWEST, FIRST, MOST = 2, 32, 64
"""Tokens that are written ahead: at first, few after a wrong guess, ever more while all are right."""
PATIENCE = 0.05
"""Seconds of silence after which is asked whether CTranslate2 has come to an end, or to grief."""


class Ahead:
    """What CTranslate2 says after one text, token by token as it comes; it stops when this is held no more."""

    def __init__(self) -> None:
        self.job: Any = None
        """The promise of the whole."""
        self.is_left = False
        """Whether nobody follows it any more."""
        self._said: list[tuple[int, Floats]] = []
        self._more = threading.Condition()

    def add(self, token: int, logits: Floats) -> None:
        """Hear one token more, and the scores it was chosen by."""
        with self._more:
            self._said.append((token, logits))
            self._more.notify_all()

    def at(self, place: int) -> tuple[int, Floats]:
        """A token and the scores it was chosen by, as soon as they are there."""
        with self._more:
            while len(self._said) <= place:
                if not self._more.wait(PATIENCE) and self.job.done():
                    self._said = self._whole()
                    break
            return self._said[place]

    def _whole(self) -> list[tuple[int, Floats]]:
        result = self.job.result()
        logits = [np.array(step).astype(np.float32) for step in result.logits[0]]
        return list(zip(result.sequences_ids[0], logits, strict=True))


@dataclass(frozen=True)
class Draft:
    """A text, and what CTranslate2 says after it."""

    ids: tuple[int, ...]
    """What is seen of the text."""
    ahead: Ahead | None
    """What comes next, by CTranslate2, after a part of the text ..."""
    place: int
    """... and how much of that the text has followed since ..."""
    length: int
    """... of as much as was asked for."""
    reach: int
    """How many to write ahead the next time."""


class Drafts(tuple[Draft, ...]):
    """One draft for each row."""

    def select(self, rows: Ids) -> Drafts:
        """These rows, in this order."""
        return Drafts(self[row] for row in rows.tolist())


class CTranslate2Writer:
    """A language model in CTranslate2's format."""

    name = "ctranslate2"

    def __init__(self, exported: Exported, tokenizer: Tokenizer, threads: int, device: str = "cpu") -> None:
        self._generator = opened("Generator", exported.path, device, inter_threads=1, intra_threads=threads)
        self.max_len = exported.notes.max_len
        self._tokens = tokenizer.tokens()

    def start(self, seen: Ids) -> Drafts:
        """Nothing is read before the first step."""
        return Drafts(Draft(tuple(row), None, 0, 0, FIRST) for row in seen.tolist())

    def step(self, ids: Ids, state: Drafts) -> tuple[Floats, Drafts]:
        """Feed the newest token of each row; the logits of the next one come back."""
        rows = [self._fed(draft, token) for draft, token in zip(state, ids.tolist(), strict=True)]
        followed = {id(draft.ahead) for draft in rows}
        for draft in state:
            if draft.ahead is not None and id(draft.ahead) not in followed:
                # Now, not when the search lets go of its old state: CTranslate2 does one thing at a time.
                draft.ahead.is_left = True
        groups: dict[tuple[int, int], list[int]] = {}
        for row, draft in enumerate(rows):
            if draft.ahead is None:
                # Past the longest text it would have to see less of it.
                reach = min(draft.reach, self.max_len - len(draft.ids) + 1)
                groups.setdefault((len(draft.ids), reach), []).append(row)
        for (_, reach), places in groups.items():
            begun = self._written([rows[row].ids for row in places], reach)
            for row, ahead in zip(places, begun, strict=True):
                rows[row] = Draft(rows[row].ids, ahead, 0, reach, rows[row].reach)
        return np.stack([draft.ahead.at(draft.place)[1] for draft in rows if draft.ahead is not None]), Drafts(rows)

    def read(self, ids: Ids) -> Floats:
        """The scores after each token of texts of one length, (rows, time, vocabulary)."""
        return np.array(self._generator.forward_batch(ids.tolist())).astype(np.float32)

    def _fed(self, draft: Draft, token: int) -> Draft:
        """The draft with one token more; nothing is ahead of it where that is not what was expected."""
        ids = (*draft.ids, token)
        seen = ids[first_seen(len(ids), self.max_len) :]
        if draft.ahead is None:
            return Draft(seen, None, 0, 0, draft.reach)
        is_right = draft.ahead.at(draft.place)[0] == token
        if is_right and draft.place + 1 < draft.length and len(seen) == len(ids):
            return Draft(ids, draft.ahead, draft.place + 1, draft.length, draft.reach)
        return Draft(seen, None, 0, 0, min(MOST, 2 * draft.reach) if is_right else FEWEST)

    def _written(self, texts: Sequence[Sequence[int]], reach: int) -> list[Ahead]:
        """The likeliest tokens after texts of one length, and the scores at each step, which are yet to come."""
        found = [Ahead() for _ in texts]
        jobs = self._generator.generate_batch(
            [[self._tokens[index] for index in ids] for ids in texts],
            beam_size=1,
            max_length=reach,
            min_length=0,
            include_prompt_in_result=False,
            return_end_token=True,
            return_logits_vocab=True,
            asynchronous=True,
            callback=_hearing([weakref.ref(ahead) for ahead in found]),
        )
        for ahead, job in zip(found, jobs, strict=True):
            ahead.job = job
        return found


def _hearing(rows: Sequence[weakref.ref[Ahead]]) -> Callable[[Any], bool]:
    """What CTranslate2 calls for each token of each row; it answers whether that row is to end."""
    scores: list[Floats] = []

    def hear(step: Any) -> bool:
        # The scores of all rows that go on come with the first of them, and are gone for the others. Those that are on
        # another device are left to the end.
        if hasattr(step.logits, "__array_interface__") and len(step.logits.shape) == 2:
            scores[:] = np.array(step.logits).astype(np.float32)
        ahead = rows[step.batch_id]()
        mine = scores.pop(0) if scores else None
        if ahead is None or ahead.is_left:
            return True
        if mine is not None:
            ahead.add(step.token_id, mine)
        return False

    return hear
