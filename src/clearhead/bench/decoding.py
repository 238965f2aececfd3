"""A trained model in, how many sentences a second several programs translate with its weights out, all in turns.

Each contestant has a process of its own. Times are of translating only: text in, text out, after a small round to warm
up. A new contestant is one function and one line in CONTESTANTS.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch

from clearhead.bench.seat import Facts, Seat, Turn
from clearhead.bench.twins import check_possible, hugging_face
from clearhead.data.sets import set_file
from clearhead.errors import UnavailableError
from clearhead.evaluate import score
from clearhead.models.translator import Translator
from clearhead.pages import AS_TORCH_COMES
from clearhead.run.translating import LoadedTranslator
from clearhead.run.using import load_as
from clearhead.text.specials import BOS_ID, EOS_ID, PAD_ID, SPECIALS

HF_BATCH = 64
FEW = 10
"""Sentences that are translated without a cache: enough to tell how slow it is."""
Translate = Callable[[list[str], int], list[str]]
"""Texts and a beam size in, translations out."""
Told = Callable[[str], None]


def ours(translator: LoadedTranslator, workers: int) -> Translate:
    """Clearhead, in this process or in several."""
    return lambda texts, beam: translator.translate(texts, beam_size=beam, workers=workers)


def hugging_face_generate(translator: LoadedTranslator) -> Translate:
    """`generate` with its cache, in batches of sentences of about a length."""
    peer, tokenizers = hugging_face(translator.model), translator.tokenizers

    @torch.inference_mode()
    def run(texts: list[str], beam: int) -> list[str]:
        rows = [[*ids, EOS_ID] for ids in tokenizers.source.encode_batch(texts)]
        order = sorted(range(len(rows)), key=lambda row: len(rows[row]))
        found = [""] * len(rows)
        for start in range(0, len(order), HF_BATCH):
            chosen = order[start : start + HF_BATCH]
            width = max(len(rows[row]) for row in chosen)
            ids = torch.tensor([rows[row] + [PAD_ID] * (width - len(rows[row])) for row in chosen])
            said = peer.generate(
                input_ids=ids,
                attention_mask=(ids != PAD_ID).long(),
                num_beams=beam,
                do_sample=False,
                use_cache=True,
                max_length=translator.model.config.max_len,
            )
            for row, output in zip(chosen, said.tolist(), strict=True):
                found[row] = tokenizers.target.decode([token for token in output if token >= len(SPECIALS)])
        return found

    return run


def without_cache(translator: LoadedTranslator) -> Translate:
    """One sentence at a time, the whole target again for each token, as tutorials do it; greedy only."""

    def run(texts: list[str], beam: int) -> list[str]:
        rows = [[*ids, EOS_ID] for ids in translator.tokenizers.source.encode_batch(texts)]
        return [translator.tokenizers.target.decode(_greedy_without_cache(translator.model, row)) for row in rows]

    return run


@torch.inference_mode()
def _greedy_without_cache(model: Translator, row: Sequence[int]) -> list[int]:
    source, said = torch.tensor([row]), [BOS_ID]
    while len(said) < model.config.max_len:
        token = int(model(source, torch.tensor([said]))[0, -1].argmax())
        if token == EOS_ID:
            break
        said.append(token)
    return said[1:]


PEER, ONE_PROCESS, MORE_PROCESSES, TUTORIAL = (
    "Hugging Face `generate`",
    "clearhead, one process",
    "clearhead, one-thread processes",
    "no cache, one at a time",
)
CONTESTANTS: dict[str, Callable[[LoadedTranslator], Translate]] = {
    PEER: hugging_face_generate,
    ONE_PROCESS: lambda translator: ours(translator, 1),
    MORE_PROCESSES: lambda translator: ours(translator, max(2, torch.get_num_threads())),
    TUTORIAL: without_cache,
}


STOCK = {PEER, TUTORIAL}
"""Those who have torch as it comes."""


@dataclass(frozen=True)
class Row:
    """What was measured of one contestant, by beam size."""

    name: str
    rates: dict[int, float]
    """Sentences a second, the median of all rounds."""
    bleu: dict[int, float]
    found: dict[int, list[str]]
    peak: int
    """Bytes of its largest process."""


@dataclass(frozen=True)
class DecodingFigures:
    """One contest."""

    shape: str
    sentences: int
    rounds: int
    threads: int
    beam: int
    rows: tuple[Row, ...]
    missing: tuple[str, ...]

    def row(self, name: str) -> Row | None:
        """What was measured of one."""
        return next((row for row in self.rows if row.name == name), None)

    def table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Columns and rows for a person."""
        peer = self.row(PEER)
        columns = ("", "greedy /s", "to peer", f"beam {self.beam} /s", "to peer", "BLEU", "largest process, MiB")
        found = []
        for row in self.rows:
            cells = [row.name]
            for beam in (1, self.beam):
                rate, theirs = row.rates.get(beam), peer.rates.get(beam) if peer else None
                cells += [f"{rate:,.1f}" if rate else "–", f"{rate / theirs:.2f}" if rate and theirs else "–"]
            bleu = ", ".join(f"{value:.1f}" for value in row.bleu.values())
            found.append((*cells, bleu or "–", f"{row.peak / 2**20:,.0f}"))
        return columns, found

    def remark(self) -> str:
        """What the table cannot say."""
        peer, one = self.row(PEER), self.row(ONE_PROCESS)
        same = sum(map(str.__eq__, peer.found[1], one.found[1])) if peer and one else None
        alike = f" Its greedy output equals ours in {same:,} (ours never says <unk>, and stops loops)." if same else ""
        return (
            f"{self.sentences:,} sentences of Multi30k test_2016_flickr; {self.shape}; the same weights everywhere; "
            f"{self.threads} threads; medians of {self.rounds} rounds in turns; peer: batches of {HF_BATCH}.{alike}"
        )


