"""CTranslate2 goes on with texts as torch does, in every variant that it can express, and past all that it sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.export.making import exported, made_gpt, texts

from clearhead.engines import ctranslate2_writing, writing
from clearhead.engines.ctranslate2_writing import CTranslate2Writer
from clearhead.engines.writing import ExportedWriter, TextWriter, first_seen
from clearhead.errors import StorageError, UnavailableError
from clearhead.export.ctranslate2 import write_gpt
from clearhead.nn.feedforward import FEED_FORWARDS
from clearhead.nn.norms import NORMS
from clearhead.nn.positions import POSITIONS
from clearhead.text.specials import EOS_ID, PAD_ID
from clearhead.text.tokenizer import TokenizerPair

pytest.importorskip("ctranslate2", reason="needs CTranslate2: pip install 'clearhead[export]'")
pytestmark = pytest.mark.usefixtures("unchecked")

VARIANTS: list[dict[str, Any]] = [
    *({"residual": residual, "tied": tied} for residual in ("pre", "post") for tied in (True, False)),
    *({"positions": positions} for positions in POSITIONS),
    *({"feedforward": feedforward, "residual": "post"} for feedforward in FEED_FORWARDS),
    {"norm": "rms"},
    {"norm": "rms", "residual": "post", "positions": "learned"},
    *({"num_kv_heads": count, "positions": positions} for count, positions in ((1, "rotary"), (2, "sinusoidal"))),
    {"prune": ("decoder.0.self.1", "decoder.1.self.0", "decoder.1.self.3"), "positions": "alibi"},
    {"scale_embeddings": False, "kind": "bpe"},
    {"num_heads": 3, "dim": 15, "positions": "rotary", "num_layers": 1},
    {"num_heads": 3, "dim": 12, "positions": "alibi", "num_layers": 1},
]
PROMPTS = ["", "a", "abc", "hijk", "LMNOP", "abcdefghijklmnopqrstuvwxyz0123"]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join(f"{k}-{v}" for k, v in v.items()))
def test_scores_and_greedy_output_are_torchs_past_all_that_is_seen(variant: dict[str, Any], tmp_path: Path) -> None:
    model = made_gpt(max_len=12, **variant)
    copy = exported(model, "ctranslate2", tmp_path / "model")
    for prompt in PROMPTS:
        ids = model.encode(prompt)
        said = model.search([ids], model.configured(strategy="greedy", length=20))[0][0].ids
        assert len(said) == 20
        np.testing.assert_allclose(copy.logits(ids, said), model.logits(ids, said), atol=2e-5)
    assert_alike(model, copy, PROMPTS, strategy="greedy", length=20)


def assert_alike(model: TextWriter, copy: TextWriter, prompts: list[str], **options: Any) -> None:
    config = model.configured(**options)
    ours, theirs = model.continuations(prompts, config), copy.continuations(prompts, config)
    assert [[one.text for one in best] for best in theirs] == [[one.text for one in best] for best in ours]
    for one, other in zip(ours, theirs, strict=True):
        assert [(found.tokens, found.is_stopped) for found in one] == [
            (found.tokens, found.is_stopped) for found in other
        ]
        assert [found.log_prob for found in one] == pytest.approx([found.log_prob for found in other], abs=1e-3)


@pytest.mark.parametrize(
    "options",
    [
        {"strategy": "greedy", "loop_guard": True},
        {"strategy": "greedy", "no_repeat_ngram": 2},
        {"seed": 3},
        {"seed": 4, "nbest": 3, "temperature": 0.5},
        {"top_k": 4, "min_p": 0.1, "seed": 1},
        {"temperature": 0.0},
        {"stop": ["e", "H"], "seed": 2},
        {"strategy": "beam", "beam_size": 3, "nbest": 2},
    ],
    ids=str,
)
def test_every_setting_is_followed_and_every_draw_is_torchs(options: dict[str, Any], tmp_path: Path) -> None:
    model = made_gpt(seed=3, max_len=16)
    copy = exported(model, "ctranslate2", tmp_path / "model")
    assert_alike(model, copy, PROMPTS[:4], length=24, **options)


def test_texts_are_as_surprising_as_in_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = made_gpt(positions="alibi", max_len=12)
    copy = exported(model, "ctranslate2", tmp_path / "model")
    chance = np.random.default_rng(1)
    inputs, answers = (chance.integers(4, model.tokenizer.vocab_size, (5, 12)) for _ in range(2))
    answers[3, 7:] = PAD_ID
    whole = copy.surprise(inputs, answers)
    np.testing.assert_allclose(whole, model.surprise(inputs, answers), rtol=1e-5)
    monkeypatch.setattr(writing, "SCORES", 1)
    np.testing.assert_allclose(copy.surprise(inputs, answers), whole, rtol=1e-5)


def test_a_stream_is_the_text_in_pieces(tmp_path: Path) -> None:
    copy = exported(made_gpt(kind="bpe"), "ctranslate2", tmp_path / "model")
    for options in ({"strategy": "greedy"}, {"seed": 5}, {"seed": 6, "stop": ["e"]}):
        whole = copy.generate("abc", length=30, **options)
        assert "".join(copy.stream("abc", length=30, **options)) == whole


def test_what_it_says_does_not_depend_on_the_company(tmp_path: Path) -> None:
    copy = exported(made_gpt(seed=2), "ctranslate2", tmp_path / "model")
    prompts = texts(30, 6)
    together = copy.generate(prompts, strategy="greedy", length=10)
    assert [copy.generate(prompt, strategy="greedy", length=10) for prompt in prompts] == together


def test_it_is_asked_only_where_it_guessed_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = exported(made_gpt(max_len=128), "ctranslate2", tmp_path / "model")
    assert isinstance(copy, ExportedWriter) and isinstance(copy.engine, CTranslate2Writer)
    calls, write = [], copy.engine._written
    monkeypatch.setattr(copy.engine, "_written", lambda ids, reach: calls.append(reach) or write(ids, reach))
    copy.generate("abc", strategy="greedy", length=100)
    assert calls == [32, 64, 30]
    calls.clear()
    copy.generate("abc", temperature=5.0, length=40)
    assert len(calls) > 20 and max(calls[1:]) <= 8


def test_what_nobody_follows_ends_at_its_next_token(tmp_path: Path) -> None:
    copy = exported(made_gpt(positions="rotary"), "ctranslate2", tmp_path / "model")
    assert isinstance(copy, ExportedWriter) and isinstance(copy.engine, CTranslate2Writer)
    one, other = copy.engine._written([[5, 6, 7], [7, 6, 5]], 1_000_000)
    far, left = one.at(9), other.at(9)
    # What was heard in between is what the whole says in the end.
    jobs = [one.job, other.job]
    other.is_left = True
    assert one.at(len(one._said) + 100)[1].shape == far[1].shape == left[1].shape
    del one
    said = [job.result() for job in jobs]
    assert all(10 <= len(result.sequences_ids[0]) < 1_000_000 for result in said)
    assert len(said[1].sequences_ids[0]) < len(said[0].sequences_ids[0])
    for (token, logits), result in zip((far, left), said, strict=True):
        assert result.sequences_ids[0][9] == token and result.sequences_ids[0][-1] != EOS_ID
        np.testing.assert_array_equal(np.array(result.logits[0][9]), logits)


def test_scores_that_are_not_heard_on_the_way_come_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = made_gpt()
    copy = exported(model, "ctranslate2", tmp_path / "model")
    monkeypatch.setattr(ctranslate2_writing, "_hearing", lambda rows: lambda step: False)
    assert copy.generate("abc", strategy="greedy", length=12) == model.generate("abc", strategy="greedy", length=12)


def test_the_window_is_the_models() -> None:
    for max_len in (2, 3, 7, 12, 64):
        model = made_gpt(max_len=max_len).model
        assert [first_seen(length, max_len) for length in range(200)] == [
            model.first_seen(length) for length in range(200)
        ]


def test_int8_takes_less_space_and_stays_near(tmp_path: Path) -> None:
    model = made_gpt(dim=64, ff_dim=256)
    exported(model, "ctranslate2", tmp_path / "float")
    copy = exported(model, "ctranslate2", tmp_path / "int8", "int8")
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("float", "int8")]
    assert sizes[1] < 0.4 * sizes[0]
    ids = model.encode("abcdef")
    apart = np.abs(copy.logits(ids, (5, 6, 7)) - model.logits(ids, (5, 6, 7))).max()
    assert 0 < apart < 1.0


def test_ctranslate2_reads_the_directory_by_itself(tmp_path: Path) -> None:
    import ctranslate2

    model = made_gpt()
    exported(model, "ctranslate2", tmp_path / "model")
    tokens = model.tokenizer.tokens()
    prompt = [tokens[index] for index in model.encode("abc")]
    plain = ctranslate2.Generator(str(tmp_path / "model"))
    (result,) = plain.generate_batch([prompt], max_length=4, include_prompt_in_result=False)
    said = model.tokenizer.decode(result.sequences_ids[0])
    assert model.generate("abc", strategy="greedy", length=4).startswith(said[:2])


REFUSED: list[tuple[dict[str, Any], str]] = [
    *(({"norm": norm}, f"it has no norm '{norm}' (only layer, rms)") for norm, kind in NORMS.items()
      if norm not in ("layer", "rms") and not kind.mixes_time),
    ({"residual": "none"}, "it always has a way around a sublayer, and residual is 'none'"),
    ({"window": 4, "positions": "sinusoidal"}, "it cannot combine a window with sinusoidal positions"),
    ({"window": 4, "positions": "learned"}, "it cannot combine a window with learned positions"),
    *(({"window": 4, "positions": positions}, "it has no window in language models")
      for positions in ("none", "rotary", "alibi")),
]  # fmt: skip


@pytest.mark.parametrize(("variant", "reason"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_cannot_be_expressed_is_refused_with_the_reason(
    variant: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    model = made_gpt(**variant)
    with pytest.raises(UnavailableError) as error:
        write_gpt(model.model, TokenizerPair(model.tokenizer, model.tokenizer), tmp_path, None)
    assert str(error.value) == f"CTranslate2 cannot express this model: {reason}; --to onnx can"
    assert list(tmp_path.iterdir()) == []


def test_damage_and_devices_are_one_line(tmp_path: Path) -> None:
    from clearhead.engines.opening import open_exported

    exported(made_gpt(), "ctranslate2", tmp_path / "model")
    with pytest.raises(UnavailableError, match=r"^device 'abacus' cannot be used: "):
        open_exported(tmp_path / "model", "abacus", sealed=False)
    (tmp_path / "model" / "model.bin").write_bytes(b"nothing")
    with pytest.raises(StorageError, match=r"^CTranslate2 cannot read "):
        open_exported(tmp_path / "model", sealed=False)
