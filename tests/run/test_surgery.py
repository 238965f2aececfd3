"""What heads are worth: equal to taking each out by hand, noted as it goes, and not done twice."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib.image
import pytest
import torch

import clearhead
from clearhead.data.numbers import spell
from clearhead.errors import DataError, WouldOverwriteError
from clearhead.inspection.ablation import ablated
from clearhead.run import weighing
from clearhead.run.surgery import Effect, importance, prune, save_importance
from clearhead.run.translating import LoadedTranslator
from clearhead.run.weighing import Translations, mean_loss

pytestmark = pytest.mark.usefixtures("unchecked")

PAIRS = [(spell(number, "de"), spell(number, "en")) for number in (3, 21, 70, 99, 123, 45)]
NAMES = [f"{part}.{head}" for part in ("encoder.0.self", "decoder.0.self", "decoder.0.cross") for head in (0, 1)]


@pytest.fixture(scope="module")
def translator(trained: Path) -> LoadedTranslator:
    return clearhead.load(trained)


def weighed(translator: LoadedTranslator, notes: Path, pairs: list[tuple[str, str]] = PAIRS) -> list[Effect]:
    return list(importance(translator.model, trial(translator, pairs), notes))


def trial(translator: LoadedTranslator, pairs: list[tuple[str, str]] = PAIRS) -> Translations:
    return Translations(translator, pairs, translator.configured(beam_size=1))


def test_the_loss_of_a_batch_is_that_of_its_pairs_one_by_one(
    translator: LoadedTranslator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weighing, "LOSS_TOKENS", 60)
    tokens = [len(target) + 1 for _, target in PAIRS]
    sums = [translator.inspect(*pair).loss * count for pair, count in zip(PAIRS, tokens, strict=True)]
    assert mean_loss(translator, PAIRS) == pytest.approx(sum(sums) / sum(tokens), abs=1e-5)
    assert mean_loss(translator, [*PAIRS, ("e" * 50, "e")]) == pytest.approx(mean_loss(translator, PAIRS))
    with pytest.raises(DataError, match="no pair is short enough"):
        mean_loss(translator, [("e" * 50, "e")])


def test_every_head_is_weighed_against_the_whole_model(translator: LoadedTranslator, tmp_path: Path) -> None:
    effects = weighed(translator, tmp_path / "notes.jsonl")
    assert [effect.name for effect in effects] == NAMES
    whole = mean_loss(translator, PAIRS)
    with ablated(translator.model, NAMES[-1]):
        without = mean_loss(translator, PAIRS)
    assert effects[-1].changes["loss"] == pytest.approx(without - whole) and abs(without - whole) > 1e-3
    bleus = {round(effect.values["bleu"] - effect.changes["bleu"], 6) for effect in effects}
    assert len(bleus) == 1, "all are compared with the same whole"


def test_what_was_done_before_an_interruption_is_not_done_again(
    translator: LoadedTranslator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = weighed(translator, tmp_path / "whole.jsonl")
    notes = tmp_path / "notes.jsonl"
    running = importance(translator.model, trial(translator), notes)
    assert [next(running), next(running)] == whole[:2]
    running.close()
    with notes.open("a") as file:
        file.write('{"name": "decoder.0.self.0", "lo')
    calls: list[int] = []
    measure = mean_loss
    monkeypatch.setattr(weighing, "mean_loss", lambda *given: calls.append(1) or measure(*given))
    assert weighed(translator, notes) == whole
    assert len(calls) == 4, "two heads and the whole model were there already"
    assert weighed(translator, notes) == whole and len(calls) == 4
    lines = [json.loads(line) for line in notes.read_text().splitlines()]
    assert len(lines) == 8 and "fingerprint" in lines[0]


def test_notes_of_other_data_are_not_mixed_in(translator: LoadedTranslator, tmp_path: Path) -> None:
    weighed(translator, tmp_path / "notes.jsonl", PAIRS[:1])
    with pytest.raises(WouldOverwriteError, match=r"notes.jsonl has results of another model or other data: remove it"):
        weighed(translator, tmp_path / "notes.jsonl")
    with pytest.raises(DataError, match="no pairs"):
        weighed(translator, tmp_path / "none.jsonl", [])


@pytest.mark.parametrize("ending", ["tsv", "json", "png", "jsonl"])
def test_nothing_of_anybody_else_is_overwritten(translator: LoadedTranslator, tmp_path: Path, ending: str) -> None:
    other = tmp_path / f"dev.{ending}"
    other.write_bytes(b'{"text": "eins"}\n\xff\n')
    with pytest.raises(WouldOverwriteError, match=rf"dev.{ending} exists already: remove it, or change"):
        weighed(translator, tmp_path / "dev.jsonl")
    assert other.read_bytes() == b'{"text": "eins"}\n\xff\n' and list(tmp_path.iterdir()) == [other]


def test_results_are_a_table_a_tree_and_a_picture(tmp_path: Path) -> None:
    effects = [
        Effect(name, {"loss": 1.5, "bleu": 20.0}, {"loss": 0.25 * place, "bleu": -1.0})
        for place, name in enumerate(NAMES)
    ]
    table, tree, picture = save_importance(tmp_path / "worth.tsv", effects, Translations.measures)
    rows = [line.split("\t") for line in table.read_text().splitlines()]
    assert rows[0] == ["name", "loss", "bleu", "loss_change", "bleu_change"] and len(rows) == 7
    assert rows[2] == ["encoder.0.self.1", "1.500000", "20.000000", "0.250000", "-1.000000"]
    assert json.loads(tree.read_text())[1]["loss_change"] == 0.25
    assert matplotlib.image.imread(picture).shape[1] > 300


def test_a_pruned_directory_translates_like_the_ablated_model(
    trained: Path, translator: LoadedTranslator, tmp_path: Path
) -> None:
    before, after = prune(trained, ["decoder.0.cross.0", "encoder.0.self.1"], tmp_path / "small")
    assert before - after == 2 * (4 * 16 * 32 + 3 * 16)
    smaller = clearhead.load(tmp_path / "small")
    with ablated(translator.model, "decoder.0.cross.0", "encoder.0.self.1"):
        expected = [translator.inspect(source, target).loss for source, target in PAIRS]
        said = translator.translate([source for source, _ in PAIRS])
    found = [smaller.inspect(source, target).loss for source, target in PAIRS]
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), atol=1e-5, rtol=1e-5)
    assert smaller.translate([source for source, _ in PAIRS]) == said
    assert "Pruned heads: decoder.0.cross.0" in (tmp_path / "small" / "README.md").read_text()
    with pytest.raises(WouldOverwriteError, match=r"small exists: choose another --out"):
        prune(trained, ["decoder.0.cross.0"], tmp_path / "small")
