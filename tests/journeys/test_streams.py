"""The program as a process among others: what goes through its pipes, whatever the text, the reader or the locale."""

from __future__ import annotations

import os
import random
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = (sys.executable, "-m", "clearhead")
ALPHABET = [
    *"abcxyzäöüß ,.!?\"'<>|$_\\/", *"一二三四五六七八九十百零我吃了苹果", *"😀👩🏽‍🚀🇩🇪", "\u2028", "\u2029", "\x85",
    "\t", "\x0b", "\x0c", "\x1c", "\x00", "\x1b", "\r", "\u00a0", "\u3000", "\ufeff", "\u202e", "\u0301", "\U0010ffff",
    "</s>", "<s>", "<blank>", "<unk>", "مرحبا", "नमस्ते",
]  # fmt: skip


def random_lines(count: int) -> list[str]:
    """Lines of anything but line feeds; one in eight holds nothing but space."""
    chance = random.Random(20)
    lines = []
    for _ in range(count):
        if chance.random() < 1 / 8:
            lines.append(chance.choice(["", " ", "\t", "\u3000", "\u2028 "]))
        else:
            lines.append("".join(chance.choices(ALPHABET, k=chance.randint(1, 12))) + "a")
    return lines


def environment(**changes: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", **changes}


def test_ten_thousand_random_lines_in_are_ten_thousand_lines_out(files_run: Path) -> None:
    lines = random_lines(10_000)
    words = ("translate", "--model", files_run, "--max-len", "3", "--min-len", "3", "--beam", "1", "--threads", "1")
    done = subprocess.run(
        [*PROGRAM, *words], input="\n".join(lines).encode() + b"\n", capture_output=True, env=environment(), check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    *found, rest = done.stdout.decode().split("\n")
    assert len(found) == 10_000 and rest == ""
    assert [text == "" for text in found] == [line.strip() == "" for line in lines]


def test_a_pipe_that_stays_open_is_answered_as_its_lines_come(files_run: Path) -> None:
    words = ("translate", "--model", files_run, "--max-len", "3", "--beam", "1", "--threads", "1")
    with subprocess.Popen(
        [*PROGRAM, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), bufsize=0
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        for some in (b"einhundert\n", b"zweihundert\n\ndreihundert\n"):
            process.stdin.write(some)
            for _ in range(some.count(b"\n")):
                assert process.stdout.readline().endswith(b"\n"), "it waits for more"
        process.stdin.close()
        assert process.stdout.read() == b"" and process.wait(timeout=60) == 0


def test_a_reader_that_has_seen_enough_ends_it_quietly(files_run: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("einhundert\n" * 50_000, encoding="utf-8")
    words = ("translate", "--model", files_run, "-i", lines, "--beam", "1", "--max-len", "4", "--threads", "1")
    with subprocess.Popen(
        [*PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().endswith(b"\n")
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 0


def test_a_reader_that_is_not_there_is_no_failure(corpus: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    words = ("data", "check", "--source", corpus / "train.de", "--target", corpus / "train.en")
    done = subprocess.run([*PROGRAM, *words], stdout=write_end, stderr=subprocess.PIPE, env=environment(), check=False)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, b"")


TRAINING = (
    "data.largest=500", "data.train_size=100", "data.validation_size=5", "data.test_size=5", "batches.max_tokens=256",
    "model.dim=8", "model.ff_dim=16", "model.num_heads=2", "model.encoder_layers=1", "model.decoder_layers=1",
    "train.log_every=1", "train.steps=3", "train.validate_every=3",
)  # fmt: skip


@pytest.mark.parametrize("is_told_apart", [True, False], ids=["stderr", "both"])
def test_training_goes_on_and_saves_when_nobody_reads_how_it_goes(tmp_path: Path, is_told_apart: bool) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    assignments = [word for setting in TRAINING for word in ("--set", setting)]
    words = ("train", "numbers", "--out", tmp_path / "run", "--threads", "1", *assignments)
    out = subprocess.PIPE if is_told_apart else write_end
    done = subprocess.run([*PROGRAM, *words], stdout=out, stderr=write_end, env=environment(), check=False)
    os.close(write_end)
    assert (done.returncode, done.stdout or b"") == (0, b"")
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()
    assert "done at step 3" in (tmp_path / "run" / "train.log").read_text(encoding="utf-8")


def test_a_mistake_keeps_its_exit_code_when_nobody_reads_of_it() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run([*PROGRAM, "info", "nowhere"], stderr=write_end, env=environment(), check=False)
    os.close(write_end)
    assert done.returncode == 66


def test_a_stream_that_is_closed_is_an_empty_one(files_run: Path) -> None:
    def closed(stream: str, *words: object) -> subprocess.CompletedProcess[bytes]:
        line = " ".join(shlex.quote(str(word)) for word in (*PROGRAM, *words))
        return subprocess.run(f"{line} {stream}&-", shell=True, capture_output=True, env=environment(), check=False)

    done = closed(">", "info", files_run)
    assert (done.returncode, done.stderr) == (0, b"")
    done = closed("<", "translate", "--model", files_run)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert closed("2>", "info", "nowhere").returncode == 66


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk that is always full")
def test_a_full_disk_is_told_in_one_line(files_run: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*PROGRAM, "info", files_run], stdout=full, stderr=subprocess.PIPE, env=environment(), check=False
        )
    assert (done.returncode, done.stderr) == (74, b"clearhead: cannot read or write: No space left on device\n")


def test_text_is_utf8_whatever_the_locale_says(files_run: Path, tmp_path: Path) -> None:
    named = tmp_path / "模型"
    named.symlink_to(files_run)
    ascii_only = environment(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", PYTHONIOENCODING="ascii")
    words = (*PROGRAM, "info", os.fsencode(named))
    plain = subprocess.run(words, capture_output=True, env=environment(), check=False)
    other = subprocess.run(words, capture_output=True, env=ascii_only, check=False)
    assert plain.returncode == 0 and "模型".encode() in plain.stdout
    assert (other.returncode, other.stdout) == (0, plain.stdout), other.stderr


def test_texts_of_several_sentences_are_translated_sentence_by_sentence(files_run: Path) -> None:
    words = (*PROGRAM, "translate", "--model", files_run, "--beam", "1", "--max-len", "3", "--threads", "1")
    texts = ("Einhundert.", "Zweihundert! Dreihundert.", "", "…", " ".join(["Einhundert."] * 500))
    lines = "".join(f"{text}\n" for text in texts).encode()
    done = subprocess.run([*words, "--by-sentence"], input=lines, capture_output=True, env=environment(), check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    alone, two, nothing, signs, many = done.stdout.decode().split("\n")[:-1]
    parts = subprocess.run(
        [*words, "Zweihundert!", "Dreihundert."], capture_output=True, env=environment(), check=True
    ).stdout.decode()
    assert two == " ".join(parts.rstrip("\n").split("\n"))
    assert (nothing, signs, many) == ("", "…", " ".join([alone] * 500))
    too_long = subprocess.run(words, input=lines, capture_output=True, env=environment(), check=False)
    assert too_long.returncode == 65 and b"--by-sentence" in too_long.stderr
    for others in (("--scores",), ("--json",), ("--nbest", "2")):
        refused = subprocess.run(
            [*PROGRAM, "translate", "--by-sentence", *others, "eins"],
            capture_output=True,
            env=environment(),
            check=False,
        )
        assert refused.returncode == 2 and b"--by-sentence gives one translation" in refused.stderr
