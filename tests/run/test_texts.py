"""A text becomes windows: split as nanoGPT splits it, tokenised once, opened again by others, resumed to the bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.shared.shapes import unchecked_shapes

from clearhead.data.numbers import spell
from clearhead.data.windows import Random, TextConfig, Tiled
from clearhead.errors import ConfigError, DataError
from clearhead.run.settings import GptRun, resolve
from clearhead.run.task import Prepared
from clearhead.run.tasks import TASKS
from clearhead.run.texts import examine_texts, prepare_texts, sampled
from clearhead.run.training import resume, train
from clearhead.text.kinds import TokenizerConfig
from clearhead.training.events import Noted, Progress, Validated

TEXT = "".join(f"{spell(number, 'en')} comes after {spell(number - 1, 'en')}.\n" for number in range(100, 150))
TINY: dict[str, Any] = {
    "tokenizer": {"kind": "char"},
    "batches": {"max_tokens": 64},
    "model": {"kind": "gpt", "dim": 8, "ff_dim": 16, "num_heads": 2, "num_layers": 1, "dropout": 0.2, "max_len": 16},
    "train": {"steps": 8, "lr": 0.01, "warmup": 2, "validate_every": 4, "log_every": 1, "smoothing": 0.0},
}
Configure = Callable[..., GptRun]


@pytest.fixture(autouse=True)
def as_for_users() -> Any:
    with unchecked_shapes():
        yield


@pytest.fixture
def configure(tmp_path: Path) -> Configure:
    """The settings of a tiny run on TEXT, changed by `section__key=value`."""
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8", newline="\n")

    def make(out: str = "run", **changes: Any) -> GptRun:
        tree = {**{key: dict(value) for key, value in TINY.items()}, "data": {"text": str(tmp_path / "a.txt")}}
        for name, value in changes.items():
            section, key = name.split("__")
            tree[section][key] = value
        config = resolve({**tree, "out": str(tmp_path / out)})
        assert isinstance(config, GptRun)
        return config

    return make


def prepared(config: GptRun) -> tuple[Prepared, list[str]]:
    steps, notes = prepare_texts(config, examine_texts(config.data)), []
    while True:
        try:
            event = next(steps)
        except StopIteration as end:
            return end.value, notes
        if isinstance(event, Noted):
            notes.append(event.message)


def test_the_first_nine_tenths_are_trained_on(configure: Configure) -> None:
    found = examine_texts(configure().data)
    border = int(len(TEXT) * 0.9)
    assert "".join(found.training.passages()) == TEXT[:border]
    assert "".join(found.validation.passages()) == TEXT[border:]
    assert found.is_one
    assert found.report()[-1] == f"{border:,} characters to train on, {len(TEXT) - border:,} to validate on"


@pytest.mark.real_data("tinyshakespeare")
def test_tiny_shakespeare_is_split_as_nanogpt_splits_it(real_data: Path) -> None:
    found = examine_texts(TextConfig(dataset="tinyshakespeare", text="input.txt"))
    assert (len(found.training), len(found.validation), len(found.training.alphabet)) == (1_003_854, 111_540, 65)


def test_another_text_may_be_validated_on(configure: Configure, tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("one hundred üü\n", encoding="utf-8")
    config = configure(data__validation_text=str(tmp_path / "b.txt"))
    found = examine_texts(config.data)
    assert (len(found.training), len(found.validation)) == (len(TEXT), 15)
    _, notes = prepared(config)
    assert f"{tmp_path / 'b.txt'}: 2 tokens are unknown to the tokenizer, and count as <unk>" in notes


@pytest.mark.parametrize("kind", ["char", "bpe", "byte"])
def test_the_windows_hold_the_text(configure: Configure, kind: str) -> None:
    config = configure(tokenizer__kind=kind, tokenizer__vocab_size=280)
    found, notes = prepared(config)
    assert found.tokenizers is not None and found.tokenizers.joint
    assert isinstance(found.training, Tiled) and isinstance(found.validation, Tiled)
    decode = found.tokenizers.source.decode
    assert decode(found.training.ids) + decode(found.validation.ids) == TEXT
    assert found.num_trained == len(found.training.ids)
    assert any("characters to train on" in note for note in notes)
    assert TASKS["gpt"].shape(config, found).vocab_size == found.tokenizers.source.vocab_size


def test_others_open_the_same_by_its_ticket(configure: Configure) -> None:
    config = configure(data__windows="random", data__validation_windows=5)
    found, _ = prepared(config)
    again = TASKS["gpt"].open_prepared(config, found.tokenizers, found.ticket())
    for one, other in ((found.training, again.training), (found.validation, again.validation)):
        assert isinstance(one, Random) and isinstance(other, Random)
        assert len(one) == len(other)
        assert one.ids.tolist() == other.ids.tolist()
    assert len(again.validation) == 5


def test_drawn_windows_make_whole_batches_only(configure: Configure) -> None:
    config = configure(data__windows="random", batches__batch_size=12)
    found, _ = prepared(config)
    assert len(found.training) % 12 == 0
    assert 0 <= len(found.training) * 16 - found.num_trained < 12 * 16


def test_a_tokenizer_learns_from_a_sample_but_knows_every_character(configure: Configure) -> None:
    text = examine_texts(configure().data).training
    some = list(sampled(text, TokenizerConfig(kind="bpe", sample=10)))
    assert len(some) <= 10
    assert set("".join(some)) < set(TEXT) or len(set(TEXT)) == len(set("".join(some)))
    assert "".join(sampled(text, TokenizerConfig(kind="char", sample=10))) == "".join(text.passages())


def test_sizes_follow_from_the_text() -> None:
    from clearhead.training.sizing import choose_text_sizes

    few, many = (
        {choice.key: choice.value for choice in choose_text_sizes(*size, memory=8 << 30)}
        for size in ((1_000_000, 65), (1_000_000, 4000))
    )
    assert few["tokenizer.kind"] == "char"
    assert (many["tokenizer.kind"], many["tokenizer.vocab_size"]) == ("bpe", 2_000)
    assert few["train.smoothing"] == 0.0
    wide = {choice.key: choice.value for choice in choose_text_sizes(10**9, 65, memory=8 << 30)}
    assert wide["model.dim"] > few["model.dim"]
    assert wide["model.dim"] % wide["model.num_heads"] == 0


@pytest.mark.parametrize("characters", [10, 50_000, 10**6, 10**7, 10**8, 10**10])
@pytest.mark.parametrize("alphabet", [30, 5000])
def test_chosen_sizes_make_a_run(characters: int, alphabet: int) -> None:
    from clearhead.config import override, to_value
    from clearhead.training.sizing import choose_text_sizes

    choices = choose_text_sizes(characters, alphabet, memory=8 << 30)
    assert all(choice.why for choice in choices)
    tree = override(
        {"model": {"kind": "gpt"}, "data": {"text": "a.txt"}, "train": {}},
        [f"{choice.key}={to_value(choice.value)}" for choice in choices],
    )
    assert isinstance(resolve(tree), GptRun)


def test_a_text_must_be_named_and_long_enough(configure: Configure, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"say which text to train on: data\.text = FILE"):
        examine_texts(TextConfig())
    (tmp_path / "a.txt").write_text("x", encoding="utf-8")
    with pytest.raises(DataError, match="has 1 characters: too few to train and to validate on"):
        examine_texts(TextConfig(text=str(tmp_path / "a.txt")))


@pytest.mark.usefixtures("plain_runs")
@pytest.mark.parametrize("windows", ["tiled", "random"])
def test_a_resumed_run_is_the_uninterrupted_one_to_the_bit(configure: Configure, windows: str) -> None:
    whole = list(train(configure("whole", data__windows=windows)))
    steps = 0

    def soon() -> bool:
        nonlocal steps
        steps += 1
        return steps == 5

    list(train(configure("broken", data__windows=windows), stop=soon))
    config = configure("broken", data__windows=windows)
    rest = list(resume(Path(config.out), []))
    losses = {event.step: event.loss for event in whole if isinstance(event, Progress)}
    later = {event.step: event.loss for event in rest if isinstance(event, Progress)}
    assert later == {step: loss for step, loss in losses.items() if step > 5}
    ends = [(Path(config.out).with_name(name) / "model" / "model.safetensors") for name in ("whole", "broken")]
    assert ends[0].read_bytes() == ends[1].read_bytes()


@pytest.mark.usefixtures("plain_runs")
def test_a_text_is_learnt(configure: Configure) -> None:
    config = configure(model__dropout=0.0, model__dim=16, train__steps=60, train__validate_every=60, train__lr=0.02)
    events = list(train(config))
    (validated,) = (event for event in events if isinstance(event, Validated))
    # Far below what the frequencies of characters alone would give.
    counts = np.unique(list(TEXT), return_counts=True)[1] / len(TEXT)
    assert validated.loss < 0.8 * float(-(counts * np.log(counts)).sum())


def test_validation_shows_what_the_model_makes_of_the_text(configure: Configure) -> None:
    config = configure()
    found, _ = prepared(config)
    torch.manual_seed(0)
    from clearhead.models.gpt import Gpt

    model = Gpt(TASKS["gpt"].shape(config, found))
    samples = TASKS["gpt"].samples(model, found, "cpu")
    assert len(samples) == 3
    validation = TEXT[int(len(TEXT) * 0.9) :].replace("\n", "⏎")
    assert all(f"{sample.given}{sample.wanted}" in validation for sample in samples)
    assert all(len(sample.made) == 64 for sample in samples)


@pytest.fixture
def plain_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No picture of the loss and no samples for people: they take longer than all steps of a tiny run."""
    from clearhead.run.tasks.gpt import GptTask
    from clearhead.training import logbook

    monkeypatch.setattr(logbook, "draw_curve", lambda metrics, picture: None)
    monkeypatch.setattr(GptTask, "samples", lambda self, model, prepared, device: ())