def contest(
    model: Path,
    *,
    sentences: int = 1000,
    rounds: int = 5,
    beam: int = 5,
    threads: int | None = None,
    told: Told = lambda line: None,
) -> DecodingFigures:
    """Let everybody translate the test set in turns."""
    threads = threads or torch.get_num_threads()
    missing = tuple(_without_peer(model, told))
    names = [name for name in CONTESTANTS if name not in missing]
    sources, references = (sentences_of(language)[:sentences] for language in ("de", "en"))
    seconds: dict[tuple[str, int], list[float]] = {}
    found: dict[str, dict[int, list[str]]] = {name: {} for name in names}
    peaks = dict.fromkeys(names, 0)
    with ExitStack() as seats:
        settings = {"model": str(model), "threads": threads}
        seated = {
            name: seats.enter_context(
                Seat("decode", {**settings, "name": name}, environment=AS_TORCH_COMES if name in STOCK else None)
            )
            for name in names
        }
        for seat in seated.values():
            seat.ask({"texts": sources[:4], "beam": 1})
        for _ in range(rounds):
            for beam_size in (1, beam):
                for name in names:
                    texts = sources[:: max(1, len(sources) // FEW)][:FEW] if name == TUTORIAL else sources
                    if name == TUTORIAL and beam_size > 1:
                        continue
                    answer = seated[name].ask({"texts": texts, "beam": beam_size})
                    seconds.setdefault((name, beam_size), []).append(answer["seconds"] / len(texts))
                    found[name][beam_size], peaks[name] = answer["found"], answer["largest"]
                    told(f"{name}, beam {beam_size}: {len(texts) / answer['seconds']:.1f} sentences/s")
    rows = []
    for name in names:
        rates = {size: 1 / statistics.median(seconds[name, size]) for size in (1, beam) if (name, size) in seconds}
        scored = {} if name == TUTORIAL else found[name]
        bleu = {size: score(texts, references, resamples=0).bleu for size, texts in scored.items()}
        rows.append(Row(name, rates, bleu, found[name], peaks[name]))
    shape = load_as(LoadedTranslator, model, "cpu").model.config
    described = (
        f"{shape.dim} wide, ff {shape.ff_dim}, {shape.encoder_layers}+{shape.decoder_layers} layers, "
        f"{shape.residual}-norm, {shape.target_vocab_size:,} tokens"
    )
    return DecodingFigures(described, len(sources), rounds, threads, beam, tuple(rows), missing)


def _without_peer(model: Path, told: Told) -> Iterator[str]:
    """The peer's name, where it cannot take part, and why, to whoever listens."""
    if not find_spec("transformers"):
        told(f"{PEER} is not here: pip install 'clearhead[bench]'")
        yield PEER
        return
    try:
        check_possible(load_as(LoadedTranslator, model, "cpu").model.config)
    except UnavailableError as error:
        told(f"{PEER} does not take part: {error}")
        yield PEER


def sentences_of(language: str) -> list[str]:
    """One side of Multi30k's test set."""
    from clearhead.data.lines import TextFile

    return [str(line) for line in TextFile(set_file("multi30k", f"test_2016_flickr.{language}")).lines()]


def sit(settings: Facts) -> Turn:
    """One contestant: loads the model, and translates each time it is asked."""
    torch.set_num_threads(settings["threads"])
    translate = CONTESTANTS[settings["name"]](load_as(LoadedTranslator, settings["model"], "cpu"))

    def turn(asked: Facts) -> Facts:
        began = time.perf_counter()
        found = translate(asked["texts"], asked["beam"])
        seconds = time.perf_counter() - began
        largest = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return {"seconds": seconds, "found": found, "largest": largest * 1024}

    return turn
