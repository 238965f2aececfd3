"""From settings to tokenised pairs: what is judged, held out, learnt from, and stored once."""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearhead.data.corpus import cache_root
from clearhead.data.examples import Draw
from clearhead.errors import ConfigError, DataError, MissingInputError, StorageError
from clearhead.run.preparing import Prepared, examine, examine_data, open_prepared, prepare
from clearhead.run.settings import RunConfig, TranslatorRun, resolve
from clearhead.text.specials import UNK_ID
from clearhead.text.tokenizer import TokenizerPair
from clearhead.training.events import Noted, Pace, Reading

PAIRS = [(f"satz {number}", f"sentence {number}") for number in range(50)]
Configure = Callable[..., RunConfig]


@pytest.fixture
def configure(tmp_path: Path) -> Configure:
    """A configuration over a TSV file of the pairs given."""

    def make(pairs: list[tuple[str, str]] = PAIRS, max_len: int = 64, **data: Any) -> RunConfig:
        (tmp_path / "pairs.tsv").write_text("".join(f"{one}\t{other}\n" for one, other in pairs), encoding="utf-8")
        return resolve(
            {
                "out": str(tmp_path / "run"),
                "data": {"kind": "tsv", "tsv": str(tmp_path / "pairs.tsv"), **data},
                "tokenizer": {"kind": "char"},
                "model": {"max_len": max_len},
                "train": {"steps": 1},
            }
        )

    return make


def outcome(steps: Generator[Noted | Reading, None, Prepared]) -> tuple[Prepared, list[str]]:
    notes = []
    while True:
        try:
            event = next(steps)
            if isinstance(event, Noted):
                notes.append(event.message)
        except StopIteration as end:
            return end.value, notes


def prepared_from(config: RunConfig) -> tuple[Prepared, list[str]]:
    return outcome(prepare(config, examine(config)))


def sources(prepared: Prepared, part: str) -> set[str]:
    pairs = getattr(prepared, part)
    return {prepared.tokenizers.source.decode(pairs.source(index)) for index in range(len(pairs))}


def test_pairs_are_split_between_training_and_validation(configure: Configure) -> None:
    prepared, notes = prepared_from(configure(hold_out=7))
    trained, held = sources(prepared, "training"), sources(prepared, "validation")
    assert (len(trained), len(held)) == (43, 7)
    assert trained | held == {source for source, _ in PAIRS}
    assert notes[-1] == "43 pairs to train on, 7 to validate on"
    assert "tokenizer: char," in notes[-2]


def test_rare_words_are_brought_into_pairs_that_are_trained_on_and_never_from_those_held_out(
    configure: Configure,
) -> None:
    nouns = [f"{one}{two}rt" for one in "bdfgklmn" for two in "aeiou"]
    pairs = [(f"er sieht den {noun.title()} dort.", f"he sees the {noun} there.") for noun in nouns]
    prepared, _ = prepared_from(configure(pairs, hold_out=7, augment={"swaps": 1.0}))
    learnt, held = sources(prepared, "training"), sources(prepared, "validation")
    assert len(prepared.training) > len(learnt) == len(pairs) - len(held)
    assert not learnt & held
    there, here = prepared.tokenizers.source, prepared.tokenizers.target
    for index in range(len(prepared.training)):
        source = there.decode(prepared.training.source(index))
        target = here.decode(prepared.training.target(index))
        assert source.split()[3].lower() == target.split()[3]


def test_both_sides_stay_together(configure: Configure) -> None:
    prepared, _ = prepared_from(configure())
    for part in (prepared.training, prepared.validation):
        for index in range(len(part)):
            source = prepared.tokenizers.source.decode(part.source(index))
            target = prepared.tokenizers.target.decode(part.target(index))
            assert (source, target) in PAIRS


def test_the_tokenizer_learns_nothing_from_what_is_held_out(configure: Configure) -> None:
    """Every text has a letter of its own, so those that are held out must be unknown."""
    letters = [chr(0x4E00 + number) for number in range(50)]
    config = configure([(letter, f"sentence {number}") for number, letter in enumerate(letters)], hold_out=10)
    prepared, _ = prepared_from(config)
    tokenizer = prepared.tokenizers.source
    unknown = [letter for letter in letters if tokenizer.encode(letter) == [UNK_ID]]
    assert len(unknown) == 10
    assert [list(prepared.validation.source(index)) for index in range(10)] == [[UNK_ID]] * 10


