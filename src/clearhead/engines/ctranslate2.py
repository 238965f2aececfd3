"""Source ids in, hypotheses out, by CTranslate2: one worker for each core, small batches of texts of a length.

What CTranslate2 forbids, it forbids before it normalises, which changes its probabilities. So a rule of ours is imposed
only on the texts whose translations broke it, in a second round, and their scores are then measured afresh.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from clearhead.engines.directory import Exported
from clearhead.engines.extras import needed
from clearhead.engines.hypotheses import hypothesis, ranked
from clearhead.engines.ranking import Floats
from clearhead.errors import StorageError, UnavailableError
from clearhead.generate.hypothesis import Hypothesis
from clearhead.generate.repeats import MAX_BLOCK, MAX_REPEATS, count_repeats, guard_span
from clearhead.generate.settings import GenerationConfig
from clearhead.text.specials import BOS, BOS_ID, EOS_ID, PAD, PAD_ID, UNK_ID
from clearhead.text.tokenizer import TokenizerPair

BATCH = 32
"""Texts that a worker translates side by side, or of which it scores translations."""
GREEDY_BATCH = 64
"""The same where each is one row, not as many as the beam is wide."""
MOST_ROUNDS = 30
"""So often a text whose translation runs in circles is tried again, with one more phrase forbidden each time."""
FORBIDDEN = {BOS_ID, PAD_ID, UNK_ID}
Said: TypeAlias = tuple[list[int], float]
"""The ids of one translation, </s> included where it is finished, and its score."""


@dataclass(frozen=True)
class Row:
    """One text to be translated."""

    ids: Sequence[int]
    tokens: list[str]
    max_len: int
    """Most tokens of its translation, not counting </s>."""


class CTranslate2Engine:
    """A translator in CTranslate2's format."""

    name = "ctranslate2"

    def __init__(self, exported: Exported, tokenizers: TokenizerPair, threads: int, device: str = "cpu") -> None:
        # All that is asked for is queued at once, so that answers are heard while others are still computed.
        workers = {"inter_threads": threads, "intra_threads": 1, "max_queued_batches": -1}
        self._translator = opened("Translator", exported.path, device, **workers)
        self.room = exported.notes.max_len - 1
        self._source = tokenizers.source.tokens()
        self._target = tokenizers.target.tokens()
        self._ids = {token: index for index, token in enumerate(self._target)}
        self._span = guard_span(tokenizers.target.kind)

    def check(self, config: GenerationConfig) -> None:
        """Sampling is refused: workers draw from one source in any order, so a seed would not repeat itself."""
        if config.strategy == "sample":
            raise UnavailableError("CTranslate2 cannot draw the same twice from one seed: sample with another engine")

    def search(
        self, sources: Sequence[Sequence[int]], config: GenerationConfig, row_keys: Sequence[int]
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each source, best first."""
        limits = config.max_lens([len(ids) for ids in sources], self.room)
        rows = [
            Row(ids, [self._source[index] for index in ids], limit) for ids, limit in zip(sources, limits, strict=True)
        ]
        order = sorted(range(len(rows)), key=lambda place: len(rows[place].ids), reverse=True)
        size = BATCH if config.strategy == "beam" else GREEDY_BATCH
        answers = []
        for start in range(0, len(order), size):
            batch = [rows[place] for place in order[start : start + size]]
            answers += self._ask([row.tokens for row in batch], config, max(row.max_len for row in batch))
        said = {place: self._heard(answer) for place, answer in zip(order, answers, strict=True)}
        broken = {
            place: every
            for place, every in said.items()
            if any(self._breaks_a_rule(ids, rows[place], config) for ids, _ in every)
        }
        if broken:
            said |= self._by_the_rules(rows, broken, config)
        # Where something was forbidden, scores are to be measured.
        afresh = said if config.no_repeat_ngram or config.min_len > 1 else broken
        found = self._measured([(place, rows[place], ids) for place in afresh for ids, _ in said[place]], config)
        for place in said.keys() - found.keys():
            found[place] = [_scored(ids, score, config) for ids, score in said[place]]
        return [ranked(found[place])[: config.nbest] for place in range(len(rows))]

    def _ask(
        self,
        batch: list[list[str]],
        config: GenerationConfig,
        max_len: int,
        *,
        forbidden: list[list[str]] | None = None,
    ) -> list[Any]:
        """Promises of translations; with `forbidden` phrases, all our rules are imposed."""
        strict = forbidden is not None
        return self._translator.translate_batch(
            batch,
            beam_size=config.beam_size if config.strategy == "beam" else 1,
            patience=config.patience,
            num_hypotheses=config.nbest,
            length_penalty=config.length_penalty,
            # One more for </s>; what has none then was cut.
            max_decoding_length=max_len + 1,
            min_decoding_length=min(config.min_len, max_len) if strict or config.min_len > 1 else 0,
            no_repeat_ngram_size=config.no_repeat_ngram,
            disable_unk=strict,
            suppress_sequences=[[BOS], [PAD], *forbidden] if forbidden is not None else None,
            return_scores=True,
            return_end_token=True,
            max_input_length=0,
            asynchronous=True,
        )

    def _heard(self, answer: Any) -> list[Said]:
        result = answer.result()
        said = [[self._ids[token] for token in tokens] for tokens in result.hypotheses]
        return list(zip(said, result.scores, strict=True))

    # Our rules -------------------------------------------------------------------------------------------------------

    def _by_the_rules(
        self, rows: Sequence[Row], broken: dict[int, list[Said]], config: GenerationConfig
    ) -> dict[int, list[Said]]:
        """What is said when the rules are imposed; where it runs in circles, once more without that phrase."""
        done: dict[int, list[Said]] = {}
        phrases: dict[int, list[list[str]]] = {place: [] for place in broken}
        for _ in range(MOST_ROUNDS):
            for place, said in broken.items():
                loops = [loop for ids, _ in said if (loop := self._loop(ids, rows[place], config)) is not None]
                phrases[place] += [[self._target[index] for index in loop] for loop in loops]
            done |= self._asked_again(rows, {place: phrases[place] for place in broken}, config)
            broken = {
                place: done[place]
                for place in broken
                if any(self._loop(ids, rows[place], config) is not None for ids, _ in done[place])
            }
            if not broken:
                break
        return done

    def _asked_again(
        self, rows: Sequence[Row], phrases: dict[int, list[list[str]]], config: GenerationConfig
    ) -> dict[int, list[Said]]:
        """Translations by the rules, without some phrases; rows that have the same limits go together."""
        groups: dict[tuple[int, str], list[int]] = {}
        for place, forbidden in phrases.items():
            groups.setdefault((rows[place].max_len, repr(forbidden)), []).append(place)
        asked: list[tuple[int, Any]] = []
        for (limit, _), places in groups.items():
            tokens = [rows[place].tokens for place in places]
            asked += zip(places, self._ask(tokens, config, limit, forbidden=phrases[places[0]]), strict=True)
        return {place: self._heard(answer) for place, answer in asked}

    def _breaks_a_rule(self, ids: list[int], row: Row, config: GenerationConfig) -> bool:
        length = len(ids) - (ids[-1:] == [EOS_ID])
        return (
            length > row.max_len
            or length < min(config.min_len, row.max_len)
            or not FORBIDDEN.isdisjoint(ids)
            or self._loop(ids, row, config) is not None
        )

    def _loop(self, ids: list[int], row: Row, config: GenerationConfig) -> list[int] | None:
        # In a loop some token comes three times: few texts get past here.
        if not config.loop_guard or len(ids) - len(set(ids)) < MAX_REPEATS:
            return None
        return first_loop(ids, max(count_repeats(row.ids), MAX_REPEATS), self._span)

    def _measured(
        self, said: Sequence[tuple[int, Row, list[int]]], config: GenerationConfig
    ) -> dict[int, list[Hypothesis]]:
        """Hypotheses, by place, with the probabilities they have where nothing is forbidden."""
        found: dict[int, list[Hypothesis]] = {place: [] for place, _, _ in said}
        if not said:
            return found
        ended = [ids[-1:] == [EOS_ID] for _, _, ids in said]
        kept = [ids[:-1] if end else ids[: row.max_len] for (_, row, ids), end in zip(said, ended, strict=True)]
        targets = [[self._target[index] for index in ids] for ids in kept]
        scored = self._translator.score_batch([row.tokens for _, row, _ in said], targets, max_batch_size=BATCH)
        for (place, _, _), ids, end, answer in zip(said, kept, ended, scored, strict=True):
            found[place].append(hypothesis(ids, answer.log_probs[: len(ids) + end], config, finished=end))
        return found

    # For comparisons -------------------------------------------------------------------------------------------------

    def logits(self, source: Sequence[int], target: Sequence[int]) -> Floats:
        """The scores of the token after <s> and after each target token."""
        (result,) = self._translator.translate_batch(
            [[self._source[index] for index in source]],
            target_prefix=[[self._target[index] for index in target]] if target else None,
            beam_size=1,
            max_decoding_length=len(target) + 1,
            min_decoding_length=0,
            max_input_length=0,
            return_logits_vocab=True,
        )
        return np.stack([np.array(step) for step in result.logits[0]]).astype(np.float32)


def opened(what: str, path: Path, device: str, **settings: int) -> Any:
    """CTranslate2's own Translator or Generator over a directory."""
    needed("ctranslate2")
    import ctranslate2

    try:
        return getattr(ctranslate2, what)(str(path), device=device, **settings)
    except (RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        if device not in ("auto", "cpu"):
            raise UnavailableError(f"device '{device}' cannot be used: {reason}") from None
        raise StorageError(f"CTranslate2 cannot read {path}: {reason}") from None


def _scored(ids: list[int], score: float, config: GenerationConfig) -> Hypothesis:
    """A hypothesis with CTranslate2's own score, which counts as ours does."""
    total = score * max(len(ids), 1) ** config.length_penalty
    finished = ids[-1:] == [EOS_ID]
    return Hypothesis(tuple(ids[:-1] if finished else ids), total, score, (), finished)


def first_loop(ids: Sequence[int], repeats: int, span: int) -> list[int] | None:
    """The first phrase that comes more than `repeats` times in a row, as often as is too often; None if there is none.

    >>> first_loop([5, 1, 2, 1, 2, 1, 2, 1], 2, 1)
    [1, 2, 1, 2, 1, 2]
    >>> first_loop([5, 1, 2, 1, 2], 2, 1) is None
    True
    """
    found: tuple[int, int] | None = None
    for block in range(1, min(max(MAX_BLOCK, 2 * span), len(ids) - 1) + 1):
        size, run = max((repeats + 1) * block, span), 0
        for end in range(block, len(ids) if found is None else found[0]):
            run = run + 1 if ids[end] == ids[end - block] else 0
            if run >= size - block:
                found = end, size
                break
    return None if found is None else list(ids[found[0] + 1 - found[1] : found[0] + 1])
