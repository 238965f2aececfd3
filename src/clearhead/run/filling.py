"""A BERT and texts with gaps in, what may stand in the gaps out, with probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from clearhead.errors import DataError
from clearhead.models.bert import Bert
from clearhead.run.devices import pick_device
from clearhead.text.specials import BOS_ID, EOS_ID, SPECIALS, UNK_ID
from clearhead.text.tokenizer import Tokenizer, TokenizerPair

if TYPE_CHECKING:
    from clearhead.run.inspecting import Inspection

GAP = "[MASK]"
"""How a person writes a gap; in the model it is a vector that no text can spell."""


@dataclass(frozen=True)
class Candidate:
    """One token that may stand in a gap."""

    token: str
    """As text, the space before a word included."""
    probability: float
    text: str
    """The whole text with this token in this gap, and the likeliest ones in the others."""


@dataclass(frozen=True)
class Filled:
    """A text with its gaps filled."""

    text: str
    """By the likeliest token in each."""
    gaps: list[list[Candidate]]
    """For each gap, the likeliest tokens first."""


class Gapped(NamedTuple):
    """The tokens of a text with gaps, `<s>` and `</s>` around it."""

    ids: list[int]
    """`<unk>` stands in the gaps, but is not looked at."""
    hidden: list[bool]

    @property
    def places(self) -> list[int]:
        """Where the gaps are."""
        return [place for place, is_hidden in enumerate(self.hidden) if is_hidden]


class LoadedBert:
    """A trained BERT, ready for use."""

    def __init__(self, model: Bert, tokenizers: TokenizerPair, device: str = "cpu") -> None:
        self.device = pick_device(device)
        self.model = model.to(self.device).eval()
        self.tokenizers = tokenizers
        self.path: Path | None = None
        """Where it was loaded from."""

    def fill(self, text: str, top: int = 5) -> Filled:
        """The likeliest tokens in each gap of a text, which is written [MASK]."""
        return next(self.stream([text], top))

    def stream(self, texts: Iterable[str], top: int = 5) -> Iterator[Filled]:
        """The likeliest tokens in the gaps of each text, in order; an empty text stays empty."""
        for number, text in enumerate(texts, start=1):
            if not text.strip():
                yield Filled("", [])
                continue
            if GAP not in text:
                raise DataError(f"text {number:,} has no gap to fill: write {GAP} where one is")
            yield self._filled(self.encode(text, number), top)

    def encode(self, text: str, number: int = 1) -> Gapped:
        """The tokens of a text with gaps, or without."""
        found = gapped(self.tokenizers.source, text.strip())
        longest = self.model.config.max_len
        if len(found.ids) > longest:
            size = f"{len(found.ids) - 2:,} tokens"
            raise DataError(f"text {number:,} has {size}, and this model reads at most {longest - 2}: shorten it")
        return found

    @torch.inference_mode()
    def log_probs(self, given: Gapped) -> torch.Tensor:
        """The logarithm of the probability of each token in each gap, of those that are text."""
        ids, hidden = (torch.tensor([row], device=self.device) for row in given)
        x = self.model.encode(ids, hidden)
        # One that was imported without a head for gaps can still read a text that has none.
        found = self.model.named(x[hidden]) if given.places else x.new_empty(0, self.model.config.vocab_size)
        logits = found.float()
        # What is no text cannot stand in a text.
        logits[:, : len(SPECIALS)] = -torch.inf
        return logits.log_softmax(-1).cpu()

    def _filled(self, given: Gapped, top: int) -> Filled:
        tokenizer = self.tokenizers.source
        found = self.log_probs(given)
        best = found.topk(min(top, found.shape[1] - len(SPECIALS)))
        ids = list(given.ids)
        for place, index in zip(given.places, best.indices[:, 0].tolist(), strict=True):
            ids[place] = index
        gaps = []
        rows = zip(given.places, best.values.exp().tolist(), best.indices.tolist(), strict=True)
        for place, probabilities, candidates in rows:
            texts = [tokenizer.decode([*ids[1:place], index, *ids[place + 1 : -1]]) for index in candidates]
            tokens = [tokenizer.decode([index]) for index in candidates]
            gaps.append([Candidate(*row) for row in zip(tokens, probabilities, texts, strict=True)])
        return Filled(tokenizer.decode(ids[1:-1]), gaps)

    def inspect(self, text: str, target: str | None = None, *, ablate: Sequence[str] = ()) -> Inspection:
        """Look at every head while a text is read, with gaps or without; `ablate` names heads to switch off."""
        from clearhead.run.inspecting_readers import inspect_bert

        return inspect_bert(self, text, target, ablate=ablate)


def gapped(tokenizer: Tokenizer, text: str) -> Gapped:
    """Encode what stands around the gaps as it would be encoded if they were filled, and a gap as one token."""
    parts = text.split(GAP)
    ids, hidden = [BOS_ID], [False]
    for place, part in enumerate(parts):
        is_after, is_before = place > 0, place < len(parts) - 1
        touches_before = is_after and bool(part) and not part[0].isspace()
        touches_after = is_before and bool(part) and not part[-1].isspace()
        if is_before and tokenizer.kind == "bpe":
            # The space before a word is a part of its first token.
            part = part.removesuffix(" ")
        found = beside(tokenizer, part, touches_before, touches_after)
        ids += found + [UNK_ID] * is_before
        hidden += [False] * len(found) + [True] * is_before
    return Gapped([*ids, EOS_ID], [*hidden, False])


def beside(tokenizer: Tokenizer, part: str, before: bool, after: bool) -> list[int]:
    """The ids of a part of a text that touches words before or after it which are not known.

    Marks that touch a word may be other tokens than marks that stand alone, so a letter stands in for the word.
    """
    if not part:
        return []
    letter = tokenizer.encode("a")
    if UNK_ID not in letter:
        size = len(letter)
        found = tokenizer.encode("a" * before + part + "a" * after)
        inner = found[size * before : len(found) - size * after]
        if found == letter * before + inner + letter * after:
            return inner
    return tokenizer.encode(part)