def test_a_second_time_nothing_is_tokenised(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configure()
    first, _ = prepared_from(config)

    def refuse(*args: object, **options: object) -> None:
        raise AssertionError("tokenised again")

    monkeypatch.setattr("clearhead.data.corpus.tokenising", refuse)
    again, _ = prepared_from(config)
    assert len(again.training) == len(first.training)
    with pytest.raises(AssertionError, match="tokenised again"):
        prepared_from(configure([*PAIRS, ("neu", "new")]))


def test_given_tokenizers_are_used_as_they_are(configure: Configure) -> None:
    config = configure()
    mine = TokenizerPair.train(config.tokenizer, ["satz 0123456789"], ["sentence"])
    prepared, notes = outcome(prepare(config, examine(config), mine))
    assert prepared.tokenizers is mine
    assert not any(note.startswith("tokenizer:") for note in notes)


def test_pairs_too_long_for_the_model_are_counted(configure: Configure) -> None:
    prepared, notes = prepared_from(configure([*PAIRS, ("lang " * 20, "long " * 20)], max_len=40))
    assert "dropped 1 pairs of more than 40 tokens" in notes
    assert len(prepared.training) + len(prepared.validation) == 50


def test_nothing_left_to_train_on_is_an_error(configure: Configure) -> None:
    config = configure(max_len=2)
    with pytest.raises(DataError) as error:
        prepared_from(config)
    assert str(error.value) == f"{config.data.tsv}: no pair is left to train on"


def test_nothing_left_to_validate_on_is_an_error(configure: Configure, tmp_path: Path) -> None:
    (tmp_path / "v.tsv").write_text("ein sehr langer satz\ta very long sentence\n")
    config = configure(max_len=15, validation_tsv=str(tmp_path / "v.tsv"))
    with pytest.raises(DataError) as error:
        prepared_from(config)
    assert str(error.value) == f"{tmp_path / 'v.tsv'}: no pair is left to validate on"


def test_validation_pairs_that_are_given_are_told_apart_and_leaks_are_noted(
    configure: Configure, tmp_path: Path
) -> None:
    (tmp_path / "v.tsv").write_text("satz 3\tsentence 3\nsatz 99\tsentence 99\n")
    prepared, notes = prepared_from(configure(validation_tsv=str(tmp_path / "v.tsv")))
    assert sources(prepared, "validation") == {"satz 3", "satz 99"}
    assert len(prepared.training) == 50
    assert any("1 of 2 pairs" in note and "also occur in training" in note for note in notes)


def test_a_cache_that_cannot_be_written_is_an_error_of_the_disk(
    configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "file"))
    with pytest.raises(StorageError, match="CLEARHEAD_CACHE"):
        prepared_from(configure())


def test_a_damaged_list_of_rows_is_written_anew(configure: Configure) -> None:
    config = configure(hold_out=7)
    prepared, _ = prepared_from(config)
    ticket = prepared.ticket()
    (cache_root() / ticket[2] / "training.bin").write_bytes(b"rubbish")
    with pytest.raises(StorageError, match="is damaged"):
        open_prepared(config, prepared.tokenizers, ticket)
    assert prepared.ticket() == ticket
    again = open_prepared(config, prepared.tokenizers, ticket)
    assert again.training.line_numbers.tolist() == prepared.training.line_numbers.tolist()


def joined(tmp_path: Path, **data: Any) -> RunConfig:
    """200 German and 200 Chinese pairs with the same English sides, the Chinese ones twice a pass."""
    for name, word in (("de", "satz"), ("zh", "句子")):
        rows = (f"Sentence {number}.\t{word} {number}.\n" for number in range(200))
        (tmp_path / f"{name}.txt").write_text("".join(rows), encoding="utf-8")
    parts = [{"tsv": str(tmp_path / f"{name}.txt"), "columns": [2, 1], "language": name} for name in ("de", "zh")]
    parts[1]["repeat"] = 2
    tree = {"kind": "parts", "parts": parts, "hold_out_by": "target", "hold_out": 0.1, "hold_out_test": 0.1, **data}
    return resolve({"data": tree, "tokenizer": {"kind": "char"}, "train": {"steps": 1}})


def all_targets(prepared: Prepared, part: str) -> list[str]:
    pairs = getattr(prepared, part)
    return [prepared.tokenizers.target.decode(pairs.target(index)) for index in range(len(pairs))]


def test_parts_are_repeated_in_training_only_and_split_by_the_shared_side(tmp_path: Path) -> None:
    config = joined(tmp_path)
    examined = examine(config)
    prepared, notes = outcome(prepare(config, examined))
    trained, held = all_targets(prepared, "training"), all_targets(prepared, "validation")
    tested = examined.tested.reshape(2, -1)
    assert (tested[0] == tested[1]).all() and tested.any()
    assert len(trained) == 3 * len(set(trained)) and len(held) == 2 * len(set(held))
    assert not set(trained) & set(held)
    unseen = {f"Sentence {number}." for number in tested[0].nonzero()[0]}
    assert unseen and not unseen & (set(trained) | set(held))
    assert len(set(trained)) + len(set(held)) + len(unseen) == 200
    different = 2 * len(set(trained))
    assert prepared.num_trained == different
    said = f"{different} pairs to train on (seen {len(trained)} times a pass), {len(held)} to validate on"
    assert notes[-1] == f"{said}, {2 * len(unseen)} to test on"


