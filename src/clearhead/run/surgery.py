"""A model and heads in, what they are worth out, or a model directory without them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from clearhead.checkpoint import load_model, locate, model_tensors, save_model
from clearhead.data.naming import kept_settings
from clearhead.errors import DataError, StorageError, WouldOverwriteError
from clearhead.evaluate import score
from clearhead.generate.settings import GenerationConfig
from clearhead.inspection.ablation import ablated, prune_heads
from clearhead.inspection.names import all_heads
from clearhead.inspection.pictures import Changes, draw_changes
from clearhead.nn.masks import real_tokens
from clearhead.run.translating import LoadedTranslator
from clearhead.storage import storage_error, sync, write_text
from clearhead.text.specials import BOS_ID, EOS_ID, PAD_ID

WHOLE = ""
"""The name under which the whole model is noted."""
LOSS_TOKENS = 1024
"""Target tokens, padding included, whose logits exist at the same time."""


@dataclass(frozen=True)
class Effect:
    """What a model does without one head."""

    name: str
    loss: float
    """Mean negative log-probability of a reference token."""
    bleu: float
    loss_change: float
    """Without the head minus with it: a useful head has a positive one."""
    bleu_change: float
    """Without the head minus with it: a useful head has a negative one."""


class Notebook:
    """Results, one line of JSON each, on disk as soon as they are there: what is noted is not measured again."""

    def __init__(self, path: Path, fingerprint: str) -> None:
        self.path = path
        self.found: dict[str, tuple[float, float]] = {}
        lines = path.read_text(encoding="utf-8").split("\n") if path.is_file() else []
        # A kill may leave half a line at the end.
        rows = [row for line in lines[:-1] if (row := _parsed(line)) is not None]
        if rows and rows[0].get("fingerprint") != fingerprint:
            raise WouldOverwriteError(f"{path} has results of another model or other data: remove it, or change --out")
        if rows:
            self.found = {row["name"]: (row["loss"], row["bleu"]) for row in rows[1:]}
        self._rewrite(fingerprint)

    def add(self, name: str, loss: float, bleu: float) -> None:
        """Note one result."""
        self.found[name] = loss, bleu
        self._append({"name": name, "loss": loss, "bleu": bleu})

    def _rewrite(self, fingerprint: str) -> None:
        rows = [{"name": name, "loss": loss, "bleu": bleu} for name, (loss, bleu) in self.found.items()]
        text = "".join(json.dumps(row) + "\n" for row in [{"fingerprint": fingerprint}, *rows])
        try:
            write_text(self.path, text)
        except OSError as error:
            raise storage_error(self.path, error) from error

    def _append(self, row: dict[str, Any]) -> None:
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            sync(self.path)
        except OSError as error:
            raise storage_error(self.path, error) from error


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def importance(
    translator: LoadedTranslator,
    pairs: Sequence[tuple[str, str]],
    notes: Path,
    *,
    config: GenerationConfig,
    language: str | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Iterator[Effect]:
    """For every head, how loss and BLEU change without it; what `notes` has from an earlier try is not done again.

    `progress` hears how many translations are done, of as many as there are pairs for each head and for the whole.
    """
    if not pairs:
        raise DataError("there are no pairs to try the heads on")
    names = [WHOLE, *(head.name for head in all_heads(translator.model))]
    notebook = Notebook(notes, _fingerprint(translator, pairs, config, language))
    done = 0
    for name in names:
        if name not in notebook.found:
            with ablated(translator.model, *([name] if name else [])):
                loss = mean_loss(translator, pairs)
                found = []
                for best in translator.stream([source for source, _ in pairs], config):
                    found.append(best[0].text)
                    progress(done + len(found))
            references = [reference for _, reference in pairs]
            bleu = score(found, references, target_language=language, resamples=0).bleu
            notebook.add(name, loss, bleu)
        done += len(pairs)
        progress(done)
        loss, bleu = notebook.found[name]
        if name:
            whole = notebook.found[WHOLE]
            yield Effect(name, loss, bleu, loss - whole[0], bleu - whole[1])


@torch.inference_mode()
def mean_loss(translator: LoadedTranslator, pairs: Sequence[tuple[str, str]]) -> float:
    """The mean negative log-probability of a reference token, </s> included; pairs too long for the model are left."""
    longest = translator.model.config.max_len
    sides = (translator.tokenizers.source, translator.tokenizers.target)
    sources, targets = (
        [[*ids, EOS_ID] for ids in tokenizer.encode_batch([pair[side].strip() for pair in pairs])]
        for side, tokenizer in enumerate(sides)
    )
    fitting = [row for row in range(len(pairs)) if max(len(sources[row]), len(targets[row])) <= longest]
    if not fitting:
        raise DataError(f"no pair is short enough for this model, which reads at most {longest - 1} tokens")
    order = sorted(fitting, key=lambda row: (len(targets[row]), len(sources[row])))
    total, tokens = 0.0, 0
    while order:
        # The longest left comes first, so that it says how many fit.
        rows = order[-max(1, LOSS_TOKENS // len(targets[order[-1]])) :]
        del order[-len(rows) :]
        source, target = (_padded([side[row] for row in rows]).to(translator.device) for side in (sources, targets))
        read = torch.cat((torch.full_like(target[:, :1], BOS_ID), target[:, :-1]), 1)
        real = real_tokens(target, PAD_ID)
        logits = translator.model(source, read, real_tokens(source, PAD_ID), real)
        total += float(F.cross_entropy(logits[real], target[real], reduction="sum").double())
        tokens += int(real.sum())
    return total / tokens


def _padded(rows: Sequence[Sequence[int]]) -> torch.Tensor:
    width = max(len(row) for row in rows)
    return torch.tensor([[*row, *[PAD_ID] * (width - len(row))] for row in rows], dtype=torch.long)


def _fingerprint(
    translator: LoadedTranslator, pairs: Sequence[tuple[str, str]], config: GenerationConfig, language: str | None
) -> str:
    """What tells results of this model on these pairs from those of any other."""
    known = hashlib.sha256(json.dumps([list(map(list, pairs)), config.model_dump(), language]).encode())
    known.update(translator.tokenizers.fingerprint().encode())
    for name, tensor in sorted(model_tensors(translator.model).items()):
        known.update(name.encode() + tensor.numpy().tobytes())
    return known.hexdigest()


def save_importance(stem: Path, effects: Sequence[Effect]) -> list[Path]:
    """Write a table, a JSON file and a picture of what heads are worth; the three names come back."""
    table, tree, picture = (stem.with_suffix(suffix) for suffix in (".tsv", ".json", ".png"))
    rows = [asdict(effect) for effect in effects]
    header = "\t".join(rows[0])
    lines = ["\t".join(_cell(value) for value in row.values()) for row in rows]
    try:
        write_text(table, "\n".join([header, *lines]) + "\n")
        write_text(tree, json.dumps(rows, indent=2) + "\n")
    except OSError as error:
        raise storage_error(stem, error) from error
    losses = {effect.name: effect.loss_change for effect in effects}
    scores = {effect.name: effect.bleu_change for effect in effects}
    draw_changes(picture, [Changes("change of loss", losses, 1), Changes("change of BLEU", scores, -1, 2)])
    return [table, tree, picture]


def _cell(value: Any) -> str:
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def prune(model: Path, names: Sequence[str], out: Path) -> tuple[int, int]:
    """Write a model directory without some heads; the numbers of parameters before and after come back."""
    if out.exists():
        raise WouldOverwriteError(f"{out} exists: choose another --out")
    stored = load_model(model)
    smaller = prune_heads(stored.model, names)
    home = locate(model)[0]
    save_model(
        out,
        smaller,
        stored.tokenizers,
        generation=stored.generation,
        card=f"{_text(home / 'README.md')}\nPruned heads: {', '.join(names)}.\n",
        training_config=kept_settings(home, out),
    )
    before, after = (sum(weights.numel() for weights in one.parameters()) for one in (stored.model, smaller))
    return before, after


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8") if path.is_file() else ""
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from None
