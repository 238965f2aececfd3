"""Two files and no config: what is chosen, why, and that nothing leaks or is written on the way."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from clearhead.data.numbers import spell
from clearhead.data.sources import DataConfig
from clearhead.errors import ConfigError, DataError
from clearhead.run import choosing
from clearhead.run.choosing import choose_config, free_memory
from clearhead.run.settings import RunConfig
from clearhead.run.tasks import translator
from clearhead.run.training import rehearse, train
from clearhead.training.events import Noted
from clearhead.training.sizing import TIERS, choose_sizes

pytestmark = pytest.mark.usefixtures("unchecked")

GIB = 2**30
NewFiles = Callable[..., DataConfig]


@pytest.fixture
def two_files(tmp_path: Path) -> NewFiles:
    """Two aligned files of number words."""

    def write(pairs: int = 200, extra: list[tuple[str, str]] | None = None) -> DataConfig:
        lines = [(spell(number, "de"), spell(number, "en")) for number in range(pairs)] + (extra or [])
        for side, name in enumerate(("a.de", "a.en")):
            (tmp_path / name).write_text("".join(pair[side] + "\n" for pair in lines), encoding="utf-8")
        return DataConfig(source=str(tmp_path / "a.de"), target=str(tmp_path / "a.en"))

    return write


def setting(config: RunConfig, key: str) -> Any:
    section, name = key.split(".")
    return getattr(getattr(config, section), name)


def test_every_choice_is_in_the_config_and_has_a_reason(two_files: NewFiles) -> None:
    config, choices, _ = choose_config(two_files(), "runs/mine")
    assert config.out == "runs/mine"
    assert {choice.key for choice in choices} >= {
        "tokenizer.vocab_size", "model.dim", "model.encoder_layers", "batches.max_tokens", "train.epochs", "train.lr",
    }  # fmt: skip
    for choice in choices:
        assert setting(config, choice.key) == choice.value
        assert choice.why
    assert len({choice.key for choice in choices}) == len(choices)


def test_what_the_user_sets_is_not_chosen(two_files: NewFiles) -> None:
    asked = ["model.dim=96", "train.steps=7", "tokenizer.kind=char", "train.lr=3e-4"]
    config, choices, _ = choose_config(two_files(), "runs/mine", asked)
    assert (config.model.dim, config.train.steps, config.tokenizer.kind, config.train.lr) == (96, 7, "char", 3e-4)
    assert not {choice.key for choice in choices} & {"model.dim", "train.steps", "tokenizer.kind", "train.lr"}


def test_the_environment_is_the_user_too(two_files: NewFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEARHEAD_MODEL__DIM", "64")
    config, choices, _ = choose_config(two_files(), "runs/mine")
    assert config.model.dim == 64
    assert "model.dim" not in {choice.key for choice in choices}


def test_separate_tokenizers_are_not_tied_together(two_files: NewFiles) -> None:
    config, choices, _ = choose_config(two_files(), "runs/mine", ["tokenizer.joint=false"])
    assert config.model.tie == "target"
    assert "model.tie" not in {choice.key for choice in choices}
    messages = [noted.message for noted in rehearse(config)]
    assert any(message.startswith("model: ") for message in messages)


def test_a_setting_that_does_not_exist_is_named_before_the_data_is_read(tmp_path: Path) -> None:
    data = DataConfig(source=str(tmp_path / "nowhere.de"), target=str(tmp_path / "nowhere.en"))
    with pytest.raises(ConfigError, match=r"unknown key 'model\.dimm', did you mean 'model\.dim'\?"):
        choose_config(data, "runs/mine", ["model.dimm=3"])


def test_more_data_gives_larger_sizes(two_files: NewFiles) -> None:
    small, _, _ = choose_config(two_files(200), "runs/mine")
    large, _, _ = choose_config(two_files(4000), "runs/mine")
    assert large.tokenizer.vocab_size > small.tokenizer.vocab_size
    assert large.model.encoder_layers > small.model.encoder_layers
    assert large.model.ff_dim > small.model.ff_dim
    assert large.train.epochs is not None
    assert small.train.epochs is not None
    assert large.train.epochs < small.train.epochs


@pytest.mark.parametrize("key", ["tokenizer.vocab_size", "model.dim", "model.ff_dim", "model.encoder_layers"])
def test_sizes_never_fall_as_data_grows(key: str) -> None:
    def size(pairs: float) -> int:
        return next(c.value for c in choose_sizes(int(pairs), longest=100, memory=64 * GIB) if c.key == key)

    amounts = [1, *(tier.pairs for tier in TIERS[:-1]), 10**8]
    sizes = [size(pairs) for pairs in amounts]
    assert all(later >= earlier for earlier, later in pairwise(sizes))
    assert sizes[-1] > sizes[0]


@pytest.mark.parametrize("pairs", [10, 10_000, 1_000_000, 10**8])
def test_every_size_makes_a_config_that_holds(pairs: int, two_files: NewFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = choose_sizes(pairs, longest=100, memory=8 * GIB)
    monkeypatch.setattr(translator, "choose_sizes", lambda *amounts: chosen)
    config, _, _ = choose_config(two_files(60), "runs/mine")
    assert config.model.dim % config.model.num_heads == 0
    assert config.train.warmup > 0


def chosen_by(key: str, pairs: int, optimizer: str | None = None) -> Any:
    """What is chosen for a key, or None."""
    chosen = choose_sizes(pairs, longest=100, memory=8 * GIB, optimizer=optimizer)
    return next((choice.value for choice in chosen if choice.key == key), None)


def test_small_models_learn_by_muon_and_large_ones_by_adam_each_at_its_own_rate() -> None:
    assert chosen_by("train.optimizer", 10_000) == "muon"
    assert chosen_by("train.schedule", 10_000) == "linear"
    assert chosen_by("train.optimizer", 10**7) is None  # Adam is what a config has.
    assert chosen_by("train.lr", 10**7) < chosen_by("train.lr", 10_000)


def test_an_optimizer_that_is_asked_for_gets_the_rate_that_suits_it() -> None:
    assert chosen_by("train.lr", 10_000, "adamw") < chosen_by("train.lr", 10_000) / 2
    assert chosen_by("train.table_rate", 10_000, "adamw") is None
    assert chosen_by("train.lr", 10**7, "muon") == chosen_by("train.lr", 10_000)


@pytest.mark.parametrize("asked", ["train.optimizer=adam", "train.optimizer=adamw", "train.sharding=full"])
def test_what_the_user_sets_keeps_muon_and_its_rate_away(asked: str, two_files: NewFiles) -> None:
    config, choices, _ = choose_config(two_files(), "runs/mine", [asked])
    assert config.train.optimizer != "muon"
    assert config.train.lr == TIERS[0].lr
    assert not {choice.key for choice in choices} & {"train.optimizer", "train.table_rate", "train.schedule"}


def test_layers_that_nothing_leads_around_do_not_start_still(two_files: NewFiles) -> None:
    usual, _, _ = choose_config(two_files(), "runs/mine")
    bare, _, _ = choose_config(two_files(), "runs/mine", ["model.residual=none"])
    assert (setting(usual, "model.start"), setting(bare, "model.start")) == ("still", "glorot")
    assert any(noted.message.startswith("model: ") for noted in rehearse(bare))


def test_a_translator_that_starts_from_another_has_its_shape(two_files: NewFiles, tmp_path: Path) -> None:
    other = ["model.positions=sinusoidal", "model.num_heads=8", "model.dim=32", "train.steps=1"]
    config, _, found = choose_config(two_files(), str(tmp_path / "other"), other)
    list(train(config, examined=found))
    config, choices, _ = choose_config(two_files(), "runs/mine", [f"init={config.out}", "model.dropout=0.2"])
    assert (config.model.positions, config.model.num_heads, config.model.dim) == ("sinusoidal", 8, 32)
    assert config.model.dropout == 0.2
    assert not {choice.key for choice in choices} & {"tokenizer.kind", "tokenizer.vocab_size"}
    assert any("tensors taken" in noted.message for noted in rehearse(config))


def budget(pairs: int, memory: int) -> int:
    return next(c.value for c in choose_sizes(pairs, longest=100, memory=memory) if c.key == "batches.max_tokens")


def test_less_memory_gives_smaller_batches() -> None:
    budgets = [budget(50_000, memory) for memory in (64 * GIB, 3 * GIB // 2, 1)]
    assert budgets[0] > budgets[1] > budgets[2] >= 1024


def test_less_data_gives_smaller_batches_so_that_there_are_steps_enough() -> None:
    budgets = [budget(pairs, 64 * GIB) for pairs in (50_000, 5_000, 500)]
    assert budgets[0] > budgets[1] > budgets[2] >= 1024


def test_chinese_gets_an_entry_for_each_sign_and_its_steps_are_counted_as_they_come(tmp_path: Path) -> None:
    (tmp_path / "a.zh").write_text("".join(f"{spell(n, 'zh')}\n" for n in range(9_000, 9_900)), encoding="utf-8")
    (tmp_path / "a.en").write_text("".join(f"{spell(n, 'en')}\n" for n in range(9_000, 9_900)), encoding="utf-8")
    data = DataConfig(source=str(tmp_path / "a.zh"), target=str(tmp_path / "a.en"))
    _, choices, examined = choose_config(data, "runs/mine")
    signs = len(set((tmp_path / "a.zh").read_text(encoding="utf-8")) - {"\n"})
    chosen = {choice.key: choice for choice in choices}
    assert chosen["tokenizer.vocab_size"].value == TIERS[0].vocab_size + signs
    # The English side is the longer one.
    steps = round(examined.checkup.report.target_lengths.mean / 3.5 * 900 / chosen["batches.max_tokens"].value)
    assert chosen["batches.max_tokens"].why.startswith(f"about {steps} batches a pass")
    assert chosen["train.validate_every"] == ("train.validate_every", 50, f"a pass is short: about {steps} steps")


def test_the_memory_that_is_free_is_what_counts(two_files: NewFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(choosing, "free_memory", lambda: 12_345)
    monkeypatch.setattr(translator, "choose_sizes", lambda *amounts: seen.append(amounts[2]) or choose_sizes(*amounts))
    choose_config(two_files(), "runs/mine")
    assert seen == [12_345]


def test_long_texts_get_a_longer_model(two_files: NewFiles) -> None:
    short, _, _ = choose_config(two_files(), "runs/mine")
    long, _, _ = choose_config(two_files(extra=[("wort " * 150, "word " * 150)]), "runs/mine")
    assert long.model.max_len > short.model.max_len


def test_the_free_memory_of_this_machine_is_more_than_nothing() -> None:
    assert free_memory() > 10 * 2**20


# Held out ------------------------------------------------------------------------------------------------------------


def test_validation_is_held_out_of_the_same_files_without_leaking(two_files: NewFiles) -> None:
    twins = [(spell(number, "de"), f"the number {number}") for number in range(100)]
    config, _, examined = choose_config(two_files(200, extra=twins), "runs/mine")
    trained = set(examined.training_texts(0))
    lines = Path(config.data.source or "").read_text(encoding="utf-8").splitlines()
    held = {line for line, is_held in zip(lines, examined.held_out, strict=True) if is_held}
    assert 0 < len(held) <= 15
    assert trained & held == set(), "a source text with two translations is on one side with both"
    assert trained | held == set(lines)


def test_given_validation_files_are_used_and_nothing_is_held_out(two_files: NewFiles, tmp_path: Path) -> None:
    data = two_files()
    (tmp_path / "v.de").write_text("tausend\n")
    (tmp_path / "v.en").write_text("one thousand\n")
    given = {"validation_source": str(tmp_path / "v.de"), "validation_target": str(tmp_path / "v.en")}
    _, _, examined = choose_config(data.model_copy(update=given), "runs/mine")
    assert not examined.held_out.any()
    assert examined.validation_source is not None


def test_one_pair_is_too_little(two_files: NewFiles) -> None:
    with pytest.raises(DataError, match="cannot hold out 1 of 1 pairs: some must be left on both sides"):
        choose_config(two_files(1), "runs/mine")


# The rehearsal -------------------------------------------------------------------------------------------------------


def test_a_rehearsal_estimates_and_writes_nothing(two_files: NewFiles, tmp_path: Path) -> None:
    config, _, examined = choose_config(two_files(), str(tmp_path / "run"))
    before = {path.name for path in tmp_path.iterdir()}
    events = list(rehearse(config, examined=examined))
    assert all(isinstance(event, Noted) for event in events)
    assert {path.name for path in tmp_path.iterdir()} == before
    last = events[-1].message
    assert last.startswith("model: ")
    assert all(word in last for word in ("M parameters", "MiB of memory", "steps of", "so about"))
    assert any("190 pairs to train on, 10 to validate on" in event.message for event in events)
