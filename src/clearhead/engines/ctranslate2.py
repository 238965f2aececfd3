"""Source ids in, hypotheses out, by CTranslate2: one worker for each core, small batches of texts of a length.

What CTranslate2 forbids, it forbids before it normalises, which changes its probabilities. So a rule of ours is imposed
only on the texts whose translations broke it, in a second round, and their scores are then measured afresh.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from clearhead.engines.directory import Exported
from clearhead.engines.extras import needed
from clearhead.engines.hypotheses import Unwanted, hypothesis, nobody, ranked
from clearhead.engines.ranking import Floats
from clearhead.errors import StorageError, UnavailableError
from clearhead.generate.hypothesis import Hypothesis
from clearhead.generate.repeats import MAX_BLOCK, MAX_REPEATS, count_repeats, guard_span
from clearhead.generate.settings import GenerationConfig
from clearhead.text.specials import BOS, BOS_ID, EOS_ID, PAD, PAD_ID, UNK_ID
from clearhead.text.tokenizer import TokenizerPair

BATCH = 32
"""Texts that a worker translates side by side, or of which it scores translations."""
LOT = 8
"""Rows that are asked again together, while there are others to translate."""
READY = 1
"""Batches that wait for each worker, so that it need not wait for us."""
MOST_ROUNDS = 30
"""So often a text whose translation runs in circles is tried again, with one more phrase forbidden each time."""
FORBIDDEN = {BOS_ID, PAD_ID, UNK_ID}
Said: TypeAlias = tuple[list[int], float]
"""The ids of one translation, </s> included where it is finished, and its score."""


@dataclass(frozen=True)
class Row:
    """One text to be translated."""

    ids: Sequence[int]
    max_len: int
    """Most tokens of its translation, not counting </s>."""

    def repeats(self) -> int:
        """How often in a row a phrase may come in its translation."""
        return max(count_repeats(self.ids), MAX_REPEATS)


@dataclass(frozen=True)
class Measuring:
    """One translation whose score is being measured."""

    ids: list[int]
    finished: bool
    promise: Any

    def measured(self, config: GenerationConfig) -> Hypothesis:
        """Wait for the score."""
        log_probs = self.promise.result().log_probs[: len(self.ids) + self.finished]
        return hypothesis(self.ids, log_probs, config, finished=self.finished)


class _Again:
    """Rows that are to be asked again, in lots of those that may share a call.

    What a lot forbids, it forbids to all its rows. A beam may come out otherwise for every phrase that is forbidden,
    and for another limit of length: only rows that have the same go together. Greedily, a text that says no phrase more
    often than it may is not changed by what its neighbours may not say, and a longer limit does not change how it
    begins: all rows that may say a phrase as often go together.
    """

    def __init__(self, rows: Sequence[Row], *, is_beam: bool) -> None:
        self._rows = rows
        self._is_beam = is_beam
        self._lots: dict[tuple[int, int | str | None], list[int]] = {}
        self._phrases: dict[int, list[list[str]]] = {}
        self._rounds: Counter[int] = Counter()

    def __bool__(self) -> bool:
        return bool(self._lots)

    def take(self, place: int, phrases: list[list[str]], *, alike: bool) -> bool:
        """Remember to ask a row again, without some more phrases; False if it was asked often enough.

        One that is not `alike` must have its own limit of length.
        """
        if self._rounds[place] == MOST_ROUNDS:
            return False
        self._rounds[place] += 1
        self._phrases.setdefault(place, []).extend(phrases)
        row = self._rows[place]
        limit = None if alike else row.max_len
        key = (row.max_len, repr(self._phrases[place])) if self._is_beam else (row.repeats(), limit)
        self._lots.setdefault(key, []).append(place)
        return True

    def lot(self, *, can_wait: bool) -> list[int]:
        """The next rows to ask together; none while they can wait for more of their kind."""
        at_least = LOT if can_wait and not self._is_beam else 1
        full = next((key for key, places in self._lots.items() if len(places) >= at_least), None)
        return [] if full is None else self._lots.pop(full)

    def phrases(self, places: Sequence[int]) -> list[list[str]] | None:
        """What is forbidden to rows that are asked together; None if they have not been asked before."""
        if places[0] not in self._phrases:
            return None
        found = (tuple(phrase) for place in places for phrase in self._phrases[place])
        return [list(phrase) for phrase in dict.fromkeys(found)]


class CTranslate2Engine:
    """A translator in CTranslate2's format."""

    name = "ctranslate2"

    def __init__(self, exported: Exported, tokenizers: TokenizerPair, threads: int, device: str = "cpu") -> None:
        # Asking never waits: how much is asked for at once is for us to say.
        workers = {"inter_threads": threads, "intra_threads": 1, "max_queued_batches": -1}
        self._at_once = threads * (1 + READY)
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
        self,
        sources: Sequence[Sequence[int]],
        config: GenerationConfig,
        row_keys: Sequence[int],
        unwanted: Unwanted = nobody,
        *,
        scored: bool = True,
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each source, best first; if there are several, always with scores.

        Greedily, a source that is unwanted ends at the next token. A beam that CTranslate2 has begun it finishes, but
        it is not asked again.
        """
        limits = config.max_lens([len(ids) for ids in sources], self.room)
        rows = [Row(ids, limit) for ids, limit in zip(sources, limits, strict=True)]
        order = sorted(range(len(rows)), key=lambda place: len(rows[place].ids), reverse=True)
        batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
        said, measured = self._said(rows, batches, config, unwanted, scored=scored or config.nbest > 1)
        found = {
            place: [one.measured(config) for one in measured[place]]
            if place in measured
            else [_scored(ids, score, rows[place].max_len, config) for ids, score in best]
            for place, best in said.items()
        }
        return [ranked(found[place])[: config.nbest] for place in range(len(rows))]

    def _ask(
        self,
        rows: Sequence[Row],
        config: GenerationConfig,
        is_unwanted: Callable[[int], bool] | None,
        forbidden: list[list[str]] | None = None,
        *,
        scored: bool = True,
    ) -> list[Any]:
        """Promises of translations; with `forbidden` phrases, all our rules are imposed."""
        strict = forbidden is not None
        is_beam = config.strategy == "beam"
        max_len = max(row.max_len for row in rows)
        return self._translator.translate_batch(
            [self._tokens(row) for row in rows],
            beam_size=config.beam_size if is_beam else 1,
            patience=config.patience,
            num_hypotheses=config.nbest,
            length_penalty=config.length_penalty,
            # One more for </s>; what has none then was cut.
            max_decoding_length=max_len + 1,
            min_decoding_length=min(config.min_len, max_len) if strict or config.min_len > 1 else 0,
            no_repeat_ngram_size=config.no_repeat_ngram,
            disable_unk=strict,
            suppress_sequences=[[BOS], [PAD], *forbidden] if forbidden is not None else None,
            return_scores=scored,
            return_end_token=True,
            max_input_length=0,
            asynchronous=True,
            # CTranslate2 calls nobody within a beam.
            callback=None if is_beam or is_unwanted is None else lambda step: is_unwanted(step.batch_id),
        )

    def _tokens(self, row: Row) -> list[str]:
        return [self._source[index] for index in row.ids]

    def _heard(self, answer: Any) -> list[Said]:
        result = answer.result()
        said = [[self._ids[token] for token in tokens] for tokens in result.hypotheses]
        return list(zip(said, result.scores or [math.nan] * len(said), strict=True))

    # Our rules -------------------------------------------------------------------------------------------------------

    def _said(
        self,
        rows: Sequence[Row],
        batches: Sequence[Sequence[int]],
        config: GenerationConfig,
        unwanted: Unwanted,
        *,
        scored: bool,
    ) -> tuple[dict[int, list[Said]], dict[int, list[Measuring]]]:
        """What is said of each row, and, where something was forbidden, what its true scores will be, if wanted.

        Rows that broke a rule are asked again before those that have not been asked yet: so rounds go by while there is
        other work to do.
        """
        said: dict[int, list[Said]] = {}
        measured: dict[int, list[Measuring]] = {}
        again = _Again(rows, is_beam=config.strategy == "beam")
        always_forbids = config.no_repeat_ngram > 0 or config.min_len > 1

        def ask(places: Sequence[int], forbidden: list[list[str]] | None) -> list[Any]:
            is_unwanted = None if unwanted is nobody else lambda row: places[row] in unwanted()
            return self._ask([rows[place] for place in places], config, is_unwanted, forbidden, scored=scored)

        waiting: deque[Sequence[int]] = deque(batches)
        asked: deque[tuple[Sequence[int], list[Any]]] = deque()
        while waiting or again or asked:
            while len(asked) < self._at_once and (waiting or again):
                places = again.lot(can_wait=bool(waiting)) or waiting.popleft()
                asked.append((places, ask(places, again.phrases(places))))
            places, answers = asked.popleft()
            said |= {place: self._heard(answer) for place, answer in zip(places, answers, strict=True)}
            forbade = again.phrases(places) is not None
            limit, gone, settled = max(rows[place].max_len for place in places), unwanted(), []
            for place in places:
                row, best = rows[place], said[place]
                loops = self._loops(best, row, config)
                is_long = _is_too_long(best, row) and (not forbade or row.max_len < limit)
                breaks = loops or is_long or (not forbade and _breaks_a_rule(best, row, config))
                if not (breaks and place not in gone and again.take(place, loops, alike=bool(loops) or not is_long)):
                    settled.append(place)
            if scored and (forbade or always_forbids):
                measured |= self._measuring(rows, {place: said[place] for place in settled})
        return said, measured

    def _loops(self, said: Sequence[Said], row: Row, config: GenerationConfig) -> list[list[str]]:
        """The phrases that translations of a row say over and over."""
        # In a loop some token comes three times: few texts get past here.
        suspects = [ids for ids, _ in said if len(ids) - len(set(ids)) >= MAX_REPEATS]
        if not (config.loop_guard and suspects):
            return []
        repeats = row.repeats()
        loops = [loop for ids in suspects if (loop := first_loop(ids, repeats, self._span)) is not None]
        return [[self._target[index] for index in loop] for loop in loops]

    def _measuring(self, rows: Sequence[Row], said: Mapping[int, Sequence[Said]]) -> dict[int, list[Measuring]]:
        """Promises of the probabilities that translations have where nothing is forbidden."""
        kept = [(place, *_within(ids, rows[place].max_len)) for place, best in said.items() for ids, _ in best]
        if not kept:
            return {}
        promises = self._translator.score_batch(
            [self._tokens(rows[place]) for place, _, _ in kept],
            [[self._target[index] for index in ids] for _, ids, _ in kept],
            max_batch_size=BATCH,
            asynchronous=True,
        )
        found: dict[int, list[Measuring]] = {}
        for (place, ids, finished), promise in zip(kept, promises, strict=True):
            found.setdefault(place, []).append(Measuring(ids, finished, promise))
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


def _scored(ids: list[int], score: float, max_len: int, config: GenerationConfig) -> Hypothesis:
    """A hypothesis with CTranslate2's own score, which counts as ours does."""
    total = score * max(len(ids), 1) ** config.length_penalty
    kept, finished = _within(ids, max_len)
    return Hypothesis(tuple(kept), total, score, (), finished)


