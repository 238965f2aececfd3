"""Translate a test set with the same weights by several programs, in turns: `python benchmarks/decode.py`.

Each contender has a process of its own, started once; they take turns, so that what else the machine does hits all of
them alike. Times are of translating only: tokens in, text out, after a first small round to warm up.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import sacrebleu
import torch
from peers import hugging_face
from results import record

from clearhead.models.translator import Translator
from clearhead.run.using import LoadedTranslator, load
from clearhead.text.specials import BOS_ID, EOS_ID, PAD_ID, SPECIALS

HF_BATCH = 64
ONE_AT_A_TIME = 10
"""Sentences that are translated without cache: enough to tell how slow it is."""
Contender = Callable[[list[str], int], list[str]]
"""Texts and a beam size in, translations out."""


def ours(translator: LoadedTranslator, workers: int) -> Contender:
    """Clearhead, in this process or in several."""
    return lambda texts, beam: translator.translate(texts, beam_size=beam, workers=workers)


def hugging_face_generate(translator: LoadedTranslator) -> Contender:
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


def without_cache(translator: LoadedTranslator) -> Contender:
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


CONTENDERS: dict[str, Callable[[LoadedTranslator], Contender]] = {
    "Hugging Face `generate`, batch 64": hugging_face_generate,
    "Clearhead, one process": lambda translator: ours(translator, 1),
    "Clearhead, one-thread processes": lambda translator: ours(translator, max(2, torch.get_num_threads())),
    f"no cache, one sentence at a time ({ONE_AT_A_TIME} sentences)": without_cache,
}
PEER, ONE_PROCESS, *_, NO_CACHE = CONTENDERS


def serve(name: str, model: Path, threads: int) -> None:
    """Be one contender: a line of JSON with texts and a beam size in, one with seconds and translations out."""
    torch.set_num_threads(threads)
    run = CONTENDERS[name](load(model, "cpu"))
    for line in sys.stdin:
        order = json.loads(line)
        began = time.perf_counter()
        found = run(order["texts"], order["beam"])
        seconds = time.perf_counter() - began
        kilobytes = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        print(json.dumps({"seconds": seconds, "found": found, "mebibytes": kilobytes / 1024}), flush=True)


class Player:
    """A contender's process, and what it has shown so far."""

    def __init__(self, name: str, model: Path, threads: int) -> None:
        self.name = name
        command = [sys.executable, __file__, "--serve", name, "--model", str(model), "--threads", str(threads)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.seconds: dict[int, list[float]] = {}
        self.found: dict[int, list[str]] = {}
        self.mebibytes = 0.0

    def play(self, texts: Sequence[str], beam: int) -> dict[str, Any]:
        """Translate once, and come back with the answer."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps({"texts": list(texts), "beam": beam}) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def round(self, texts: Sequence[str], beam: int) -> None:
        """One round that counts."""
        if self.name == NO_CACHE:
            if beam > 1:
                return
            texts = texts[:: max(1, len(texts) // ONE_AT_A_TIME)][:ONE_AT_A_TIME]
        answer = self.play(texts, beam)
        self.seconds.setdefault(beam, []).append(answer["seconds"] / len(texts))
        self.found[beam], self.mebibytes = answer["found"], answer["mebibytes"]
        print(
            f"{self.name}, beam {beam}: {len(texts) / answer['seconds']:.1f} sentences/s", file=sys.stderr, flush=True
        )

    def rate(self, beam: int) -> float | None:
        """Sentences a second, the median of all rounds."""
        return 1 / statistics.median(self.seconds[beam]) if beam in self.seconds else None

    def leave(self) -> None:
        """End the process."""
        self._process.communicate()


def main() -> None:
    """Play, compare, write down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a model directory; if none is given, one is trained first")
    parser.add_argument("--train-steps", type=int, default=1500, help="steps of that training")
    parser.add_argument("--out", type=Path, default=Path("runs/decode-benchmark"), help="where that model is kept")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--dry", action="store_true", help="write nothing to RESULTS.md")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve, given.model, given.threads)
        return
    model = given.model or _trained(given.out, given.train_steps)
    sources, references = (_lines(side)[: given.sentences] for side in ("de", "en"))
    players = [Player(name, model, given.threads) for name in CONTENDERS]
    for player in players:
        player.play(sources[:4], 1)
    for _ in range(given.rounds):
        for beam in (1, given.beam):
            for player in players:
                player.round(sources, beam)
    for player in players:
        player.leave()
    rows = [_row(player, players[0], references, given.beam) for player in players]
    columns = ("", "greedy", "× HF", f"beam {given.beam}", "× HF", "BLEU", "largest process")
    for row in (columns, *rows):
        print(" | ".join(row))
    if not given.dry:
        _write_down(given, model, players, columns, rows)


def _row(player: Player, peer: Player, references: Sequence[str], beam: int) -> list[str]:
    cells = [player.name]
    for size in (1, beam):
        ours, theirs = player.rate(size), peer.rate(size)
        cells += [f"{ours:.1f}/s", f"{ours / theirs:.2f}"] if ours and theirs else ["–", "–"]
    if player.name == NO_CACHE:
        return [*cells, "–", f"{player.mebibytes:.0f} MiB"]
    bleu = [sacrebleu.corpus_bleu(player.found[size], [references]).score for size in (1, beam)]
    return [*cells, f"{bleu[0]:.1f}, {bleu[1]:.1f}", f"{player.mebibytes:.0f} MiB"]


def _write_down(
    given: argparse.Namespace,
    model: Path,
    players: Sequence[Player],
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
) -> None:
    by_name = {player.name: player.found for player in players}
    same = sum(map(str.__eq__, by_name[PEER][1], by_name[ONE_PROCESS][1]))
    config = load(model, "cpu").model.config
    record(
        "Decoding",
        "python benchmarks/decode.py",
        columns,
        rows,
        f"{given.sentences:,} sentences of Multi30k test_2016_flickr, {config.dim} wide, ff {config.ff_dim}, "
        f"{config.encoder_layers}+{config.decoder_layers} layers, {config.residual}-norm, {config.target_vocab_size:,} "
        f"tokens, the same weights everywhere, {given.threads} threads, median of {given.rounds} rounds in turns. "
        f"BLEU is of greedy and of beam {given.beam}; Hugging Face's greedy output equals ours in {same:,} of "
        f"{given.sentences:,} sentences (ours never says <unk>, and stops loops).",
    )


def _trained(out: Path, steps: int) -> Path:
    """A small model that has learnt where sentences end: an untrained one would never stop."""
    if not (out / "model").is_dir():
        command = [sys.executable, "-m", "clearhead", "train", "multi30k", "--out", str(out)]
        for setting in ("model.residual=post", f"train.steps={steps}", "model.dropout=0.1", "train.average=1"):
            command += ["--set", setting]
        subprocess.run(command, check=True)
    return out / "model"


def _lines(side: str) -> list[str]:
    folder = Path(os.environ.get("CLEARHEAD_DATA", "data")) / "multi30k"
    with gzip.open(folder / f"test_2016_flickr.{side}.gz", "rt", encoding="utf-8", newline="\n") as file:
        return file.read().splitlines()


if __name__ == "__main__":
    main()
