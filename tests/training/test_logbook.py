"""The files that a run writes about itself, and what a resumed run makes of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import matplotlib.image
import pytest

from clearhead.training.events import Event, Finished, Noted, Progress, Reading, Sample, Saved, Started, Validated
from clearhead.training.logbook import Logbook, clock, read_metrics, sentence, short


def progress(step: int, loss: float = 2.0) -> Progress:
    return Progress(step, 10, 1, loss, 7.4, 1e-3, 0.5, 1234.0, 60.0)


def validated(step: int, hypothesis: str = "a house") -> Validated:
    return Validated(step, 1.5, 4.5, True, (Sample("ein Haus", "a house", hypothesis), Sample("二十三", "x", "y")))


STORY: tuple[Event, ...] = (
    Noted("读 two files"),
    Started(0, 10, 1_500_000, "cpu", "fp32"),
    progress(2),
    progress(4, 1.8),
    validated(5),
    Saved(5, Path("run/checkpoints/step-5")),
    Finished(5, "interrupted", 3.5, 5, 1.5, Path("run/model")),
)


def written(run: Path, *events: Event, resumed_at: int = 0) -> Path:
    logbook = Logbook(run, resumed_at)
    for event in events:
        logbook.record(event)
    return run


def test_every_event_is_a_line_of_metrics_and_of_the_log(tmp_path: Path) -> None:
    run = written(tmp_path / "runs" / "new", *STORY)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert rows == read_metrics(run / "metrics.jsonl")
    names = ["noted", "started", "progress", "progress", "validated", "saved", "finished"]
    assert [row["event"] for row in rows] == names
    assert rows[0]["message"] == "读 two files"
    assert (rows[2]["step"], rows[2]["loss"], rows[2]["tokens_per_second"]) == (2, 2.0, 1234.0)
    assert rows[4]["samples"][1] == {"source": "二十三", "reference": "x", "hypothesis": "y"}
    assert set(rows[4]) == {"event", "step", "loss", "perplexity", "is_best", "samples"}
    assert rows[5]["path"] == "run/checkpoints/step-5" and rows[6]["model_dir"] == "run/model"
    log = (run / "train.log").read_text(encoding="utf-8").splitlines()
    assert len(log) == len(STORY)
    for line, event in zip(log, STORY, strict=True):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d  " + re.escape(sentence(event)), line)


def test_samples_are_kept_for_people(tmp_path: Path) -> None:
    written(tmp_path, validated(5), validated(10, "a mouse"))
    first, second, third, _ = (tmp_path / "samples.txt").read_text(encoding="utf-8").removesuffix("\n\n").split("\n\n")
    assert first == "step 5\n  source      ein Haus\n  reference   a house\n  hypothesis  a house"
    assert second == "step 5\n  source      二十三\n  reference   x\n  hypothesis  y"
    assert third == "step 10\n  source      ein Haus\n  reference   a house\n  hypothesis  a mouse"


def test_the_loss_is_drawn_at_each_validation_and_at_the_end(tmp_path: Path) -> None:
    written(tmp_path, *STORY[:4])
    assert not (tmp_path / "loss.png").exists()
    written(tmp_path, *STORY, resumed_at=10)
    height, width, _ = matplotlib.image.imread(tmp_path / "loss.png").shape
    assert (height, width) == (480, 840)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loss.png", "metrics.jsonl", "samples.txt", "train.log"]


def test_a_run_that_ends_before_its_first_report_has_an_empty_picture(tmp_path: Path) -> None:
    written(tmp_path, Finished(0, "interrupted", 0.1))
    assert matplotlib.image.imread(tmp_path / "loss.png").shape[:2] == (480, 840)


@pytest.mark.parametrize("cut", [b'{"event": "progr', b'{"event": "progress", "step": 6, "note": "\xe4\xba', b"", b"{"])
def test_a_line_cut_off_by_a_kill_is_passed_over(tmp_path: Path, cut: bytes) -> None:
    run = written(tmp_path, *STORY[:4])
    whole = read_metrics(run / "metrics.jsonl")
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(cut)
    assert read_metrics(run / "metrics.jsonl") == whole
    written(run, Started(4, 10, 1, "cpu", "fp32"), progress(6), validated(6), resumed_at=4)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_bytes().split(b"\n")[:-1]]
    assert rows[: len(whole)] == whole
    assert [(row["event"], row["step"]) for row in rows[len(whole) :]] == [
        ("started", 4),
        ("progress", 6),
        ("validated", 6),
    ]


def test_steps_that_will_be_taken_again_are_struck_out(tmp_path: Path) -> None:
    run = written(tmp_path, *STORY[:2], *(progress(step) for step in range(1, 9)), validated(8))
    written(run, Started(5, 10, 1, "cpu", "fp32"), progress(6, 1.0), resumed_at=5)
    rows = read_metrics(run / "metrics.jsonl")
    assert [row["step"] for row in rows if row["event"] == "progress"] == [1, 2, 3, 4, 5, 6]
    assert rows[-1]["loss"] == 1.0 and not any(row["event"] == "validated" for row in rows)
    assert rows[0]["event"] == "noted"
    assert not list(tmp_path.glob("*.tmp*"))


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Noted("careful"), "careful"),
        (Started(0, 100, 2_340_000, "cpu", "bf16"), "starting: 100 steps, 2.34 M parameters, on cpu in bf16"),
        (
            Started(7, 100, 2_340_000, "cuda", "fp32"),
            "resuming at step 7: 100 steps, 2.34 M parameters, on cuda in fp32",
        ),
        (Validated(3, 2.0, 7.389, False), "validation at step 3: loss 2.000  ppl 7.39"),
        (Validated(3, 2.0, 7.389, True), "validation at step 3: loss 2.000  ppl 7.39  best so far"),
        (Validated(3, 2.0, 7.389, False, (), 0.9375), "validation at step 3: loss 2.000  ppl 7.39  accuracy 93.8 %"),
        (Validated(3, 2.0, None, False, (), 0.9375), "validation at step 3: loss 2.000  accuracy 93.8 %"),
        (
            Progress(3, 10, 1, 2.0, None, 1e-3, 0.5, 1234.0, 60.0, "pictures", 0.5),
            "step 3/10  loss 2.000  accuracy 50.0 %  lr 1.0e-3  gnorm 0.50  1.2k pictures/s  eta 0:01:00",
        ),
        (Reading("reading", 5, 10, 2.0, None, "lines"), "reading 5 of 10 lines  2 lines/s"),
        (Saved(3, Path("x/step-3")), "saved x/step-3"),
        (Finished(3, "done", 61.0), "done at step 3 after 0:01:01"),
        (Finished(3, "early stop", 3661.0, 2, 1.25), "early stop at step 3 after 1:01:01; best loss 1.250 at step 2"),
    ],
)
def test_an_event_is_one_plain_sentence(event: Event, line: str) -> None:
    assert sentence(event) == line


def test_numbers_are_short_and_times_are_clocks() -> None:
    assert [short(number) for number in (0.4, 999, 1_000, 18_437, 999_999, 12_000_000)] == [
        "0", "999", "1.0k", "18.4k", "1.0M", "12.0M",
    ]  # fmt: skip
    assert [clock(seconds) for seconds in (0, 59.9, 60, 86_400)] == ["0:00:00", "0:00:59", "0:01:00", "24:00:00"]


def test_how_far_reading_has_come_is_not_written_down(tmp_path: Path) -> None:
    logbook = Logbook(tmp_path)
    logbook.record(Reading("tokenising", 5, 10, 2.0, 2.5))
    logbook.record(Noted("tokenised"))
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 1
    assert "2.0" not in (tmp_path / "train.log").read_text()
