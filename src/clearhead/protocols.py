"""Translations and references in, a score as a published paper or tutorial measured it out.

Such scores compare with that work only: the text is lower-cased and cut into tokens before BLEU is taken, which adds
points. A new protocol is one function and one line in PROTOCOLS.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from clearhead.errors import UnavailableError, choose
from clearhead.evaluate import Interval, primary_code, tokenised_bleu

Tokenise = Callable[[str], str]


@dataclass(frozen=True)
class ProtocolScore:
    """BLEU in somebody else's protocol."""

    protocol: str
    bleu: float
    interval: Interval | None
    signature: str


def score_like(
    protocol: str, hypotheses: Sequence[str], references: Sequence[str], *, target_language: str | None = None
) -> ProtocolScore:
    """Score hypotheses the way a published result was scored."""
    tokenise, how = tokenizer_of(protocol, target_language)
    found, wanted = ([tokenise(text.lower()) for text in texts] for texts in (hypotheses, references))
    bleu, interval = tokenised_bleu(found, wanted)
    return ProtocolScore(protocol, bleu, interval, f"case:lc|tok:{how}|smooth:none|like:{protocol}")


def tokenizer_of(protocol: str, target_language: str | None) -> tuple[Tokenise, str]:
    """What cuts texts in a protocol, and its name; a protocol that is unknown or needs a package is refused."""
    return choose(PROTOCOLS, protocol, "protocol")(primary_code(target_language or "en"))


def bentrevett(language: str) -> tuple[Tokenise, str]:
    """The pytorch-seq2seq tutorials: lower-cased, spaCy's tokens, corpus BLEU without smoothing (torchtext's)."""
    try:
        import spacy
    except ImportError:
        return words, "words"
    tokenizer = spacy.blank(language)
    return lambda text: " ".join(token.text for token in tokenizer(text) if not token.is_space), "spacy"


def wu2021(language: str) -> tuple[Tokenise, str]:
    """Wu et al. 2021 on Multi30k: lower-cased, Moses tokens, BLEU on those."""
    try:
        from sacremoses import MosesTokenizer
    except ImportError:
        raise UnavailableError("this protocol needs Moses' tokenizer: pip install sacremoses") from None
    tokenizer = MosesTokenizer(lang=language)
    return lambda text: tokenizer.tokenize(text, return_str=True, escape=False), "moses"


def words(text: str) -> str:
    """Words and punctuation by rule: what spaCy does with image captions, where spaCy is not installed.

    >>> words("a man's dog, well-known, runs.")
    "a man 's dog , well - known , runs ."
    """
    spaced = re.sub(r"([^\w\s'’])", r" \1 ", text)
    return " ".join(re.sub(r"(?<=\w)(n['’]t|['’](?:s|re|ve|ll|d|m))\b", r" \1", spaced).split())


PROTOCOLS: dict[str, Callable[[str], tuple[Tokenise, str]]] = {"bentrevett": bentrevett, "wu2021": wu2021}
