"""A loaded language model: prompts do not disturb each other, streams say the same, stops stop."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.shared.shapes import unchecked_shapes

from clearhead.engines import writing
from clearhead.errors import ConfigError, DataError
from clearhead.generate.settings import GenerationConfig
from clearhead.models.gpt import Gpt, GptConfig
from clearhead.nn.positions import POSITIONS
from clearhead.run.continuing import LoadedGpt
from clearhead.text import BOS_ID, SPECIALS, Tokenizer, TokenizerConfig

TEXT = "to be, or not to be: that is the question.\nwhether 'tis nobler\n我吃了\n"
PROMPTS = ["to be", "", "a", "or", "that is the question", "be"]


@pytest.fixture(autouse=True)
def as_for_users() -> Any:
    with unchecked_shapes():
        yield


def made(kind: str = "char", texts: str = TEXT, **settings: Any) -> LoadedGpt:
    """A model with random weights: it says anything, but always the same."""
    tokenizer = Tokenizer.train(TokenizerConfig(kind=kind, vocab_size=275), [texts])
    torch.manual_seed(0)
    shape = {"dim": 16, "ff_dim": 32, "num_heads": 2, "num_layers": 2, "max_len": 12, **settings}
    # In double precision, so that how texts are put together cannot tip a draw.
    model = Gpt(GptConfig(vocab_size=tokenizer.vocab_size, **shape)).double()
    return LoadedGpt(model, tokenizer, GenerationConfig(strategy="sample", loop_guard=False))


@pytest.mark.parametrize("positions", POSITIONS)
def test_prompts_of_any_lengths_together_say_what_they_say_alone(positions: str) -> None:
    model = made(positions=positions)
    config = model.configured(length=20)
    ids = [model.encode(prompt) for prompt in PROMPTS]
    together = model.search(ids, config)
    for row, prompt in enumerate(ids):
        (alone,) = model.search([prompt], config, [row])
        assert [one.ids for one in alone] == [one.ids for one in together[row]]


def test_batches_are_cut_where_memory_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made()
    prompts = ["a", "b", "o", "t", "e"]
    whole = model.generate(prompts, length=10)
    monkeypatch.setattr(writing, "CACHED_TOKENS", 24)
    assert model.generate(prompts, length=10) == whole
    assert len(set(whole)) == 5


@pytest.mark.parametrize("kind", ["char", "bpe", "byte"])
@pytest.mark.parametrize("options", [{}, {"temperature": 0.0}, {"top_k": 3, "min_p": 0.1}, {"stop": ["e", "o "]}])
def test_a_stream_is_the_text_in_pieces(kind: str, options: dict[str, Any]) -> None:
    model = made(kind)
    for seed in range(3):
        pieces = list(model.stream("to be", length=40, seed=seed, **options))
        assert "".join(pieces) == model.generate("to be", length=40, seed=seed, **options)
        assert all(pieces)
    assert all(len(piece) < 20 for piece in pieces)


def test_a_stream_leaves_no_mode_behind() -> None:
    stream = made().stream("to be", length=5)
    next(stream)
    assert not torch.is_inference_mode_enabled()
    assert torch.is_grad_enabled()


def test_the_same_seed_says_the_same_and_another_something_else() -> None:
    model = made()
    assert model.generate("to be", length=30, seed=5) == model.generate("to be", length=30, seed=5)
    assert model.generate("to be", length=30, seed=5) != model.generate("to be", length=30, seed=6)


def test_samples_differ_and_fewer_are_some_of_more() -> None:
    model = made()
    many = model.samples("to be", 5, length=12)
    assert len(set(many)) == 5
    assert set(model.samples("to be", 2, length=12)) <= set(many)


def test_length_is_counted_in_tokens_and_may_pass_what_is_seen_at_once() -> None:
    model = made()
    assert len(model.generate("to be", length=50)) == 50
    assert len(model.generate("to be")) == model.model.config.max_len
    assert len(model.generate("to be" * 20, length=1)) == 1


def test_a_stop_ends_before_it_is_said() -> None:
    model = made()
    free = model.generate("to be", length=60)
    stop = free[20:22]
    place = free.index(stop)
    assert model.generate("to be", length=60, stop=[stop]) == free[:place]
    (found,) = model.continuations(["to be"], model.configured(length=60, stop=[stop, "never said"]))
    assert (found[0].text, found[0].is_stopped) == (free[:place], True)
    assert found[0].tokens == place + 2
    assert not model.continuations(["to be"], model.configured(length=5))[0][0].is_stopped


def test_a_beam_stops_too() -> None:
    model = made()
    free = model.generate("to be", length=12, strategy="beam", beam_size=3)
    found = model.generate("to be", length=12, strategy="beam", beam_size=3, stop=[free[3]])
    assert free[3] not in found


def test_control_tokens_are_never_written() -> None:
    model = made()
    hypotheses = model.search([[BOS_ID]] * 20, model.configured(length=30, temperature=5.0))
    assert not {index for row in hypotheses for one in row for index in one.ids} & set(range(len(SPECIALS)))


def test_without_a_prompt_a_new_line_begins() -> None:
    model = made()
    assert model.encode("") == model.encode("\n")
    assert model.generate(length=9) == model.generate("", length=9) == model.generate("\n", length=9)
    assert made(texts="no line end").encode("") == [BOS_ID]


def test_an_unseen_character_is_named() -> None:
    with pytest.raises(DataError) as error:
        made().generate("to bü")
    assert str(error.value) == "the prompt has a character that this model has never seen: 'ü' (character 5)"
    assert made("byte").generate("to bü", length=3)


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(DataError, match="lone surrogate"):
        made("byte").generate("to \ud800")


@pytest.mark.parametrize("options", [{"nbest": 2}, {"strategy": "beam"}])
def test_only_one_text_can_be_streamed(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="only one text can be followed as it is written"):
        made().stream("to be", **options)


def test_a_misspelt_option_is_met_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="unknown key 'temprature', did you mean 'temperature'"):
        made().generate("to be", temprature=1.0)


def test_no_prompts_give_no_texts() -> None:
    assert made().generate([]) == []


def test_heads_are_heard_while_a_text_is_read() -> None:
    model = made()
    found = model.inspect("to be or no")
    assert found.tape.kinds == ["decoder"]
    assert [look.weights.shape for look in found.tape.of("decoder")] == [(1, 2, 11, 11)] * 2
    assert found.view["model"]["kind"] == "gpt"
    assert (found.view["texts"], len(found.view["generation"]["steps"])) == (
        {"source": "to be or no", "target": None},
        11,
    )
    led = model.inspect("to be", " or no")
    assert (led.translation, led.view["texts"]["target"]) == (" or no", " or no")
    assert led.loss == pytest.approx(found.loss)
    assert model.inspect("to be or no", ablate=["decoder.0"]).loss != pytest.approx(found.loss)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is nothing to look at: the text is empty"),
        ("to be, or not to be", "the text has 19 tokens, and this model sees at most 12 at once: shorten it"),
        ("zü", "the prompt has a character that this model has never seen: 'z' (character 1)"),
    ],
)
def test_a_text_that_cannot_be_looked_at_is_refused(text: str, message: str) -> None:
    with pytest.raises(DataError) as error:
        made().inspect(text)
    assert str(error.value) == message
