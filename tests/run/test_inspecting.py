"""A loaded translator can be looked into, and what it shows goes into files of every kind."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

import clearhead
from clearhead.errors import ConfigError, DataError, StorageError, UnavailableError, UsageError
from clearhead.run.inspecting import Inspection
from clearhead.run.translating import LoadedTranslator

pytestmark = pytest.mark.usefixtures("unchecked")


@pytest.fixture(scope="module")
def translator(trained: Path) -> LoadedTranslator:
    return clearhead.load(trained)


@pytest.fixture(scope="module")
def found(translator: LoadedTranslator) -> Inspection:
    return translator.inspect("siebzig", strategy="beam", beam_size=3)


def test_it_shows_the_translation_that_it_makes(translator: LoadedTranslator, found: Inspection) -> None:
    assert found.translation == translator.translate("siebzig", beam_size=3)
    assert found.view["texts"] == {"source": "siebzig", "target": found.translation}
    assert found.view["languages"] == {"source": None, "target": None}
    assert found.view["model"]["name"] == "run"
    assert found.view["model"]["parameters"] == sum(p.numel() for p in translator.model.parameters())
    generation = found.view["generation"]
    assert generation["hypotheses"][0]["text"] == found.translation
    assert {node["fate"] for node in generation["tree"]} >= {"winner", "dropped"}
    assert len(generation["steps"]) == len(found.view["tokens"]["target"])


def test_led_to_a_target_it_says_how_likely_that_is(translator: LoadedTranslator, found: Inspection) -> None:
    led = translator.inspect("siebzig", found.translation)
    other = translator.inspect("siebzig", "zzz")
    assert led.loss == pytest.approx(found.loss, abs=1e-5) and other.loss > led.loss
    assert led.view["generation"]["tree"] == [] and len(led.view["generation"]["steps"]) == len(found.translation) + 1


@pytest.mark.parametrize("how", [{"kind": "merge", "r": 2}, {"kind": "prune", "threshold": 1.0}], ids=str)
def test_fewer_tokens_of_the_source_are_told_of_all_and_their_trail_is_drawn(
    trained: Path, found: Inspection, how: dict[str, object], tmp_path: Path
) -> None:
    fewer = clearhead.load(trained)
    fewer.reduce(**how)
    looked = fewer.inspect("siebzig", strategy="beam", beam_size=3)
    assert looked.translation == fewer.translate("siebzig", beam_size=3)
    assert looked.trail is not None and looked.trail.left()[-1] < len("siebzig") + 1
    assert looked.view["tokens"]["source"] == found.view["tokens"]["source"]
    for kind in ("encoder", "cross"):
        assert looked.tape.of(kind)[0].weights.shape[3] == len("siebzig") + 1
    led = fewer.inspect("siebzig", looked.translation)
    assert led.loss == pytest.approx(looked.loss, abs=1e-5)
    for path in (looked.save(tmp_path / "heads.png", heads="cross"), looked.save_trail(tmp_path / "trail.png")):
        assert path.stat().st_size > 500


def test_without_heads_it_says_something_else(translator: LoadedTranslator, found: Inspection) -> None:
    without = translator.inspect("siebzig", found.translation, ablate=["decoder.0.cross"])
    assert without.view["ablated"] == ["decoder.0.cross"] and without.loss > found.loss + 0.1
    assert translator.inspect("siebzig", found.translation).loss == pytest.approx(found.loss, abs=1e-5)
    with pytest.raises(ConfigError, match=r"no head or layer 'decoder\.0\.croos'"):
        translator.inspect("siebzig", ablate=["decoder.0.croos"])


def test_a_cut_translation_is_shown_as_far_as_it_goes(translator: LoadedTranslator) -> None:
    cut = translator.inspect("hundertsiebenundachtzig", strategy="beam", beam_size=2, max_len=3)
    assert len(cut.view["tokens"]["target"]) == 3 and not cut.view["generation"]["hypotheses"][0]["finished"]
    assert not any(token["special"] for token in cut.view["tokens"]["target"])


@pytest.mark.parametrize("search", [{"strategy": "greedy"}, {"strategy": "beam", "beam_size": 3}], ids=str)
def test_a_translation_that_was_told_to_stop_is_shown_up_to_there(
    translator: LoadedTranslator, found: Inspection, search: dict[str, Any]
) -> None:
    stop = [found.translation[2]]
    stopped = translator.inspect("siebzig", stop=stop, **search)
    assert stopped.translation == translator.translate("siebzig", stop=stop, **search) == found.translation[:2]
    generation = stopped.view["generation"]
    assert generation["hypotheses"][0]["finished"]
    assert len([node for node in generation["tree"] if node["fate"] == "winner"]) == len(generation["steps"])


def test_json_is_the_view_in_plain_ascii(found: Inspection, tmp_path: Path) -> None:
    text = found.save(tmp_path / "view.json").read_text(encoding="ascii")
    assert json.loads(text) == found.view


def test_tensors_have_the_names_and_shapes_that_bertviz_takes(found: Inspection, tmp_path: Path) -> None:
    with safe_open(found.save(str(tmp_path / "heads.safetensors")), "pt") as file:
        stacks = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        source, target = (json.loads(file.metadata()[name]) for name in ("encoder_tokens", "decoder_tokens"))
    assert source == [*"siebzig", "</s>"] and target[0] == "<s>"
    assert set(stacks) == {"encoder_attention", "decoder_attention", "cross_attention"}
    for name, rows, columns in (("encoder", source, source), ("decoder", target, target), ("cross", target, source)):
        stack = stacks[f"{name}_attention"]
        assert tuple(stack.shape) == (1, 1, 2, len(rows), len(columns))
        torch.testing.assert_close(stack[:, 0], torch.stack([look.weights[0] for look in found.tape.of(name)]))


@pytest.mark.parametrize(
    ("heads", "panels"), [("cross", 2), ("encoder.0", 2), ("decoder.0.self.1", 1), ("cross.0.1", 1)]
)
def test_pictures_show_the_heads_asked_for(found: Inspection, tmp_path: Path, heads: str, panels: int) -> None:
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none"}):
        svg = found.save(tmp_path / "heads.svg", heads=heads).read_text(encoding="utf-8")
    assert len(re.findall(r">(?:en|de)coder\.0\.(?:self|cross)\.\d<", svg)) == panels


def test_a_page_holds_the_whole_view(found: Inspection, tmp_path: Path) -> None:
    page = found.save(tmp_path / "page.html").read_text(encoding="utf-8")
    data = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert data is not None
    assert json.loads(data[1]) == json.loads(json.dumps(found.view))


def test_in_a_notebook_it_is_the_page(found: Inspection, monkeypatch: pytest.MonkeyPatch) -> None:
    assert repr(found) == f"Inspection('siebzig' → {found.translation!r})"
    shown = found._repr_mimebundle_(include=None, exclude=None)
    assert isinstance(shown, tuple) and "application/vnd.jupyter.widget-view+json" in shown[0]
    assert "srcdoc" in shown[0]["text/html"]

    def missing(view: object) -> None:
        raise UnavailableError("anywidget is not installed")

    monkeypatch.setattr("clearhead.run.inspecting.inspection_widget", missing)
    plain = found._repr_mimebundle_()
    assert isinstance(plain, dict) and plain["text/plain"] == repr(found)
    assert plain["text/html"] == shown[0]["text/html"], "the page is there all the same"


def test_what_cannot_be_looked_at_or_written_is_refused(
    translator: LoadedTranslator, found: Inspection, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="nothing to look at: the text is empty"):
        translator.inspect(" \n")
    with pytest.raises(DataError, match=r"the source has 40 tokens, and this model reads at most 39: split it"):
        translator.inspect("e" * 40)
    with pytest.raises(DataError, match=r"the target has 40 tokens"):
        translator.inspect("e", "e" * 40)
    with pytest.raises(UsageError, match=r"view.txt: a name that ends with one of .html, .png, .svg, .json"):
        found.save(tmp_path / "view.txt")
    with pytest.raises(StorageError, match=r"cannot write .*nowhere/view.json"):
        found.save(tmp_path / "nowhere" / "view.json")
    with pytest.raises(StorageError, match=r"cannot write .*nowhere/x.safetensors"):
        found.save(tmp_path / "nowhere" / "x.safetensors")
    with pytest.raises(ConfigError, match=r"did you mean 'cross.0'"):
        found.save(tmp_path / "x.png", heads="cros.0")
