"""The view says what the tape says, within half a step of its encoding, in plain JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from clearhead.inspection import view as views
from clearhead.inspection.ablation import ablated, prune_heads
from clearhead.inspection.generation import forced_steps
from clearhead.inspection.measures import BROAD, HABITS, MEASURES
from clearhead.inspection.names import all_heads
from clearhead.inspection.record import Forced, teacher_forced
from clearhead.inspection.view import ENCODINGS, Facts, Generation, build_view, packed, stacked, unpacked
from clearhead.models.translator import Translator
from clearhead.text.tokenizer import TokenizerPair

TEXT, WRITTEN = "Haus 我, <b>", "a house</s>"


def forced_by(model: Translator, tokenizers: TokenizerPair) -> Forced:
    return teacher_forced(model, tokenizers, tokenizers.source.encode(TEXT), tokenizers.target.encode(WRITTEN))


def viewed(model: Translator, tokenizers: TokenizerPair, **facts: Any) -> tuple[Forced, dict[str, Any]]:
    forced = forced_by(model, tokenizers)
    generation = Generation(forced_steps(forced.log_probs, forced.written))
    known = Facts("name", "translator", 7, TEXT, WRITTEN, "de", None, **facts)
    view = build_view(forced.tape, known, tokenizers.target, generation)
    return forced, json.loads(json.dumps(view, ensure_ascii=True, allow_nan=False))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_packed_weight_is_off_by_half_a_step_at_most(encoding: str) -> None:
    weights = torch.rand(3, 4, 5, 6, generator=torch.Generator().manual_seed(0))
    weights[0], weights[1] = 0.0, 1.0
    found = unpacked({"encoding": encoding, "data": packed(weights, encoding)}, 3, 4, 5, 6)
    assert float((found - weights).abs().max()) <= 0.5 / ENCODINGS[encoding][1] + 1e-7
    assert torch.equal(found[:2], weights[:2]), "nothing and everything stay what they are"


def test_every_block_holds_the_weights_of_the_tape(make: Callable[..., Translator], tokenizers: TokenizerPair) -> None:
    forced, view = viewed(make(), tokenizers)
    assert (view["format"], view["version"]) == ("clearhead-view", 1)
    assert [block["kind"] for block in view["attention"]] == ["encoder", "decoder", "cross"]
    for block in view["attention"]:
        shape = (block["layers"], block["heads"], *(len(view["tokens"][block[side]]) for side in ("queries", "keys")))
        found = unpacked(block, *shape)
        expected = torch.stack([look.weights[0] for look in forced.tape.of(block["kind"])])
        assert float((found - expected).abs().max()) <= 0.5 / 65535 + 1e-7
        assert block["causal"] == (block["kind"] == "decoder")
    rolled = unpacked(view["rollout"], *[len(view["tokens"]["source"])] * 2)
    torch.testing.assert_close(rolled.sum(-1), torch.ones(len(rolled)), atol=1e-3, rtol=0)


def test_tokens_words_and_texts_fit_together(make: Callable[..., Translator], tokenizers: TokenizerPair) -> None:
    _, view = viewed(make(), tokenizers)
    source, target, read = (view["tokens"][side] for side in ("source", "target", "read"))
    assert (target[-1]["text"], target[-1]["special"], read[0]["text"]) == ("</s>", True, "<s>")
    assert "".join(token["text"] for token in target[:-1]) == "a▁house</s>", "typed, it is text"
    assert not any(token["special"] for token in target[:-1])
    assert len(target) == len(read)
    assert len({token["word"] for token in source if "\\x" in token["text"]}) == 1, "bytes of one character"
    words = {token["word"] for token in source if not token["special"]}
    assert {link["source"] for link in view["alignment"]} <= words and set(view["unseen"]) <= words
    assert {link["target"] for link in view["alignment"]} == {t["word"] for t in target if not t["special"]}
    assert view["texts"] == {"source": TEXT, "target": WRITTEN}
    assert view["languages"] == {"source": "de", "target": None}


def test_every_head_has_its_measures(make: Callable[..., Translator], tokenizers: TokenizerPair) -> None:
    model = make()
    _, view = viewed(model, tokenizers)
    assert view["measures"] == list(MEASURES)
    assert len(view["heads"]) == 3 * 2 * 4
    assert sorted(head["name"] for head in view["heads"]) == sorted(head.name for head in all_heads(model))
    for head in view["heads"]:
        assert set(head["measures"]) <= set(MEASURES) and all(map(math.isfinite, head["measures"].values()))
        assert head["label"] is None or head["label"]["code"] in {*HABITS, *BROAD, "everywhere"}


def test_steps_point_at_their_tokens(make: Callable[..., Translator], tokenizers: TokenizerPair) -> None:
    forced, view = viewed(make(), tokenizers)
    steps = view["generation"]["steps"]
    assert [step["token"] for step in steps] == list(range(len(view["tokens"]["target"])))
    for step, token in zip(steps, view["tokens"]["target"], strict=True):
        (chosen,) = [one for one in step["candidates"] if one["chosen"]]
        assert chosen["text"] == token["text"] and chosen["probability"] == step["probability"]
    expected = [float(row[index].exp()) for row, index in zip(forced.log_probs, forced.written, strict=True)]
    assert [step["probability"] for step in steps] == pytest.approx(expected, rel=1e-5)
    assert view["generation"]["tree"] == [] and view["generation"]["hypotheses"] == []


def test_too_many_weights_take_one_byte_each(
    make: Callable[..., Translator], tokenizers: TokenizerPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "MOST_WEIGHTS", 100)
    _, view = viewed(make(), tokenizers)
    assert {block["encoding"] for block in view["attention"]} == {"u8"}
    # 200 x 200 tokens, 6 layers x 8 heads: one byte each is below the 15 MB of a page, two would be above.
    cells = 3 * 6 * 8 * 200 * 200
    assert cells * 4 / 3 < 15e6 < 2 * cells * 4 / 3 and cells > 2_500_000


def test_heads_that_are_off_do_not_speak_for_the_rest(
    make: Callable[..., Translator], tokenizers: TokenizerPair
) -> None:
    model = make()
    with ablated(model, "encoder.1.self", "decoder.0.cross.1") as silent:
        forced, view = viewed(model, tokenizers, ablated=("encoder.1.self", "decoder.0.cross.1"), silent=silent)
    assert view["ablated"] == ["encoder.1.self", "decoder.0.cross.1"]
    own = torch.eye(len(view["tokens"]["source"]))
    expected = (own + stacked(forced.tape, "encoder")[0].mean(0)) / 2
    found = unpacked(view["rollout"], *own.shape)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def test_pruned_heads_leave_a_gap_and_no_entry(make: Callable[..., Translator], tokenizers: TokenizerPair) -> None:
    smaller = prune_heads(make(), ["decoder.0.cross.1", "decoder.1.cross.0", "decoder.1.cross.3"])
    forced, view = viewed(smaller, tokenizers)
    block = next(block for block in view["attention"] if block["kind"] == "cross")
    assert (block["layers"], block["heads"]) == (2, 4)
    whole = stacked(forced.tape, "cross")
    assert float(whole[0, 1].sum()) == float(whole[1, [0, 3]].sum()) == 0.0 < float(whole[0, 0].sum())
    named = [(head["layer"], head["head"]) for head in view["heads"] if head["kind"] == "cross"]
    assert named == [(0, 0), (0, 2), (0, 3), (1, 1), (1, 2)]
