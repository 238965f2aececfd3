"""What is derived from data is stored under its version, so whoever changes it has to say so."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from clearhead.data import corpus
from clearhead.data.augment import ALTERATIONS, Augment
from clearhead.data.corpus import CHUNK, cache_key
from clearhead.data.crew import encoded
from clearhead.data.documents import document_sentences
from clearhead.data.passages import RunningText, pieces
from clearhead.data.sources import DataConfig
from clearhead.data.tables import open_table
from clearhead.data.texts import Texts, kept_texts, survey
from clearhead.run.preparing import Examined, examine_data
from clearhead.text import Tokenizer, TokenizerConfig, TokenizerPair

RECORDED = {
    1: "ca5c4692976936eb6086afd10d5bb95eaf8c3b2cabc74a2f23e2d1e349a185d7",
}
"""A digest of all that follows, by the version of the derivation: add lines, and change none."""

NOUNS = {"Hund": "dog", "Ball": "ball", "Fuchs": "fox", "Baum": "tree", "Stuhl": "chair", "Tisch": "table"}
COMMON = "".join(
    f"Tom hat einen {noun} gekauft, {number}.\tTom has bought a {its}, {number}.\n"
    f"Er sieht den {noun} dort, {number}.\tHe sees the {its} there, {number}.\n"
    for number in range(4)
    for noun, its in NOUNS.items()
)
ODD = (
    b"Tom hat einen Reiskocher gekauft.\tTom has bought a rice cooker.\n",
    b"Tom isst am 24. Mai 1985.\tTom ate on 24 May 1985.\r\n",
    b"tom isst am 24. mai 1985\tTom ate on 24 May 1985\n",
    "Ｗｏ　bist du？\tWhere are\u2028you\u0085there?\n".encode(),
    "我吃了 12 个苹果。“好吗？”她问。\tI ate 12 apples. “Good?” she asked.\tmore\n".encode(),
    "Frau Meier  wohnt in Düsseldorf!\tMrs. Meier lives in Düsseldorf…\n".encode(),
    b"\n", b"one\n", b"same\tsame\n", b"2001\t2001\n", b"a\t" + 9 * b"much longer " + b"\n",
    b"caf\xe9\tcafe\n", b"nul\x00\tnul\n", b"Hallo!\tHello!\n", b" Hallo! \t Hello! \n", b"no end\tat  all ",
)  # fmt: skip


def derived(folder: Path) -> Iterator[object]:
    """All that is stored of data, or that what is stored follows from."""
    pairs = pairs_in(folder, Augment.model_validate(dict.fromkeys(ALTERATIONS, 1.0)))
    examined = examine_data(pairs, 1)
    yield from judged(examined)
    for source, target in (("de", "en"), ("en", "zh")):
        numbers = DataConfig(kind="numbers", source_language=source, target_language=target, train_size=300)
        yield from judged(examine_data(numbers, 1))
    for kind, columns in (("tsv", (1, 2)), ("lines", (1,))):
        table = open_table(Path(str(pairs.tsv)), columns, kind, (kind,))
        found = survey(Texts([table], labelled=False, one_line=False), max_chars=1000, drop_duplicates=True)
        yield from (found.reasons.tolist(), list(kept_texts(found)), list(document_sentences(found)))
    text = folder / "text.txt"
    text.write_bytes((folder / "pairs.tsv").read_bytes() + b"\n\n  indented\n" + b"word " * 20_000)
    passages = list(pieces(RunningText(text).passages()))
    yield passages
    for kind in ("byte", "char", "word"):
        tokenizer = Tokenizer.train(TokenizerConfig(kind=kind), ["Tom hat einen Hund. 我吃了苹果。"] * 2)
        both = TokenizerPair(tokenizer, tokenizer)
        yield list(encoded(examined.pairs(), both, max_len=60, chunk=CHUNK))
        packed = tokenizer.pack(passages)
        yield from (packed, [tokenizer.words(np.frombuffer(row, tokenizer.id_type)) for row in packed[:20]])


def pairs_in(folder: Path, augment: Augment) -> DataConfig:
    file = folder / "pairs.tsv"
    file.write_bytes(b"\xef\xbb\xbf" + COMMON.encode() + b"".join(ODD))
    return DataConfig(kind="tsv", tsv=str(file), hold_out=0.2, hold_out_test=0.1, augment=augment)


def judged(examined: Examined) -> Iterator[object]:
    yield [column.tolist() for column in (examined.checkup.reasons, examined.held_out, examined.tested)]
    yield list(examined.pairs())


def test_whoever_changes_what_is_derived_raises_its_version(tmp_path: Path) -> None:
    digest = hashlib.sha256(repr(list(derived(tmp_path))).encode()).hexdigest()
    assert RECORDED.get(corpus.DERIVATION) == digest, "raise corpus.DERIVATION, and record this digest under it"
    assert max(RECORDED) == corpus.DERIVATION


@pytest.mark.parametrize("name", ALTERATIONS)
def test_the_corpus_has_something_for_every_alteration(name: str, tmp_path: Path) -> None:
    examined = examine_data(pairs_in(tmp_path, Augment.model_validate({name: 1.0})), 1)
    assert len(list(examined.pairs())) > examined.checkup.report.kept


def test_the_version_is_part_of_every_name_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    before = cache_key("one", "two")
    monkeypatch.setattr(corpus, "DERIVATION", corpus.DERIVATION + 1)
    assert cache_key("one", "two") != before
