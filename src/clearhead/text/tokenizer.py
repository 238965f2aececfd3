"""Strings in, token ids out, and back; the tokenizer is trained on text once and then stored with the model.

A text is only ever text: `</s>` typed by a user is encoded as its characters, never as the control token. The kinds
are in `kinds.py`, which also says how to add one.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import tokenizers

from clearhead.errors import DataError
from clearhead.text.files import read_engine, read_notes, write_engine, write_notes
from clearhead.text.grouping import group
from clearhead.text.kinds import TOKENIZERS, TokenizerConfig, rules_of
from clearhead.text.packing import Packer
from clearhead.text.specials import SPECIALS, UNK, UNK_ID

BUNCH = 1000

# Told nothing, `tokenizers` prints a warning whenever a process that used it forks. A fork must not use its threads.
if "TOKENIZERS_PARALLELISM" not in os.environ:
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    with contextlib.suppress(AttributeError):  # Windows knows no fork.
        os.register_at_fork(after_in_child=lambda: os.environ.update(TOKENIZERS_PARALLELISM="false"))


class Tokenizer:
    """One trained tokenizer: text to ids and back."""

    def __init__(self, kind: str, engine: tokenizers.Tokenizer) -> None:
        self.kind = kind
        self._rules = rules_of(kind)
        self._engine = engine
        # Not part of the stored file, so it must be said here, where trained and loaded ones both pass.
        engine.encode_special_tokens = True
        self._packer = Packer(engine, self.id_type)

    @classmethod
    def train(cls, config: TokenizerConfig, texts: Iterable[str]) -> Tokenizer:
        """Learn from texts, reading them once and keeping none; the same texts give the same tokenizer."""
        engine = TOKENIZERS[config.kind]().train(config, _bunches(texts))
        if engine.get_vocab_size() == len(SPECIALS):
            reason = f"no word occurs {config.min_freq} times, lower min_freq" if config.kind == "word" else "no text"
            raise DataError(f"there is nothing to train a '{config.kind}' tokenizer on: {reason}")
        return cls(config.kind, engine)

    @property
    def vocab_size(self) -> int:
        """How many ids there are; every id is smaller."""
        return self._engine.get_vocab_size()

    @property
    def id_type(self) -> str:
        """The smallest type of numbers that holds every id."""
        return "<u2" if self.vocab_size <= 2**16 else "<u4"

    def encode(self, text: str) -> list[int]:
        """The ids of a text, with no control tokens added."""
        check_encodable([text])
        return self._engine.encode(text, add_special_tokens=False).ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts, on all cores."""
        check_encodable(texts)
        return [encoded.ids for encoded in self._engine.encode_batch_fast(list(texts), add_special_tokens=False)]

    def pack(self, texts: Sequence[str]) -> list[bytes]:
        """The ids of many texts as numbers of `id_type`, for whole corpora: words that came before are looked up."""
        check_encodable(texts)
        return self._packer.pack(texts)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; control tokens are left out, broken UTF-8 becomes U+FFFD."""
        return self._engine.decode([int(index) for index in ids], skip_special_tokens=True)

    def decode_batch(self, batch: Iterable[Iterable[int]]) -> list[str]:
        """The texts of many sequences of ids, on all cores."""
        rows = [[int(index) for index in ids] for ids in batch]
        return self._engine.decode_batch(rows, skip_special_tokens=True)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """For each id, a string to show to a person."""
        return [self._piece(int(index)) for index in ids]

    def words(self, ids: Iterable[int]) -> list[int]:
        """For each id, the number of the word it is a part of, counted from 0; a control token stands alone."""
        return group([self._raw(index) for index in map(int, ids)])

    def raw(self, ids: Iterable[int]) -> bytes:
        """The text of ids as UTF-8, as far as it goes: it may begin or end inside a character."""
        return b"".join(self._raw(index) or b"" for index in map(int, ids))

    def spelt(self, ids: Iterable[int]) -> str:
        """The text of ids as a model reads it: <unk> where it knows no word, and a space first where one begins."""
        found = ""
        for is_unknown, run in itertools.groupby(map(int, ids), lambda index: index == UNK_ID):
            some = list(run)
            starts_a_word = is_unknown or self.raw(some[:1]).startswith(b" ")
            text = " ".join([UNK] * len(some)) if is_unknown else self.decode(some)
            found += f" {text.removeprefix(' ')}" if starts_a_word else text
        return found

    def _raw(self, index: int) -> bytes | None:
        token = self._token(index)
        return self._rules.raw(token) if index >= len(SPECIALS) else None

    def tokens(self) -> list[str]:
        """Every token as it is stored, by id: what other engines take for a vocabulary."""
        return [self._token(index) for index in range(self.vocab_size)]

    def halves(self) -> list[tuple[int, int]]:
        """For each id, the two that it was merged from, or (-1, -1) if it was not merged.

        Where a merge cut a character, as those of byte pair encoding may, it is the two most common pieces of whole
        characters instead.
        """
        model = json.loads(self._engine.to_str())["model"]
        ids = {self._raw(index): index for index in range(len(SPECIALS), self.vocab_size)}
        found = [(-1, -1)] * self.vocab_size
        for left, right in model.get("merges", ()):
            whole, raw = model["vocab"][left + right], self._rules.raw(left)
            if found[whole] == (-1, -1):
                found[whole] = _cut_between_characters(self._rules.raw(left + right), len(raw), ids)
        return found

    def _piece(self, index: int) -> str:
        token = self._token(index)
        return token if index < len(SPECIALS) else self._rules.show(token)

    def _token(self, index: int) -> str:
        token = self._engine.id_to_token(index)
        if token is None:
            raise DataError(f"id {index} is not one of this tokenizer's {self.vocab_size}")
        return token

    def fingerprint(self) -> str:
        """A hash that two tokenizers share only if they encode alike."""
        return hashlib.sha256(self.as_text().encode()).hexdigest()

    def as_text(self) -> str:
        """The kind and the trained pipeline, to be handed to another process."""
        return f"{self.kind}\n{self._engine.to_str()}"

    @classmethod
    def from_text(cls, text: str) -> Tokenizer:
        """What `as_text` was given."""
        kind, _, engine = text.partition("\n")
        return cls(kind, tokenizers.Tokenizer.from_str(engine))

    def save(self, directory: Path, stem: str = "tokenizer") -> None:
        """Write `STEM.json` and `STEM_config.json`."""
        write_engine(directory / f"{stem}.json", self._engine)
        write_notes(directory / f"{stem}_config.json", self.kind)

    @classmethod
    def load(cls, directory: Path, stem: str = "tokenizer") -> Tokenizer:
        """Read what `save` wrote, checking it."""
        kind = read_notes(directory / f"{stem}_config.json")["kind"]
        return cls(kind, read_engine(directory / f"{stem}.json"))


class TokenizerPair:
    """The tokenizers of the two languages, which may be one and the same."""

    def __init__(self, source: Tokenizer, target: Tokenizer) -> None:
        self.source = source
        self.target = target

    @property
    def joint(self) -> bool:
        """Whether both languages share one tokenizer, and with it one set of ids."""
        return self.source is self.target

    @classmethod
    def train(cls, config: TokenizerConfig, source: Iterable[str], target: Iterable[str]) -> TokenizerPair:
        """Learn one tokenizer from both sides, or one from each."""
        if config.joint:
            both = Tokenizer.train(config, itertools.chain(source, target))
            return cls(both, both)
        return cls(Tokenizer.train(config, source), Tokenizer.train(config, target))

    def fingerprint(self) -> str:
        """A hash that two pairs share only if they encode alike."""
        return hashlib.sha256(f"{self.source.fingerprint()}\n{self.target.fingerprint()}".encode()).hexdigest()

    def save(self, directory: Path) -> None:
        """Write `tokenizer.json`, and `target_tokenizer.json` if the target has its own."""
        self.source.save(directory)
        write_notes(directory / "tokenizer_config.json", self.source.kind, joint=self.joint)
        if not self.joint:
            self.target.save(directory, "target_tokenizer")

    @classmethod
    def load(cls, directory: Path) -> TokenizerPair:
        """Read what `save` wrote, checking it."""
        source = Tokenizer.load(directory)
        joint = read_notes(directory / "tokenizer_config.json").get("joint", True)
        return cls(source, source if joint else Tokenizer.load(directory, "target_tokenizer"))


def check_encodable(texts: Iterable[str]) -> None:
    """Refuse text that has half a surrogate pair in it: it stands for no character and cannot be written as UTF-8."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            code = f"U+{ord(text[error.start]):04X}"
            start = text[: error.start][-20:]
            where = f"character {error.start + 1}" + (f", after {start!r}" if start else "")
            raise DataError(f"text has a lone surrogate {code} ({where}): decode the input as UTF-8") from None


def _cut_between_characters(raw: bytes, merged_at: int, ids: Mapping[bytes | None, int]) -> tuple[int, int]:
    """The ids of the two pieces that a piece was merged from at a byte, or of others that leave characters whole."""
    text = raw.decode(errors="replace")
    cuts = set(itertools.accumulate(len(character.encode()) for character in text[:-1]))
    halves = [
        (ids[raw[:cut]], ids[raw[cut:]])
        for cut in ([merged_at] if merged_at in cuts else sorted(cuts))
        if raw[:cut] in ids and raw[cut:] in ids
    ]
    return min(halves, key=max, default=(-1, -1)) if text.encode() == raw else (-1, -1)


def _bunches(texts: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(texts)
    while bunch := list(itertools.islice(rest, BUNCH)):
        check_encodable(bunch)
        yield bunch
