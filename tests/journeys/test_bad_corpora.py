"""Rubbish in: one clear line and an exit code, or exactly the right pairs; never a wrong target for a source."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from clearhead.data.doctor import check, kept_pairs
from clearhead.data.limits import Limits
from clearhead.data.lines import MAX_LINE_BYTES
from clearhead.data.reasons import Reason
from clearhead.data.sources import AlignedFiles, PairSource, TabSeparated
from clearhead.errors import ClearheadError

COUNT = 300
WORDS = random.Random(0).choices(range(12), k=COUNT)


def german(i: int) -> str:
    return f"{i} Häuser {'und noch ein Wort ' * WORDS[i - 1]}ß".strip()


def english(i: int) -> str:
    return f"{i} houses {'and another word ' * WORDS[i - 1]}end".strip()


def joined(rows: list[str], end: str = "\n") -> bytes:
    return "".join(f"{row}{end}" for row in rows).encode()


@dataclass
class Corpus:
    """Two files of numbered lines that a case may spoil before it is checked."""

    folder: Path
    source: list[str] = field(default_factory=lambda: [german(i) for i in range(1, COUNT + 1)])
    target: list[str] = field(default_factory=lambda: [english(i) for i in range(1, COUNT + 1)])

    def write(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content)
        return path

    def files(self, source: bytes | None = None, target: bytes | None = None) -> AlignedFiles:
        return AlignedFiles(
            self.write("s.de", joined(self.source) if source is None else source),
            self.write("t.en", joined(self.target) if target is None else target),
        )

    def tsv(self, rows: list[str], columns: tuple[int, int] = (1, 2)) -> TabSeparated:
        return TabSeparated(self.write("x.tsv", joined(rows)), columns)


Spoil = Callable[[Corpus], PairSource]
DROPS: dict[str, tuple[Spoil, dict[Reason, set[int]]]] = {}
REFUSED: dict[str, tuple[Spoil, int, str]] = {}


def drops(**lost: set[int]) -> Callable[[Spoil], Spoil]:
    """Register a corpus that stays usable, with the lines it must lose for each reason."""

    def register(spoil: Spoil) -> Spoil:
        DROPS[spoil.__name__] = spoil, {Reason[name]: lines for name, lines in lost.items()}
        return spoil

    return register


def refused(exit_code: int, message: str) -> Callable[[Spoil], Spoil]:
    """Register a corpus that cannot be used, with what must be said about it."""

    def register(spoil: Spoil) -> Spoil:
        REFUSED[spoil.__name__] = spoil, exit_code, message
        return spoil

    return register


@drops()
def good(corpus: Corpus) -> PairSource:
    return corpus.files()


@drops(BAD_ENCODING={17, 201})
def bad_utf8_on_either_side(corpus: Corpus) -> PairSource:
    source, target = (joined(rows).split(b"\n") for rows in (corpus.source, corpus.target))
    source[16] += b" \xff\xfe"
    target[200] += b" \xc3"
    return corpus.files(b"\n".join(source), b"\n".join(target))


@drops(BAD_ENCODING=set(range(1, 101)))
def latin1_in_the_first_part(corpus: Corpus) -> PairSource:
    latin = "".join(f"{row}\n" for row in corpus.source[:100]).encode("latin-1")
    return corpus.files(latin + joined(corpus.source[100:]))


@drops(BAD_ENCODING={9})
def surrogates_written_as_utf8(corpus: Corpus) -> PairSource:
    source = joined(corpus.source).split(b"\n")
    source[8] += b" \xed\xa0\x80"
    return corpus.files(b"\n".join(source))


@refused(65, "s.de is UTF-16; convert it with: iconv -f UTF-16 -t UTF-8")
def utf16_with_mark(corpus: Corpus) -> PairSource:
    return corpus.files(joined(corpus.source).decode().encode("UTF-16"))


@refused(65, "t.en is UTF-16LE; convert it with: iconv -f UTF-16LE -t UTF-8")
def utf16_little_endian_without_mark(corpus: Corpus) -> PairSource:
    return corpus.files(target=joined(corpus.target).decode().encode("UTF-16LE"))


@refused(65, "s.de is UTF-16BE; convert it with: iconv -f UTF-16BE -t UTF-8")
def utf16_big_endian_without_mark(corpus: Corpus) -> PairSource:
    return corpus.files(joined(corpus.source).decode().encode("UTF-16BE"))


@refused(65, "s.de is UTF-16LE; convert it")
def chinese_utf16_without_mark(corpus: Corpus) -> PairSource:
    return corpus.files(("我吃了一个苹果\n" * COUNT).encode("UTF-16LE"))


@refused(65, "s.de is UTF-32; convert it")
def utf32_with_mark(corpus: Corpus) -> PairSource:
    return corpus.files(joined(corpus.source).decode().encode("UTF-32"))


@drops()
def utf8_mark(corpus: Corpus) -> PairSource:
    return corpus.files(b"\xef\xbb\xbf" + joined(corpus.source), b"\xef\xbb\xbf" + joined(corpus.target))


@drops()
def crlf(corpus: Corpus) -> PairSource:
    return corpus.files(joined(corpus.source, "\r\n"), joined(corpus.target, "\r\n"))


@drops()
def crlf_on_one_side(corpus: Corpus) -> PairSource:
    return corpus.files(joined(corpus.source, "\r\n"))


@drops()
def crlf_now_and_then(corpus: Corpus) -> PairSource:
    corpus.target = [f"{row}\r" if i % 3 else row for i, row in enumerate(corpus.target)]
    return corpus.files()


@refused(65, r"s.de ends its lines with CR only \(old Mac\); convert it with: tr")
def lone_cr_file(corpus: Corpus) -> PairSource:
    return corpus.files(joined(corpus.source, "\r"))


@refused(65, r"s.de ends its lines with CR only \(old Mac\); convert it with: tr")
def lone_cr_files_on_both_sides(corpus: Corpus) -> PairSource:
    return corpus.files(joined(corpus.source, "\r"), joined(corpus.target, "\r"))


@drops(CONTROL={5, 80})
def lone_cr_inside_lines(corpus: Corpus) -> PairSource:
    corpus.source[4] += "\r5 more"
    corpus.target[79] += "\r80 more"
    return corpus.files()


@drops(CONTROL={3, 250})
def nul_inside_lines(corpus: Corpus) -> PairSource:
    corpus.source[2] += "\0x"
    corpus.target[249] += "\0"
    return corpus.files()


@drops(CONTROL={1, 2})
def escape_sequences(corpus: Corpus) -> PairSource:
    corpus.source[0] += "\x1b[31m"
    corpus.target[1] += "\x08"
    return corpus.files()


@refused(65, "t.en holds mostly zero bytes: it is damaged, or not text")
def zero_bytes(corpus: Corpus) -> PairSource:
    return corpus.files(target=bytes(10_000))


def with_separator(sign: str) -> Spoil:
    def spoil(corpus: Corpus) -> PairSource:
        corpus.source = [row.replace(" ", f" {sign}", 1) for row in corpus.source]
        corpus.target[7] += f"{sign}8 tail"
        return corpus.files()

    spoil.__name__ = f"separator_{ord(sign):04x}"
    return spoil


for separator in "\u2028\u2029\u0085\x0b\x0c\t":
    drops()(with_separator(separator))


@refused(
    65, "s.de has 300 lines but .*t.en has 299: they part around line 1(4[5-9]|5[0-5]), where .*t.en seems to lack"
)
def a_line_missing_in_the_middle(corpus: Corpus) -> PairSource:
    del corpus.target[149]
    return corpus.files()


@refused(65, "s.de has 303 lines but .*t.en has 300: they part around line (4[5-9]|5[0-5]), where .*t.en seems to lack")
def lines_too_many_in_the_middle(corpus: Corpus) -> PairSource:
    corpus.source[49:49] = ["Hier steht etwas ganz anderes", "und das ist auch nicht übersetzt", "gar nicht"]
    return corpus.files()


@refused(65, "s.de has 300 lines but .*t.en has 250: no line stands out, so .*t.en may be cut short after line 250")
def one_side_cut_at_the_end(corpus: Corpus) -> PairSource:
    del corpus.target[250:]
    return corpus.files()


@refused(65, "s.de has 300 lines but .*t.en has 301")
def a_blank_line_at_the_end_of_one_side(corpus: Corpus) -> PairSource:
    return corpus.files(target=joined(corpus.target) + b"\n")


@refused(65, "s.de has 301 lines but .*t.en has 300: they part around line (1[5-9]|2[0-5]), where .*t.en seems to lack")
def a_line_broken_in_two(corpus: Corpus) -> PairSource:
    corpus.source[20:21] = corpus.source[20].split(" ", 1)
    return corpus.files()


@refused(65, "t.en is empty")
def one_side_empty(corpus: Corpus) -> PairSource:
    return corpus.files(target=b"")


@refused(65, "s.de is empty")
def both_sides_empty(corpus: Corpus) -> PairSource:
    return corpus.files(b"", b"")


@refused(65, "s.de is empty")
def nothing_but_a_mark(corpus: Corpus) -> PairSource:
    return corpus.files(b"\xef\xbb\xbf")


@refused(66, "is a directory, not a file")
def directory(corpus: Corpus) -> PairSource:
    return AlignedFiles(corpus.folder, corpus.write("t.en", joined(corpus.target)))


@refused(66, "there is no file .*nowhere.en")
def missing(corpus: Corpus) -> PairSource:
    return AlignedFiles(corpus.write("s.de", joined(corpus.source)), corpus.folder / "nowhere.en")


@refused(66, "pipe is not a regular file, and data is read more than once: save it first")
def pipe(corpus: Corpus) -> PairSource:
    os.mkfifo(corpus.folder / "pipe")
    return AlignedFiles(corpus.folder / "pipe", corpus.write("t.en", joined(corpus.target)))


@refused(66, "s.de cannot be read: permission denied")
def forbidden(corpus: Corpus) -> PairSource:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    source = corpus.files()
    source.source.path.chmod(0)
    return source


@drops()
def gzip_on_one_side(corpus: Corpus) -> PairSource:
    return corpus.files(gzip.compress(joined(corpus.source)))


@refused(65, r"s.de: the gzip data is cut short after line \d+; fetch or compress it again")
def truncated_gzip(corpus: Corpus) -> PairSource:
    return corpus.files(gzip.compress(joined(corpus.source))[:-200])


@refused(65, r"s.de: the gzip data is damaged \(.*\) after line \d+; fetch or compress it again")
def gzip_with_a_wrong_checksum(corpus: Corpus) -> PairSource:
    packed = bytearray(gzip.compress(joined(corpus.source)))
    packed[-8] ^= 1
    return corpus.files(bytes(packed))


@drops()
def plain_text_named_gz(corpus: Corpus) -> PairSource:
    return AlignedFiles(corpus.write("s.gz", joined(corpus.source)), corpus.write("t.gz", joined(corpus.target)))


@refused(65, "s.de is zip data, not text; unpack it first")
def zip_archive(corpus: Corpus) -> PairSource:
    return corpus.files(b"PK\x03\x04" + bytes(range(256)))


@drops(TOO_LONG={100})
def one_megabyte_line(corpus: Corpus) -> PairSource:
    corpus.source[99] += "x" * 1_000_000
    return corpus.files()


@drops(TOO_LONG={100, 101})
def lines_longer_than_is_read(corpus: Corpus) -> PairSource:
    corpus.source[99] += "x" * (3 * MAX_LINE_BYTES)
    corpus.target[100] += "y" * MAX_LINE_BYTES
    return corpus.files()


@refused(65, "s.de has 1 line but .*t.en has 300")
def five_megabytes_without_a_newline(corpus: Corpus) -> PairSource:
    return corpus.files(b"x" * 5_000_000)


@refused(65, "no usable pair in .*s.de .*: 1 × too long .*first at line 1")
def one_endless_line_on_both_sides(corpus: Corpus) -> PairSource:
    return corpus.files(b"x" * 5_000_000, b"y" * 5_000_000)


@drops(EMPTY={10, 11, 40})
def blank_lines_on_one_side(corpus: Corpus) -> PairSource:
    corpus.target[9] = ""
    corpus.source[10] = " \t "
    corpus.target[39] = "\u3000\u2028"
    return corpus.files()


@drops(EMPTY={1, 2, 300})
def blank_lines_on_both_sides(corpus: Corpus) -> PairSource:
    for place in (0, 1, 299):
        corpus.source[place] = corpus.target[place] = ""
    return corpus.files()


@refused(65, "no usable pair in .*: 300 × empty side .*first at line 1")
def all_blank(corpus: Corpus) -> PairSource:
    return corpus.files(b"\n" * COUNT, b" \r\n" * COUNT)


@drops(DUPLICATE={51, 52})
def duplicate_lines(corpus: Corpus) -> PairSource:
    for place in (50, 51):
        corpus.source[place], corpus.target[place] = corpus.source[20], corpus.target[20]
    return corpus.files()


@drops(IDENTICAL={30})
def identical_sides(corpus: Corpus) -> PairSource:
    corpus.target[29] = corpus.source[29]
    corpus.source[30] = corpus.target[30] = "31 2001 …"
    return corpus.files()


@drops(RATIO={60, 61})
def one_side_far_longer(corpus: Corpus) -> PairSource:
    corpus.source[59] = "60 " + "Wort " * 60
    corpus.target[59] = "60 word"
    corpus.source[60] = "61 Wort"
    corpus.target[60] = "61 " + "word " * 60
    return corpus.files()


@drops()
def no_newline_at_the_end(corpus: Corpus) -> PairSource:
    return corpus.files(joined(corpus.source).removesuffix(b"\n"))


@refused(65, "no usable pair in .*: 300 × identical sides")
def the_same_file_twice(corpus: Corpus) -> PairSource:
    return corpus.files(target=joined(corpus.source))


@drops(MISSING_COLUMN={4, 200}, EMPTY={150})
def tsv_with_too_few_columns(corpus: Corpus) -> PairSource:
    rows = [f"{source}\t{target}" for source, target in zip(corpus.source, corpus.target, strict=True)]
    rows[3], rows[199], rows[149] = "4 only", "200  with  spaces", ""
    return corpus.tsv(rows)


@drops()
def tsv_with_too_many_columns(corpus: Corpus) -> PairSource:
    rows = [
        f"{s}\t{t}" + "\textra" * (i % 4) for i, (s, t) in enumerate(zip(corpus.source, corpus.target, strict=True))
    ]
    return corpus.tsv(rows)


@drops()
def tsv_with_crlf_and_chosen_columns(corpus: Corpus) -> PairSource:
    rows = [f"id\t{target}\t{source}\r" for source, target in zip(corpus.source, corpus.target, strict=True)]
    return corpus.tsv(rows, (3, 2))


@refused(
    65, "no usable pair in .*x.tsv: 300 × missing column .the row has too few tab-separated columns; first at line 1"
)
def commas_instead_of_tabs(corpus: Corpus) -> PairSource:
    return corpus.tsv([f"{source},{target}" for source, target in zip(corpus.source, corpus.target, strict=True)])


def test_there_are_enough_kinds_of_rubbish() -> None:
    assert len(DROPS) + len(REFUSED) >= 50


@pytest.mark.parametrize("case", DROPS)
def test_a_usable_corpus_keeps_exactly_the_right_pairs(case: str, tmp_path: Path) -> None:
    spoil, lost = DROPS[case]
    source = spoil(Corpus(tmp_path))
    checkup = check(source, Limits())
    pairs = list(kept_pairs(source, checkup))
    for number, source_text, target_text in pairs:
        assert source_text.split()[0] == target_text.split()[0]
        if case != "duplicate_lines":
            assert source_text.split()[0] == str(number)
    assert [number for number, *_ in pairs] == [i for i in range(1, COUNT + 1) if i not in set().union(*lost.values())]
    found = {reason: (entry.count, entry.first_line) for reason, entry in checkup.report.dropped.items()}
    assert found == {reason: (len(lines), min(lines)) for reason, lines in lost.items()}


@pytest.mark.parametrize("case", REFUSED)
def test_an_unusable_corpus_gets_one_clear_line(case: str, tmp_path: Path) -> None:
    spoil, exit_code, message = REFUSED[case]
    source = spoil(Corpus(tmp_path))
    with pytest.raises(ClearheadError, match=message) as caught:
        check(source, Limits())
    assert caught.value.exit_code == exit_code
    assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)


def as_flags(source: PairSource) -> list[str]:
    """The words that name a corpus at the command line."""
    if isinstance(source, AlignedFiles):
        return ["--source", str(source.source.path), "--target", str(source.target.path)]
    assert isinstance(source, TabSeparated)
    return ["--tsv", str(source.file.path)]


@pytest.mark.parametrize("verb", [["data", "check"], ["train", "--dry-run"]], ids=" ".join)
@pytest.mark.parametrize("case", REFUSED)
def test_the_program_refuses_an_unusable_corpus_in_one_line(
    clearhead: Callable[..., Any], verb: list[str], case: str, tmp_path: Path
) -> None:
    spoil, exit_code, message = REFUSED[case]
    said = clearhead(*verb, *as_flags(spoil(Corpus(tmp_path))))
    assert (said.code, said.out) == (exit_code, ""), said.err
    assert re.fullmatch(f"clearhead: .*{message}.*\n", said.err)


@pytest.mark.parametrize("case", DROPS)
def test_the_program_counts_what_it_leaves_out(clearhead: Callable[..., Any], case: str, tmp_path: Path) -> None:
    spoil, lost = DROPS[case]
    source = spoil(Corpus(tmp_path))
    columns = ["--columns", ",".join(map(str, source.columns))] if isinstance(source, TabSeparated) else []
    said = clearhead("data", "check", *as_flags(source), *columns, "--json")
    report = json.loads(said.out)
    assert said.code == 0 and report["kept"] == COUNT - len(set().union(*lost.values()))
    assert {name: entry["count"] for name, entry in report["dropped"].items()} == {
        reason.label: len(lines) for reason, lines in lost.items()
    }


@pytest.mark.parametrize("case", ["bad_utf8_on_either_side", "crlf_on_one_side", "separator_2028", "utf8_mark"])
def test_training_says_what_it_leaves_out(clearhead: Callable[..., Any], case: str, tmp_path: Path) -> None:
    spoil, lost = DROPS[case]
    said = clearhead("train", "--dry-run", *as_flags(spoil(Corpus(tmp_path))), "--set", "model.dim=8")
    assert said.code == 0 and f"300 pairs, {COUNT - sum(map(len, lost.values()))} kept" in said.err
    for reason, lines in lost.items():
        assert f"dropped {len(lines)}: {reason.label}, first at line {min(lines)}" in said.err
