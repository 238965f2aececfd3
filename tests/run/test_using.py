"""A loaded translator: one text in, one text out, whatever stands beside it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

import clearhead
from clearhead.config import to_toml
from clearhead.data.numbers import spell
from clearhead.errors import ConfigError, DataError, MissingInputError, StorageError, UnavailableError
from clearhead.run import translating
from clearhead.run.devices import pick_device
from clearhead.run.settings import resolve
from clearhead.run.translating import LoadedTranslator, Translation
from clearhead.run.using import load
from clearhead.storage import SUMS, write_sums
from clearhead.text.specials import EOS_ID
from clearhead.training.events import Event, Finished, Noted

pytestmark = pytest.mark.usefixtures("unchecked")

NUMBERS = [spell(number, "de") for number in (0, 1, 7, 12, 21, 33, 68, 99, 100, 123, 187, 199)]
STRATEGIES: list[dict[str, Any]] = [
    {"strategy": "greedy"},
    {"strategy": "beam", "beam_size": 3},
    {"strategy": "sample", "temperature": 1.0, "seed": 5},
]


@pytest.fixture(scope="module")
def translator(trained: Path) -> LoadedTranslator:
    return load(trained)


def random_texts(count: int) -> list[str]:
    """Number words, rubbish, and nothing, of all lengths up to 30 characters."""
    chance = random.Random(3)
    letters = "aeinrstuzwölfß 0<>/二\t"
    rubbish = ["".join(chance.choices(letters, k=chance.randrange(30))) for _ in range(count)]
    return [chance.choice([text, chance.choice(NUMBERS), "", "  "]) for text in rubbish]


# Shapes of input -----------------------------------------------------------------------------------------------------


def test_it_has_learnt_something(translator: LoadedTranslator) -> None:
    right = [translator.translate(spell(number, "de")) == spell(number, "en") for number in range(20, 60)]
    assert sum(right) > 5


def test_a_string_a_list_and_a_generator_are_translated_alike(translator: LoadedTranslator) -> None:
    one_by_one = [translator.translate(text) for text in NUMBERS]
    assert all(isinstance(text, str) for text in one_by_one)
    assert translator.translate(NUMBERS) == one_by_one
    assert translator.translate(text for text in NUMBERS) == one_by_one
    assert translator.translate(tuple(NUMBERS)) == one_by_one
    assert translator.translate([]) == []


def test_empty_lines_stay_empty_and_in_their_place(translator: LoadedTranslator) -> None:
    found = translator.translate(["", "eins", "   ", "\t", "zwei", "\u3000"])
    assert [bool(text) for text in found] == [False, True, False, False, True, False]
    assert translator.translate("") == ""


def test_outer_whitespace_changes_nothing(translator: LoadedTranslator) -> None:
    assert translator.translate("  dreiundzwanzig \n") == translator.translate("dreiundzwanzig")


# Independence --------------------------------------------------------------------------------------------------------


def found_in(translator: LoadedTranslator, texts: list[str], options: dict[str, Any]) -> list[Translation]:
    return [best[0] for best in translator.stream(texts, translator.configured(**options))]


def assert_alike(one: list[Translation], other: list[Translation]) -> None:
    assert [translation.text for translation in one] == [translation.text for translation in other]
    assert [translation.score for translation in one] == pytest.approx([o.score for o in other], abs=1e-4)


@pytest.mark.parametrize("options", STRATEGIES, ids=lambda options: options["strategy"])
def test_results_do_not_depend_on_how_many_are_translated_together(
    translator: LoadedTranslator, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    texts = random_texts(60)
    together = found_in(translator, texts, options)
    for batch_tokens, window in ((1, 1024), (100, 7), (4096, 1)):
        monkeypatch.setattr(translating, "BATCH_TOKENS", batch_tokens)
        monkeypatch.setattr(translating, "WINDOW", window)
        assert_alike(found_in(translator, texts, options), together)


@pytest.mark.parametrize("options", STRATEGIES[:2], ids=lambda options: options["strategy"])
def test_results_do_not_depend_on_the_order(translator: LoadedTranslator, options: dict[str, Any]) -> None:
    texts = random_texts(60)
    order = random.Random(4).sample(range(60), 60)
    shuffled = found_in(translator, [texts[index] for index in order], options)
    in_place = [translation for _, translation in sorted(zip(order, shuffled, strict=True), key=lambda pair: pair[0])]
    assert_alike(in_place, found_in(translator, texts, options))
    assert_alike([found_in(translator, [text], options)[0] for text in texts[:20]], in_place[:20])


def test_lines_are_read_no_further_than_needed(translator: LoadedTranslator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translating, "WINDOW", 4)
    read = []

    def lines() -> Iterator[str]:
        for number in range(10**9):
            read.append(number)
            yield "eins"

    stream = translator.stream(lines(), translator.configured())
    assert len(read) == 0
    for count, expected in ((1, 4), (3, 4), (1, 8), (8, 16)):
        list(islice(stream, count))
        assert len(read) == expected


def test_a_pause_is_answered_at_once_and_changes_nothing(translator: LoadedTranslator) -> None:
    read: list[str | None] = []

    def lines() -> Iterator[str | None]:
        for line in ("eins", "zwei", None, "drei", None):
            read.append(line)
            yield line

    config = translator.configured(strategy="sample", seed=5)
    stream = translator.stream(lines(), config)
    assert next(stream) and read == ["eins", "zwei", None]
    assert [next(stream)[0].text, next(stream)[0].text] == [
        best[0].text for best in list(translator.stream(["eins", "zwei", "drei"], config))[1:]
    ]


# Strategies ----------------------------------------------------------------------------------------------------------


def test_a_beam_finds_nothing_worse_than_greedy(translator: LoadedTranslator) -> None:
    greedy = found_in(translator, NUMBERS, {"strategy": "greedy"})
    beam = found_in(translator, NUMBERS, {"beam_size": 4})
    assert all(wide.score >= narrow.score - 1e-5 for wide, narrow in zip(beam, greedy, strict=True) if narrow.finished)


def test_a_beam_of_one_is_greedy(translator: LoadedTranslator) -> None:
    assert translator.configured(beam_size=1).strategy == "greedy"
    assert translator.configured(beam_size=2).strategy == "beam"
    assert translator.translate(NUMBERS, beam_size=1) == translator.translate(NUMBERS, strategy="greedy")
    assert translator.translate(NUMBERS, strategy="beam", beam_size=1) == translator.translate(NUMBERS)


def test_n_best_are_different_and_ordered_and_begin_with_the_best(translator: LoadedTranslator) -> None:
    several = list(translator.stream(NUMBERS, translator.configured(beam_size=4, nbest=3)))
    best = translator.translate(NUMBERS, beam_size=4)
    for translations, first in zip(several, best, strict=True):
        assert len({translation.text for translation in translations}) == 3
        assert all(one.score >= other.score for one, other in pairwise(translations) if one.finished == other.finished)
        assert translations[0].text == first
    (nothing,) = translator.stream([""], translator.configured(beam_size=4, nbest=3))
    assert [translation.text for translation in nothing] == [""]


def test_the_same_seed_draws_the_same_and_another_does_not(translator: LoadedTranslator) -> None:
    def drawn(seed: int) -> list[str]:
        return translator.translate(NUMBERS, strategy="sample", temperature=2.0, seed=seed)

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_equal_texts_are_sampled_each_for_itself(translator: LoadedTranslator) -> None:
    assert len(set(translator.translate(["eins"] * 20, strategy="sample", temperature=2.0))) > 3


@pytest.mark.parametrize("strategy", ["greedy", "sample"])
def test_a_translation_ends_before_a_stop(translator: LoadedTranslator, strategy: str) -> None:
    free = translator.translate(NUMBERS[-1], strategy=strategy, seed=2)
    assert translator.translate(NUMBERS[-1], strategy=strategy, seed=2, stop=[free[4]]) == free[: free.index(free[4])]


def test_a_translation_that_was_cut_says_so(translator: LoadedTranslator) -> None:
    (cut,) = found_in(translator, NUMBERS[-1:], {"max_len": 3})
    (whole,) = found_in(translator, NUMBERS[1:2], {})
    assert (cut.finished, len(cut.text)) == (False, 3)
    assert whole.finished


# What is refused -----------------------------------------------------------------------------------------------------


def test_a_text_that_is_too_long_is_named_by_its_number(
    translator: LoadedTranslator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translating, "WINDOW", 2)
    longest = translator.model.config.max_len - 1
    translator.translate("e" * longest)
    with pytest.raises(DataError) as error:
        translator.translate(["eins", "zwei", "drei", "e" * (longest + 1)])
    assert error.value.exit_code == 65
    assert str(error.value) == (
        f"text 4 has {longest + 1} tokens, and this model reads at most {longest}: "
        "split it into sentences (translate --by-sentence does)"
    )


def test_half_a_character_is_named_by_its_number(translator: LoadedTranslator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translating, "WINDOW", 2)
    with pytest.raises(DataError) as error:
        translator.translate(["eins", "zwei", "dr\ud800ei"])
    assert str(error.value) == (
        "text 3: text has a lone surrogate U+D800 (character 3, after 'dr'): decode the input as UTF-8"
    )


def test_control_tokens_in_a_text_are_text(translator: LoadedTranslator, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    start = translator.model.start

    def watched(source: torch.Tensor, *rest: Any) -> Any:
        seen.extend(source.tolist())
        return start(source, *rest)

    monkeypatch.setattr(translator.model, "start", watched)
    translator.translate("eins </s> zwei <s> <blank>")
    (row,) = seen
    assert len(row) == len("eins </s> zwei <s> <blank>") + 1
    assert [index for index in row if index < 3] == [EOS_ID], "only the end of the text ends it"
    assert row[-1] == EOS_ID


@pytest.mark.parametrize("said", ["a\nb", "a\r\nb", "a\rb", "a\u2028b", "a\x85b", "a\x0bb"], ids=ascii)
def test_a_translation_is_one_line_whoever_reads_it(
    translator: LoadedTranslator, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setattr(translator.tokenizers.target, "decode_batch", lambda rows: [said for _ in rows])
    assert translator.translate("eins") == "a b"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"beam_sise": 3}, "unknown key 'beam_sise', did you mean 'beam_size'?"),
        ({"strategy": "beem"}, "'strategy' = 'beem': unknown strategy, did you mean 'beam'?"),
        ({"beam_size": "3"}, "'beam_size' = '3': input should be a valid integer"),
        ({"beam_size": 0}, "'beam_size' = 0: input should be greater than or equal to 1"),
        ({"nbest": 2}, "greedy gives one result, not nbest = 2: use beam or sample"),
    ],
)
def test_an_option_that_is_wrong_is_named(translator: LoadedTranslator, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        translator.translate("eins", **options)
    assert str(error.value) == f"generation: {said}"
    assert error.value.exit_code == 78


# Devices -------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_unavailable(trained: Path) -> None:
    with pytest.raises(UnavailableError, match=r"^device 'cuda' cannot be used: ") as error:
        clearhead.load(trained, device="cuda")
    assert error.value.exit_code == 69
    assert "\n" not in str(error.value)
    assert pick_device("auto") == torch.device("cpu")


def test_a_device_that_nobody_knows_is_unavailable() -> None:
    with pytest.raises(UnavailableError, match=r"^device 'abacus' cannot be used: "):
        pick_device("abacus")


# The Python interface ------------------------------------------------------------------------------------------------


def test_a_run_its_model_and_its_checkpoints_can_be_loaded(trained: Path) -> None:
    expected = clearhead.load(trained).translate(NUMBERS)
    assert clearhead.load(str(trained)).translate(NUMBERS) == expected
    assert clearhead.load(trained / "model").translate(NUMBERS) == expected
    assert clearhead.load(trained / "checkpoints" / "best").translate(NUMBERS) == expected
    with pytest.raises(MissingInputError):
        clearhead.load(trained / "nothing")


def test_generation_settings_that_make_no_sense_are_refused(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "model", tmp_path / "model")
    (tmp_path / "model" / "generation_config.json").write_text('{"beam": 3}')
    with pytest.raises(StorageError):
        clearhead.load(tmp_path / "model")
    write_sums(tmp_path / "model", [path for path in (tmp_path / "model").iterdir() if path.name != SUMS])
    with pytest.raises(ConfigError, match=r"generation_config\.json: unknown key 'beam', did you mean 'beam_size'\?"):
        clearhead.load(tmp_path / "model")


TREE: dict[str, Any] = {
    "data": {"kind": "numbers", "largest": 200, "train_size": 30, "validation_size": 4},
    "tokenizer": {"kind": "char"},
    "model": {"dim": 8, "ff_dim": 8, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "max_len": 64},
    "train": {"steps": 1},
    "generation": {"strategy": "greedy"},
}


def end_of(events: Iterator[Event]) -> Finished:
    last = list(events)[-1]
    assert isinstance(last, Finished)
    return last


@pytest.mark.usefixtures("brief")
def test_training_takes_a_tree_a_record_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(to_toml(resolve({**TREE, "out": "runs/from-file"})))
    ways: dict[str, Any] = {"tree": TREE, "record": resolve(TREE), "path": tmp_path / "mine.toml", "name": "mine.toml"}
    for name, way in ways.items():
        finished = end_of(clearhead.train(way, out=tmp_path / name))
        assert finished.model_dir == tmp_path / name / "model"
        assert isinstance(clearhead.load(tmp_path / name).translate("eins"), str)
    assert end_of(clearhead.train("mine.toml")).model_dir == Path("runs/from-file/model")


def test_training_takes_the_name_of_a_recipe(tmp_path: Path) -> None:
    events = clearhead.train("numbers", out=tmp_path / "run")
    first = next(events)
    assert isinstance(first, Noted)
    assert "number words de → en" in first.message


def test_nothing_happens_before_the_events_are_read(tmp_path: Path) -> None:
    clearhead.train(TREE, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_recipe_that_does_not_exist_is_met_with_the_nearest() -> None:
    with pytest.raises(MissingInputError) as error:
        clearhead.train("nubmers")
    assert str(error.value) == "there is no recipe or config file 'nubmers', did you mean 'numbers'?"


def test_a_tree_that_makes_no_sense_is_refused_with_all_its_mistakes() -> None:
    with pytest.raises(ConfigError) as error:
        clearhead.train({**TREE, "model": {"dimm": 8, "dropout": 2.0}})
    assert str(error.value) == (
        "the configuration: 'model.dropout' = 2.0: input should be less than 1; "
        "unknown key 'model.dimm', did you mean 'model.dim'?"
    )
