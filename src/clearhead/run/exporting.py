"""A model directory in, an exported directory out: written beside, compared with the original, and only then named."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from clearhead.checkpoint import locate
from clearhead.data.naming import kept_settings
from clearhead.engines.directory import ExportNotes, describe_export
from clearhead.engines.opening import open_exported
from clearhead.engines.texts import ExportedTranslator
from clearhead.errors import DataError, ParityError, WouldOverwriteError, choose
from clearhead.export.targets import QUANTIZATIONS, TARGETS, write_model
from clearhead.export.verify import EXACT, QUANTISED, Parity, compare
from clearhead.run.card import with_section
from clearhead.run.translating import LoadedTranslator
from clearhead.run.using import load_as
from clearhead.storage import write_directory, write_json
from clearhead.text.specials import BOS_ID, EOS_ID, SPECIALS
from clearhead.text.tokenizer import Tokenizer
from clearhead.version import VERSION

MADE_UP = 64
"""Texts of random tokens, where no others are given."""
LONGEST_MADE_UP = 20
ALONGSIDE = 64
"""Texts that the original translates side by side."""
NOT_THE_MODEL = (".json", ".md", ".toml")


class Original:
    """A translator in torch, to be compared with."""

    def __init__(self, translator: LoadedTranslator) -> None:
        self.translator = translator

    def greedy(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        config = self.translator.configured(strategy="greedy", nbest=1)
        ids = self.translator.encode(texts, 0)
        order = sorted(range(len(ids)), key=lambda row: len(ids[row]))
        found: list[tuple[int, ...]] = [()] * len(ids)
        for start in range(0, len(order), ALONGSIDE):
            rows = order[start : start + ALONGSIDE]
            for row, best in zip(rows, self.translator.search([ids[row] for row in rows], config), strict=True):
                found[row] = best[0].ids
        return found

    @torch.inference_mode()
    def logits(self, text: str, target: Sequence[int]) -> NDArray[np.float32]:
        (source,) = self.translator.encode([text], 0)
        read, said = torch.tensor([[*source, EOS_ID]]), torch.tensor([[BOS_ID, *target]])
        device = self.translator.device
        return self.translator.model(read.to(device), said.to(device))[0].float().cpu().numpy()

    def translate(self, texts: Sequence[str]) -> list[str]:
        return self.translator.translate(texts)


class Copy:
    """The same translator in another engine."""

    def __init__(self, translator: ExportedTranslator) -> None:
        self.translator = translator

    def greedy(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        config = self.translator.configured(strategy="greedy", nbest=1)
        ids = self.translator.encode(texts, 0)
        return [best[0].ids for best in self.translator.engine.search(ids, config, range(len(ids)))]

    def logits(self, text: str, target: Sequence[int]) -> NDArray[np.float32]:
        (source,) = self.translator.encode([text], 0)
        return self.translator.engine.logits(source, target)

    def translate(self, texts: Sequence[str]) -> list[str]:
        return self.translator.translate(texts)


def export(
    model: Path,
    to: str,
    out: Path,
    *,
    quantize: str | None = None,
    pairs: Sequence[tuple[str, str]] | None = None,
    language: str | None = None,
    bleu_drop: float | None = None,
    progress: Callable[[str], None] = lambda what: None,
) -> Parity:
    """Export a model for another engine; `pairs` of texts and references are what both are tried on.

    Past the tolerance nothing is written. `bleu_drop` is how much BLEU may be lost.
    """
    if out.exists():
        raise WouldOverwriteError(f"{out} exists: choose another --out")
    choose(TARGETS, to, "format")
    if quantize is not None:
        choose(dict.fromkeys(QUANTIZATIONS), quantize, "quantisation")
    progress("loading")
    translator = load_as(LoadedTranslator, model, "cpu")
    texts, references = _to_compare(translator, pairs)
    home, weights = locate(model)
    tolerance = EXACT if quantize is None else QUANTISED
    tolerance = tolerance if bleu_drop is None else tolerance._replace(bleu=bleu_drop)
    found: list[Parity] = []

    def fill(draft: Path) -> None:
        progress("writing")
        write_model(to, translator.model, translator.tokenizers, draft, quantize)
        size = sum(path.stat().st_size for path in draft.iterdir() if path.suffix not in NOT_THE_MODEL)
        notes = ExportNotes(
            engine=to,
            kind=translator.model.config.kind,
            quantize=quantize,
            max_len=translator.max_len,
            model=translator.model.config.model_dump(),
            made_by=f"clearhead {VERSION}",
        )
        describe_export(draft, notes, translator.tokenizers, translator.generation.model_dump())
        progress("comparing")
        parity = compare(
            Original(translator),
            Copy(open_exported(draft, "cpu", sealed=False)),
            texts,
            references,
            sizes=((weights / "model.safetensors").stat().st_size, size),
            engine=to,
            quantize=quantize,
            origin="random tokens" if pairs is None else "test data",
            language=language,
        )
        if problems := parity.problems(tolerance):
            raise ParityError(f"{out} was not written, for it is not the same: {'; '.join(problems)}")
        write_json(draft / "parity.json", parity.as_json())
        (draft / "README.md").write_text(with_section(_text(home / "README.md"), "Export", parity.section()), "utf-8")
        (draft / "training_config.toml").write_text(kept_settings(home, out), "utf-8")
        found.append(parity)

    write_directory(out, fill)
    return found[0]


def _to_compare(
    translator: LoadedTranslator, pairs: Sequence[tuple[str, str]] | None
) -> tuple[list[str], list[str] | None]:
    if pairs is None:
        return made_up_texts(translator.tokenizers.source, translator.max_len), None
    source = translator.tokenizers.source
    lengths = [len(ids) for ids in source.encode_batch([text.strip() for text, _ in pairs])]
    fitting = [pair for pair, length in zip(pairs, lengths, strict=True) if 0 < length < translator.max_len]
    if not fitting:
        raise DataError(f"none of the {len(pairs):,} texts to compare on fits this model")
    return [text for text, _ in fitting], [reference for _, reference in fitting]


def made_up_texts(tokenizer: Tokenizer, max_len: int, count: int = MADE_UP, seed: int = 1) -> list[str]:
    """Texts of random tokens, of all lengths up to some, that a model can read; the same each time."""
    chance = random.Random(seed)
    longest = max(1, min(LONGEST_MADE_UP, (max_len - 1) // 2))
    # More than enough: half characters come back as others, which may take too many tokens, and spaces as nothing.
    rows = [
        [chance.randrange(len(SPECIALS), tokenizer.vocab_size) for _ in range(1 + number % longest)]
        for number in range(4 * count)
    ]
    texts = [tokenizer.decode(ids).strip() for ids in rows]
    return [text for text in texts if 0 < len(tokenizer.encode(text)) < max_len][:count] or ["a"]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""