def test_the_test_pairs_do_not_follow_the_seed(tmp_path: Path) -> None:
    config = joined(tmp_path)
    one, other = (examine_data(config.data, seed) for seed in (1, 2))
    assert (one.tested == other.tested).all()
    assert (one.held_out != other.held_out).any()


def test_altered_copies_are_trained_on_but_never_validated_on(tmp_path: Path) -> None:
    plain, _ = prepared_from(joined(tmp_path))
    altered, _ = prepared_from(joined(tmp_path, augment={"bare": 0.5, "lower": 1.0}))
    assert all_targets(altered, "validation") == all_targets(plain, "validation")
    assert altered.num_trained == plain.num_trained
    bare = [target for target in all_targets(altered, "training") if not target.endswith(".")]
    assert 0.3 < len(bare) / len(plain.training) < 0.7
    assert len(altered.training) == len(plain.training) + len(bare)


def test_a_test_set_is_given_or_held_out_but_not_both(configure: Configure, tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("eins\tone\n")
    with pytest.raises(ConfigError, match=r"there are test data already: leave out data\.hold_out_test"):
        examine(configure(test_tsv=str(tmp_path / "t.tsv"), hold_out_test=5))


def test_the_same_seed_holds_out_the_same_pairs(configure: Configure) -> None:
    config = configure()
    assert (examine(config).held_out == examine(config).held_out).all()
    other = config.model_copy(update={"train": config.train.model_copy(update={"seed": 2})})
    assert (examine(config).held_out != examine(other).held_out).any()


def test_a_sample_is_evenly_spaced_and_always_the_same(configure: Configure) -> None:
    examined = examine(configure(hold_out=10))
    everything = list(examined.training_texts(0))
    assert len(everything) == examined.num_training_pairs == 40
    for size in (1, 3, 20, 39):
        sample = list(examined.training_texts(0, size))
        assert sample == list(examined.training_texts(0, size)) and len(sample) == size
        places = [everything.index(text) for text in sample]
        gaps = {after - before for before, after in pairwise(places)}
        assert places == sorted(places) and (not gaps or max(gaps) - min(gaps) <= 1)
    assert list(examined.training_texts(0, 40)) == list(examined.training_texts(0, 10**9)) == everything
    sides = (list(examined.training_texts(side, 7)) for side in (0, 1))
    assert all((one, other) in PAIRS for one, other in zip(*sides, strict=True))


def test_a_tokenizer_trained_on_a_sample_is_noted(configure: Configure) -> None:
    config = configure(hold_out=10)
    sampled = config.model_copy(update={"tokenizer": config.tokenizer.model_copy(update={"sample": 5})})
    prepared, notes = prepared_from(sampled)
    assert "the tokenizer learns from a sample of 5 of 40 pairs (tokenizer.sample)" in notes
    expected = TokenizerPair.train(config.tokenizer, *(examine(config).training_texts(side, 5) for side in (0, 1)))
    assert prepared.tokenizers.fingerprint() == expected.fingerprint()
    assert not any("sample" in note for note in prepared_from(config)[1])


@pytest.fixture
def talkative(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every count is told."""
    monkeypatch.setattr(Pace, "FIRST_AFTER", 0.0)
    monkeypatch.setattr(Pace, "EVERY", 0.0)
    monkeypatch.setattr("clearhead.data.corpus.CHUNK", 20)


@pytest.mark.usefixtures("talkative")
def test_how_far_checking_and_tokenising_have_come_is_told(configure: Configure) -> None:
    config = configure([(f"zeile {number}", f"line {number}") for number in range(50)])
    told: list[Reading] = []
    examined = examine(config, told.append)
    assert [(reading.what, reading.pairs, reading.total_pairs) for reading in told] == [("checking", 50, None)]
    assert told[0].pairs_per_second > 0 and told[0].seconds_left == 0.0
    events = list(prepare(config, examined))
    readings = [event for event in events if isinstance(event, Reading)]
    assert [(reading.what, reading.pairs, reading.total_pairs) for reading in readings] == [
        ("tokenising", done, 50) for done in (20, 40, 50)
    ]
    assert [reading.seconds_left is not None for reading in readings] == [True] * 3
    assert readings[-1].seconds_left == 0.0
    assert any(isinstance(event, Noted) and "tokenised 50 pairs in 0:00:0" in event.message for event in events)


@pytest.mark.usefixtures("talkative")
def test_altered_copies_are_not_counted_as_pairs(tmp_path: Path) -> None:
    config = joined(tmp_path, augment={"bare": 1.0, "lower": 1.0})
    events = list(prepare(config, examine(config)))
    readings = [event for event in events if isinstance(event, Reading)]
    assert readings[0].pairs < 20 and readings[-1].pairs == 400
    assert {reading.total_pairs for reading in readings} == {400}
    assert all(reading.seconds_left is not None and reading.seconds_left >= 0 for reading in readings)
    assert any(isinstance(event, Noted) and "tokenised 400 pairs in" in event.message for event in events)


def test_work_that_is_done_at_once_is_not_told(configure: Configure) -> None:
    config = configure()
    told: list[Reading] = []
    events = list(prepare(config, examine(config, told.append)))
    assert told == [] and all(isinstance(event, Noted) for event in events)


def test_data_workers_changes_nothing_but_the_processes(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    alone, _ = prepared_from(configure())
    monkeypatch.setenv("CLEARHEAD_CACHE", "another-cache")
    together, _ = prepared_from(configure(workers=2))
    assert sources(alone, "training") == sources(together, "training")
    assert alone.training.source_lengths.tolist() == together.training.source_lengths.tolist()


def test_pieces_are_split_in_training_and_nowhere_else(configure: Configure) -> None:
    config = resolve({**configure(hold_out=7, split_pieces=0.5).model_dump(), "tokenizer": {"kind": "bpe"}})
    assert isinstance(config, TranslatorRun)
    prepared, _ = prepared_from(config)
    again = open_prepared(config, prepared.tokenizers, prepared.ticket())
    rows, draw = np.arange(7), Draw(1, 0)
    for found in (prepared, again):
        plain, split = (found.training.batch(rows, chance) for chance in (None, draw))
        assert split.source_lengths.sum() > plain.source_lengths.sum()
        assert np.array_equal(split.source, prepared.training.batch(rows, draw).source)
        assert np.array_equal(found.validation.batch(rows, draw).source, found.validation.batch(rows, None).source)


def test_only_merged_pieces_can_be_split(configure: Configure) -> None:
    with pytest.raises(ConfigError, match=r"data.split_pieces: a 'char' tokenizer has no pieces"):
        prepared_from(configure(split_pieces=0.1))


def test_more_pairs_are_trained_on_and_never_held_out(configure: Configure, tmp_path: Path) -> None:
    config = configure(hold_out=5, hold_out_test=5, hold_out_by="target", limits={"max_ratio": 100.0})
    before, _ = prepared_from(config)
    found = examine(config)
    held_out = [pair[1:] for pair in found.pairs() if (found.held_out | found.tested)[pair[0] - 1]]
    assert len(held_out) == 10
    mine = [("satz satz", "ten"), ("", "half"), ("tat", held_out[0][1].upper() + "!"), ("zaz", "set")]
    (tmp_path / "more.tsv").write_text("".join(f"{one}\t{other}\n" for one, other in mine) + "only one\n")
    with_more = config.model_copy(update={"data": config.data.model_copy(update={"extra": str(tmp_path / "more.tsv")})})
    after, notes = prepared_from(with_more)
    assert sources(after, "training") == sources(before, "training") | {"satz satz", "zaz"}
    assert sources(after, "validation") == sources(before, "validation")
    assert any(note.startswith("42 pairs to train on, 2 of them from ") for note in notes)
    assert after.num_trained == 42
    assert examine(with_more).fingerprint() != found.fingerprint()


def test_more_pairs_have_nothing_of_what_is_given_to_validate_or_test_on(configure: Configure, tmp_path: Path) -> None:
    rows = {"validation": "sat sat\tone\n", "test": "tas tas\ttwo\n"}
    rows["more"] = "satsat\tone\ntas tas\ttwo\nzaz zaz\tthree\n"
    path = {name: tmp_path / f"{name}.tsv" for name in rows}
    for name, text in rows.items():
        path[name].write_text(text)
    config = configure(extra=str(path["more"]), validation_tsv=str(path["validation"]), test_tsv=str(path["test"]))
    prepared, notes = prepared_from(config)
    assert sources(prepared, "training") & {"satsat", "tas tas", "zaz zaz"} == {"zaz zaz"}
    assert any(", 1 of them from " in note for note in notes)


def test_what_more_pairs_are_is_noticed(configure: Configure, tmp_path: Path) -> None:
    sums = set()
    for text in ("a\tb\n", "a\tc\n"):
        (tmp_path / "more.tsv").write_text(text)
        sums.add(examine(configure(extra=str(tmp_path / "more.tsv"))).fingerprint())
    assert len(sums) == 2
    (tmp_path / "more.tsv").unlink()
    with pytest.raises(MissingInputError, match=r"more\.tsv"):
        prepared_from(configure(extra=str(tmp_path / "more.tsv")))
