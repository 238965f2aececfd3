"""CTranslate2 says what torch says, in every variant that it can express, and the rest is refused with the reason."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.export import making
from tests.export.making import made, texts

from clearhead.engines.ctranslate2 import LOT, CTranslate2Engine, first_loop
from clearhead.engines.opening import open_exported
from clearhead.engines.texts import ExportedTranslator
from clearhead.errors import UnavailableError
from clearhead.export.ctranslate2 import ACTIVATIONS, write_translator
from clearhead.generate.constraints import LoopGuard
from clearhead.generate.settings import GenerationConfig
from clearhead.nn.feedforward import FEED_FORWARDS
from clearhead.nn.norms import NORMS
from clearhead.nn.positions import POSITIONS
from clearhead.run.exporting import Original
from clearhead.run.translating import LoadedTranslator

pytest.importorskip("ctranslate2", reason="needs CTranslate2: pip install 'clearhead[export]'")
pytestmark = pytest.mark.usefixtures("unchecked")

VARIANTS: list[dict[str, Any]] = [
    *({"residual": residual, "tie": tie} for residual in ("pre", "post") for tie in ("none", "target", "all")),
    *({"positions": positions} for positions in POSITIONS),
    *({"feedforward": feedforward, "residual": "post"} for feedforward in FEED_FORWARDS),
    *({"norm": norm, "decoder_norm": other} for norm, other in (("rms", None), ("layer", "rms"), ("rms", "layer"))),
    *({"num_kv_heads": count, "positions": "rotary"} for count in (1, 2)),
    *({"window": 3, "positions": positions} for positions in ("none", "rotary", "alibi")),
    {"prune": ("encoder.0.self.1", "decoder.1.cross.0", "decoder.0.self.3"), "positions": "alibi"},
    {"prune": ("decoder.1.self.2", "decoder.1.self.3"), "num_kv_heads": 2},
    {"joint": False, "tie": "target"},
    {"output_bias": True, "scale_embeddings": False},
    {"num_heads": 3, "dim": 15, "positions": "rotary"},
    {"num_heads": 3, "dim": 12, "positions": "alibi", "encoder_layers": 1, "decoder_layers": 3},
]


def exported(translator: LoadedTranslator, directory: Path, quantize: str | None = None) -> ExportedTranslator:
    found = making.exported(translator, "ctranslate2", directory, quantize, threads=1)
    assert isinstance(found, ExportedTranslator)
    return found


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join(f"{k}-{v}" for k, v in v.items()))
def test_scores_and_greedy_output_are_torchs(variant: dict[str, Any], tmp_path: Path) -> None:
    translator = made(**variant)
    copy = exported(translator, tmp_path / "model")
    original = Original(translator)
    for text in texts(6):
        (source,) = translator.encode([text], 0)
        target = translator.search([source], translator.generation)[0][0].ids
        np.testing.assert_allclose(copy.engine.logits(source, target), original.logits(text, target), atol=2e-5)
    assert_alike(translator, copy, texts(24))


def assert_alike(translator: LoadedTranslator, copy: ExportedTranslator, sources: list[str], **options: Any) -> None:
    config = translator.configured(**options)
    ours, theirs = list(translator.stream(sources, config, 1)), list(copy.stream(sources, config))
    assert [[one.text for one in best] for best in theirs] == [[one.text for one in best] for best in ours]
    for one, other in zip(ours, theirs, strict=True):
        assert [found.finished for found in one] == [found.finished for found in other]
        assert [found.score for found in one] == pytest.approx([found.score for found in other], abs=1e-3)
        assert [found.log_prob for found in one] == pytest.approx([found.log_prob for found in other], abs=1e-2)


@pytest.mark.parametrize("residual", ["pre", "post"])
@pytest.mark.parametrize("tie", ["none", "all"])
def test_a_thousand_sentences_in_four_shapes_come_out_as_from_torch(residual: str, tie: str, tmp_path: Path) -> None:
    translator = made(residual=residual, tie=tie, seed=11, encoder_layers=1, decoder_layers=1)
    assert_alike(translator, exported(translator, tmp_path / "model"), texts(250), max_len=12)


@pytest.mark.parametrize(
    "options",
    [
        {"min_len": 6},
        {"no_repeat_ngram": 2},
        {"max_len": 4},
        {"loop_guard": False, "max_len_ratio": 0.5, "max_len_extra": 2},
        {"min_len": 9, "max_len_ratio": 0.2, "max_len_extra": 3},
        {"length_penalty": 0.0},
        {"patience": 2.0},
    ],
    ids=str,
)
def test_every_setting_is_followed(options: dict[str, Any], tmp_path: Path) -> None:
    translator = made(seed=3)
    copy = exported(translator, tmp_path / "model")
    assert_alike(translator, copy, ["", *texts(20), "  "], **options)


def test_random_models_run_in_circles_and_are_stopped_as_in_torch(tmp_path: Path) -> None:
    guarded = 0
    for seed in range(4):
        translator = made(seed=seed, tie="all", kind="bpe")
        copy = exported(translator, tmp_path / f"model-{seed}")
        sources = [*texts(12), "ababababab", "aaaaaaaaaaaa"]
        assert_alike(translator, copy, sources)
        free = translator.translate(sources, loop_guard=False)
        guarded += sum(one != other for one, other in zip(translator.translate(sources), free, strict=True))
    assert guarded > 10, "the guard had something to do"


def test_what_is_unwanted_is_not_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = exported(made(seed=1, tie="all", kind="bpe"), tmp_path / "model")
    engine = copy.engine
    assert isinstance(engine, CTranslate2Engine)
    sources = [copy.tokenizers.source.encode(text) for text in texts(12)]
    asked, plain = [], engine._ask
    monkeypatch.setattr(engine, "_ask", lambda rows, *rest, **how: asked.append(len(rows)) or plain(rows, *rest, **how))
    whole = engine.search(sources, copy.generation, range(12))
    assert len(asked) > 1, "some broke a rule"
    asked.clear()
    gone = {*range(0, 12, 2)}
    some = engine.search(sources, copy.generation, range(12), lambda: gone)
    assert [best[0].ids for best in some[1::2]] == [best[0].ids for best in whole[1::2]]
    asked.clear()
    engine.search(sources, copy.generation, range(12), lambda: range(12))
    assert asked == [12]


def test_greedily_what_nobody_waits_for_ends_at_the_next_token(tmp_path: Path) -> None:
    copy = exported(made(seed=1, tie="all", kind="bpe"), tmp_path / "model")
    sources = [copy.tokenizers.source.encode(text) for text in texts(12)]
    config = copy.configured(beam_size=1, loop_guard=False)
    whole = copy.engine.search(sources, config, range(12))
    assert min(len(best[0].ids) for best in whole[::2]) > 5
    asked = []

    def unwanted() -> list[int]:
        asked.append(True)
        return [*range(0, 12, 2)] if len(asked) > 24 else []

    some = copy.engine.search(sources, config, range(12), unwanted)
    # Each token is asked about: the first two of each row are still wanted, and the third is its last.
    for row, (best, same) in enumerate(zip(some, whole, strict=True)):
        assert best[0].ids == (same[0].ids[:3] if row % 2 == 0 else same[0].ids)


def test_a_loop_is_found_where_the_guard_of_torch_finds_it() -> None:
    import torch

    chance = np.random.default_rng(2)
    for repeats, span in ((2, 1), (3, 1), (2, 7)):
        guard = LoopGuard(torch.tensor([repeats]), span)
        found = 0
        for _ in range(150):
            ids = chance.integers(0, 2, 14).tolist()
            loop = first_loop(ids, repeats, span)
            stopped = [end for end in range(len(ids)) if _bans(guard, ids[:end], ids[end])]
            assert (loop is None) == (not stopped)
            if loop is not None:
                found += 1
                end = stopped[0] + 1
                assert loop == ids[end - len(loop) : end]
        assert found > 5


def _bans(guard: LoopGuard, history: list[int], token: int) -> bool:
    import torch

    log_probs = torch.zeros(1, 2)
    guard.ban(log_probs, torch.tensor([history], dtype=torch.long).view(1, -1), torch.tensor([0]))
    return bool(log_probs[0, token].isneginf())


def test_a_beam_is_no_worse_and_its_scores_are_the_models(tmp_path: Path) -> None:
    translator = made(seed=1)
    copy = exported(translator, tmp_path / "model")
    config = translator.configured(beam_size=4, nbest=3, loop_guard=False)
    greedy = list(translator.stream(texts(16), translator.configured(beam_size=1, loop_guard=False), 1))
    for best, narrow in zip(copy.stream(texts(16), config), greedy, strict=True):
        assert 1 <= len(best) <= 3
        assert len({one.text for one in best}) == len(best)
        assert [one.score for one in best if one.finished] == sorted(
            (o.score for o in best if o.finished), reverse=True
        )
        assert best[0].score >= narrow[0].score - 1e-4 or not narrow[0].finished


def test_int8_takes_a_quarter_of_the_space_and_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    translator = made(dim=64, ff_dim=256)
    before = translator.translate(texts(8))
    exported(translator, tmp_path / "float")
    copy = exported(translator, tmp_path / "int8", "int8")
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("float", "int8")]
    assert sizes[1] < 0.35 * sizes[0]
    assert translator.translate(texts(8)) == before
    original, target = Original(translator), (5, 6, 7, 8)
    (source,) = translator.encode(["abcdef"], 0)
    apart = np.abs(copy.engine.logits(source, target) - original.logits("abcdef", target)).max()
    assert 0 < apart < 1.0


def test_a_model_of_one_sentence_is_a_directory_that_ctranslate2_reads_by_itself(tmp_path: Path) -> None:
    import ctranslate2

    translator = made()
    exported(translator, tmp_path / "model")
    tokens = translator.tokenizers.source.tokens()
    (source,) = translator.encode(["abc"], 0)
    plain = ctranslate2.Translator(str(tmp_path / "model"))
    (result,) = plain.translate_batch([[tokens[index] for index in source]], beam_size=1, max_decoding_length=5)
    assert "".join(result.hypotheses[0]).startswith(translator.translate("abc", max_len=5, loop_guard=False)[:3])


REFUSED: list[tuple[dict[str, Any], str]] = [
    *(({"norm": norm, "decoder_norm": "layer"}, f"it has no norm '{norm}' (only layer, rms)") for norm in NORMS
      if norm not in ("layer", "rms")),
    ({"residual": "none"}, "it always has a way around a sublayer, and residual is 'none'"),
    ({"window": 4}, "it cannot combine a window with sinusoidal positions"),
    ({"window": 4, "positions": "learned"}, "it cannot combine a window with learned positions"),
]  # fmt: skip


@pytest.mark.parametrize(("variant", "reason"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_cannot_be_expressed_is_refused_with_the_reason(
    variant: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    translator = made(**variant)
    with pytest.raises(UnavailableError) as error:
        write_translator(translator.model, translator.tokenizers, tmp_path, None)
    assert str(error.value) == f"CTranslate2 cannot express this model: {reason}; --to onnx can"
    assert list(tmp_path.iterdir()) == []


def test_every_feed_forward_is_known() -> None:
    assert set(FEED_FORWARDS) <= set(ACTIVATIONS)


def test_sampling_is_left_to_other_engines(tmp_path: Path) -> None:
    copy = exported(made(), tmp_path / "model")
    with pytest.raises(UnavailableError, match="CTranslate2 cannot draw the same twice from one seed"):
        copy.translate("abc", strategy="sample")


def test_a_device_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    exported(made(), tmp_path / "model")
    with pytest.raises(UnavailableError, match=r"^device 'abacus' cannot be used: "):
        open_exported(tmp_path / "model", "abacus", sealed=False)


def test_the_result_does_not_depend_on_the_company(tmp_path: Path) -> None:
    copy = exported(made(seed=2), tmp_path / "model")
    assert isinstance(copy.engine, CTranslate2Engine)
    sources = texts(40)
    together = copy.translate(sources)
    assert [copy.translate(text) for text in sources] == together
    assert copy.translate(sources[::-1]) == together[::-1]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_what_runs_in_circles_does_not_depend_on_the_company_nor_on_scores(beam_size: int, tmp_path: Path) -> None:
    copy = exported(made(seed=1, tie="all", kind="bpe"), tmp_path / "model")
    sources = copy.encode(texts(48), 0)
    guarded, free = (copy.configured(beam_size=beam_size, loop_guard=guard) for guard in (True, False))

    def said(rows: Sequence[list[int]], config: GenerationConfig, *, scored: bool = True) -> list[tuple[int, ...]]:
        return [best[0].ids for best in copy.engine.search(rows, config, range(len(rows)), scored=scored)]

    together = said(sources, guarded)
    loops = sum(one != other for one, other in zip(together, said(sources, free), strict=True))
    assert loops > LOT, "whole lots were asked again"
    assert [said([ids], guarded)[0] for ids in sources] == together
    assert said(sources, guarded, scored=False) == together
    (unscored,) = copy.engine.search(sources[:1], guarded, [0], scored=False)[0]
    assert math.isnan(unscored.score)
