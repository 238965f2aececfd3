"""The newest tokens of texts in, scores of what comes next out, by CTranslate2.

CTranslate2 keeps what it has read for as long as it writes by itself, and only then. So it writes ahead: a few likely
tokens, with the scores at each. As long as a search says the same, those are the answers; where chance or a rule makes
it say something else, the text is read anew from there. Greedy search hardly ever does, sampling does often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clearhead.engines.ctranslate2 import opened
from clearhead.engines.directory import Exported
from clearhead.engines.ranking import Floats, Ids
from clearhead.engines.writing import first_seen
from clearhead.text.tokenizer import Tokenizer

FEWEST, MOST = 2, 64
"""Tokens that are written ahead: fewer after a wrong guess, more while all are right."""


@dataclass(frozen=True)
class Draft:
    """A text, and what CTranslate2 would say after it."""

    ids: tuple[int, ...]
    """What is seen of the text."""
    ahead: tuple[int, ...]
    """What comes next, by CTranslate2 ..."""
    logits: Floats
    """... and the scores of the token after the text, and after each of those but the last."""
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
        nothing = np.empty((0, len(self._tokens)), np.float32)
        return Drafts(Draft(tuple(row), (), nothing, FEWEST) for row in seen.tolist())

    def step(self, ids: Ids, state: Drafts) -> tuple[Floats, Drafts]:
        """Feed the newest token of each row; the logits of the next one come back."""
        rows = [self._fed(draft, token) for draft, token in zip(state, ids.tolist(), strict=True)]
        groups: dict[tuple[int, int], list[int]] = {}
        for row, draft in enumerate(rows):
            if not draft.ahead:
                # Past the longest text it would have to see less of it.
                reach = min(draft.reach, self.max_len - len(draft.ids) + 1)
                groups.setdefault((len(draft.ids), reach), []).append(row)
        for (_, reach), places in groups.items():
            answers = self._written([rows[row].ids for row in places], reach)
            for row, (ahead, logits) in zip(places, answers, strict=True):
                rows[row] = Draft(rows[row].ids, ahead, logits, rows[row].reach)
        return np.stack([draft.logits[0] for draft in rows]), Drafts(rows)

    def read(self, ids: Ids) -> Floats:
        """The scores after each token of texts of one length, (rows, time, vocabulary)."""
        return np.array(self._generator.forward_batch(ids.tolist())).astype(np.float32)

    def _fed(self, draft: Draft, token: int) -> Draft:
        """The draft with one token more; nothing is ahead of it where that is not what was expected."""
        ids = (*draft.ids, token)
        seen = ids[first_seen(len(ids), self.max_len) :]
        is_right = draft.ahead[:1] == (token,)
        if is_right and len(draft.ahead) > 1 and len(seen) == len(ids):
            return Draft(ids, draft.ahead[1:], draft.logits[1:], draft.reach)
        reach = min(MOST, 2 * draft.reach) if is_right or not draft.ahead else max(FEWEST, draft.reach // 2)
        return Draft(seen, (), draft.logits[:0], reach)

    def _written(self, texts: Sequence[Sequence[int]], reach: int) -> list[tuple[tuple[int, ...], Floats]]:
        """The likeliest tokens after texts of one length, and the scores at each step."""
        results: list[Any] = self._generator.generate_batch(
            [[self._tokens[index] for index in ids] for ids in texts],
            beam_size=1,
            max_length=reach,
            min_length=0,
            include_prompt_in_result=False,
            return_end_token=True,
            return_logits_vocab=True,
        )
        return [
            (tuple(result.sequences_ids[0]), np.stack([np.array(step) for step in result.logits[0]]).astype(np.float32))
            for result in results
        ]