def _within(ids: list[int], max_len: int) -> tuple[list[int], bool]:
    """A translation without its </s>, and whether it has one; one that has none is cut off."""
    finished = ids[-1:] == [EOS_ID]
    return (ids[:-1] if finished else ids[:max_len]), finished


def _is_too_long(said: Sequence[Said], row: Row) -> bool:
    return max(len(ids) - (ids[-1:] == [EOS_ID]) for ids, _ in said) > row.max_len


def _breaks_a_rule(said: Sequence[Said], row: Row, config: GenerationConfig) -> bool:
    """Whether a translation is too short, or holds what none may."""
    shortest = min(len(ids) - (ids[-1:] == [EOS_ID]) for ids, _ in said)
    return shortest < min(config.min_len, row.max_len) or any(not FORBIDDEN.isdisjoint(ids) for ids, _ in said)


def first_loop(ids: Sequence[int], repeats: int, span: int) -> list[int] | None:
    """The first phrase that comes more than `repeats` times in a row, as often as is too often; None if there is none.

    >>> first_loop([5, 1, 2, 1, 2, 1, 2, 1], 2, 1)
    [1, 2, 1, 2, 1, 2]
    >>> first_loop([5, 1, 2, 1, 2], 2, 1) is None
    True
    """
    found: tuple[int, int] | None = None
    for block in range(1, min(max(MAX_BLOCK, 2 * span), len(ids) // (repeats + 1)) + 1):
        size, run = max((repeats + 1) * block, span), 0
        for end in range(block, len(ids) if found is None else found[0]):
            run = run + 1 if ids[end] == ids[end - block] else 0
            if run >= size - block:
                found = end, size
                break
    return None if found is None else list(ids[found[0] + 1 - found[1] : found[0] + 1])
