"""The laws of the whole translator, over every member of every table it is wired from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.shared.weights import stir
from torch import Tensor

from clearhead.checkpoint import load_model, model_tensors, save_model
from clearhead.config import build
from clearhead.errors import ConfigError
from clearhead.generate.settings import GenerationConfig
from clearhead.generate.strategies import generate
from clearhead.models import MODELS
from clearhead.models.translator import Translator, TranslatorConfig
from clearhead.nn.embedding import TIES
from clearhead.nn.feedforward import FEED_FORWARDS
from clearhead.nn.kernels import KERNELS
from clearhead.nn.norms import NORMS
from clearhead.nn.positions import POSITIONS
from clearhead.nn.reduction import REDUCTIONS
from clearhead.nn.residual import RESIDUALS
from clearhead.text.kinds import TokenizerConfig
from clearhead.text.tokenizer import TokenizerPair

VOCAB, BATCH, SOURCE, TARGET = 11, 3, 6, 5
BOS, EOS = 0, 1
SMALL: dict[str, Any] = {
    "source_vocab_size": VOCAB, "target_vocab_size": VOCAB, "dim": 16, "ff_dim": 24, "num_heads": 4,
    "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0, "max_len": 12,
}  # fmt: skip
Variant = dict[str, Any]
NewTranslator = Callable[..., Translator]

REDUCED: list[dict[str, Any]] = [
    {"kind": "merge", "r": 1},
    *({"kind": kind, "threshold": 0.95} for kind in ("prune", "prune_hard")),
]
"""Every reduction, so that it does something to a source of six tokens."""
MIXING_NORMS = [name for name, kind in NORMS.items() if kind.mixes_time]
VARIANTS: list[Variant] = [
    *(
        {"norm": norm, "residual": residual, **({"decoder_norm": "layer"} if norm in MIXING_NORMS else {})}
        for norm in NORMS
        for residual in RESIDUALS
    ),
    *({"decoder_norm": norm} for norm in NORMS if norm not in MIXING_NORMS),
    *({"positions": positions} for positions in POSITIONS),
    *({"kernel": kernel, "window": 2, "positions": "alibi"} for kernel in KERNELS),
    *({"num_kv_heads": count, "kernel": kernel} for count, kernel in [(1, "exact"), (2, "fused"), (4, "exact")]),
    *({"feedforward": feedforward} for feedforward in FEED_FORWARDS),
    *({"tie": tie} for tie in TIES),
    {"window": 2, "positions": "rotary", "num_kv_heads": 1},
    {"encoder_layers": 3, "decoder_layers": 2},
    {"scale_embeddings": False},
    {"target_vocab_size": 7},
    *(
        {"reduce": how, "encoder_layers": 2, "positions": positions}
        for how in REDUCED
        for positions in ("none", "alibi")
    ),
]
"""Every member of every family at least once; the kernels meet all of them below."""


def as_id(variant: Variant) -> str:
    return "-".join(f"{name}-{value}" for name, value in variant.items())


@pytest.fixture
def new() -> NewTranslator:
    """Build a small translator in double precision, so that laws hold to the last digits, ready for inference."""

    def make(**settings: Any) -> Translator:
        torch.manual_seed(0)
        model = Translator(TranslatorConfig(**{**SMALL, **settings}))
        stir(model)
        return model.double().eval()

    return make


def some_ids(
    model: Translator, batch: int = BATCH, source: int = SOURCE, target: int = TARGET
) -> tuple[Tensor, Tensor]:
    config = model.config
    return (
        torch.randint(config.source_vocab_size, (batch, source)),
        torch.randint(config.target_vocab_size, (batch, target)),
    )


def lengths(time: int, *counts: int) -> Tensor:
    return torch.arange(time) < torch.tensor(counts)[:, None]


def assert_close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, atol=1e-8, rtol=1e-8)


# Time and padding ----------------------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS, ids=as_id)
def test_the_future_does_not_change_the_past(new: NewTranslator, variant: Variant) -> None:
    model = new(**variant)
    source, target = some_ids(model, batch=1)
    # Row by row, another future begins one position later.
    past = torch.ones(TARGET, TARGET, dtype=torch.bool).tril()
    changed = torch.where(past, target, (target + 1) % model.config.target_vocab_size)
    before = model(source, target).expand(TARGET, -1, -1)
    after = model(source.expand(TARGET, -1), changed)
    assert_close(after[past], before[past])
    assert ((after - before)[~past].abs().amax(-1) > 1e-6).all()


@pytest.mark.usefixtures("unchecked")
@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS, ids=as_id)
def test_padding_does_not_change_the_rest(new: NewTranslator, variant: Variant) -> None:
    model = new(**variant)
    source, target = some_ids(model)
    source_real, target_real = lengths(SOURCE, 6, 3, 1), lengths(TARGET, 2, 5, 3)
    other_source, other_target = some_ids(model)
    other = torch.where(source_real, source, other_source), torch.where(target_real, target, other_target)
    for one in (model, model.train()):
        outputs = [one(*ids, source_real, target_real)[target_real] for ids in ((source, target), other)]
        assert_close(*outputs)


@pytest.mark.usefixtures("unchecked")
@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS, ids=as_id)
def test_batched_equals_one_by_one(new: NewTranslator, variant: Variant) -> None:
    model = new(**variant)
    source, target = some_ids(model)
    sources, targets = (6, 3, 1), (2, 5, 3)
    batched = model(source, target, lengths(SOURCE, *sources), lengths(TARGET, *targets))
    for row, (source_count, target_count) in enumerate(zip(sources, targets, strict=True)):
        alone = model(source[row : row + 1, :source_count], target[row : row + 1, :target_count])
        assert_close(batched[row, :target_count], alone[0])


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("variant", VARIANTS, ids=as_id)
def test_a_source_of_padding_only_gives_finite_output_and_gradient(new: NewTranslator, variant: Variant) -> None:
    model = new(**variant).train()
    output = model(*some_ids(model), lengths(SOURCE, 6, 0, 2), lengths(TARGET, 5, 3, 0))
    output.square().sum().backward()
    assert output.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@torch.no_grad()
@pytest.mark.parametrize("positions", POSITIONS)
def test_without_positions_the_order_of_the_source_is_nothing(new: NewTranslator, positions: str) -> None:
    model = new(positions=positions)
    source, target = torch.tensor([[3, 7, 1, 9, 4, 2]]), some_ids(model, batch=1)[1]
    turned = model(source[:, [4, 2, 0, 5, 1, 3]], target)
    assert torch.allclose(turned, model(source, target), atol=1e-8) == (positions == "none")


# Step by step --------------------------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS, ids=as_id)
def test_step_by_step_equals_all_at_once(new: NewTranslator, variant: Variant) -> None:
    model = new(**variant)
    source, target = some_ids(model, target=9)
    real = lengths(SOURCE, 6, 3, 1)
    state = model.start(source, real)
    steps = []
    for ids in target.unbind(1):
        logits, state = model.step(ids, state)
        steps.append(logits)
    assert_close(torch.stack(steps, 1), model(source, target, real))


@pytest.mark.usefixtures("unchecked")
@torch.no_grad()
@pytest.mark.parametrize("is_padded", [True, False])
@pytest.mark.parametrize("rows", [[2, 0, 1], [1, 1, 0, 1, 2], [2], []], ids=str)
@pytest.mark.parametrize("positions", POSITIONS)
def test_selected_rows_go_on_as_if_they_had_been_alone(
    new: NewTranslator, positions: str, rows: list[int], is_padded: bool
) -> None:
    model = new(positions=positions, num_kv_heads=2)
    source, target = some_ids(model)
    real = lengths(SOURCE, 6, 3, 1) if is_padded else None
    state = model.start(source, real)
    for ids in target.unbind(1):
        _, state = model.step(ids, state)
    index = torch.tensor(rows, dtype=torch.long)
    further = torch.randint(VOCAB, (len(rows), 3))
    chosen, steps = state.select(index), []
    for ids in further.unbind(1):
        logits, chosen = model.step(ids, chosen)
        steps.append(logits)
    whole = torch.cat([target[index], further], 1)
    alone = model(source[index], whole, None if real is None else real[index])
    assert_close(torch.stack(steps, 1), alone[:, TARGET:])
    assert state.cache.length == TARGET, "the state that was selected from is as it was"


# Fewer tokens --------------------------------------------------------------------------------------------------------


def test_every_reduction_is_among_the_variants() -> None:
    assert {how["kind"] for how in REDUCED} == REDUCTIONS.keys() - {"none"}


@torch.no_grad()
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    "how", [{"kind": "merge", "r": 0}, {"kind": "prune", "threshold": 0.0}, {"kind": "prune_hard", "threshold": 0.0}]
)
def test_where_nothing_is_asked_for_nothing_changes_to_the_bit(new: NewTranslator, how: Variant, kernel: str) -> None:
    whole, model = new(kernel=kernel), new(kernel=kernel, reduce=how)
    source, target = some_ids(whole)
    for real in (None, lengths(SOURCE, 6, 3, 1)):
        assert torch.equal(model(source, target, real), whole(source, target, real))
        one, other = (made.step(target[:, 0], made.start(source, real))[0] for made in (model, whole))
        assert torch.equal(one, other)


@pytest.mark.parametrize("how", REDUCED, ids=as_id)
def test_fewer_tokens_are_looked_back_at_and_the_end_of_each_source_among_them(
    new: NewTranslator, how: Variant
) -> None:
    model, counts = new(encoder_layers=2, reduce=how), (6, 3, 1)
    source, target = some_ids(model)
    real = lengths(SOURCE, *counts)
    memory, state = model.encode(source, real), model.start(source, real)
    assert memory.holder is not None and memory.x.shape[1] < SOURCE
    for row, count in enumerate(counts):
        end = memory.holder[row, count - 1]
        assert end >= 0 and (memory.holder[row] == end).sum() == 1
        assert memory.counts is None or memory.counts[row, end] == 1
    cross = state.cache.blocks[0].cross
    assert cross is not None and cross.key.shape[2] == memory.x.shape[1]
    assert not torch.allclose(model(source, target, real), new(encoder_layers=2)(source, target, real))


@pytest.mark.usefixtures("unchecked")
@torch.no_grad()
@settings(deadline=None, max_examples=25, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 12), min_size=1, max_size=4), st.integers(0, 5), st.integers(1, 3))
def test_merged_sizes_sum_to_the_number_of_real_tokens(
    new: NewTranslator, counts: list[int], r: int, layers: int
) -> None:
    model = new(encoder_layers=layers, reduce={"kind": "merge", "r": r})
    memory = model.encode(torch.randint(VOCAB, (len(counts), 12)), lengths(12, *counts))
    assert memory.numbers.tolist() == counts
    assert memory.real is None or (memory.real.sum(1) <= torch.tensor(counts)).all()


@torch.no_grad()
def test_equal_tokens_of_a_memory_are_looked_at_as_often_alone(new: NewTranslator) -> None:
    """Proportional attention across: a token that counts for three is seen like three copies of it."""
    model = new()
    source, target = some_ids(model, batch=1)
    memory = model.encode(source)
    copies = memory._replace(x=torch.cat([memory.x, *[memory.x[:, 5:]] * 2], dim=1))
    counts = torch.tensor([[1.0, 1.0, 1.0, 1.0, 1.0, 3.0]], dtype=torch.double)
    assert_close(model.lead(memory._replace(counts=counts), target), model.lead(copies, target))


@pytest.mark.usefixtures("unchecked")
@torch.no_grad()
@pytest.mark.parametrize("how", REDUCED, ids=as_id)
@pytest.mark.parametrize(
    "search", [{"strategy": "greedy"}, {"beam_size": 3, "nbest": 3}, {"strategy": "sample"}], ids=as_id
)
def test_what_a_search_finds_is_worth_what_the_whole_model_says(
    new: NewTranslator, search: Variant, how: Variant
) -> None:
    model, counts = new(encoder_layers=2, reduce=how), (6, 3, 4)
    source, _ = some_ids(model)
    config = GenerationConfig(**search, length_penalty=0.0, loop_guard=False)
    options: dict[str, Any] = {"bos_id": BOS, "eos_id": EOS}
    found = generate(
        model.step, model.start(source, lengths(SOURCE, *counts)), 3, config, max_lens=[9, 5, 7], **options
    )
    for row, count in enumerate(counts):
        one = source[row : row + 1, :count]
        alone = generate(model.step, model.start(one), 1, config, max_lens=[[9, 5, 7][row]], row_keys=[row], **options)
        assert [best.ids for best in found[row]] == [best.ids for best in alone[0]]
        for best in found[row]:
            said = torch.tensor([[*best.ids, EOS]])[:, : len(best.ids) + best.finished]
            fed = torch.cat([torch.tensor([[BOS]]), said[:, :-1]], 1)
            right = model(one, fed).log_softmax(-1).gather(2, said[..., None])
            assert float(right.sum()) == pytest.approx(best.log_prob, abs=1e-5)


# Gradients -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS, ids=as_id)
def test_every_parameter_gets_a_gradient(new: NewTranslator, variant: Variant) -> None:
    model = new(**variant).train()
    output = model(*some_ids(model))
    (output * torch.randn_like(output)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        # A shift of all keys moves every score alike, and a norm over positions takes any shift off again.
        if not name.endswith(".bias"):
            assert parameter.grad.abs().max() > 1e-8, name


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("variant", VARIANTS, ids=as_id)
@pytest.mark.parametrize("kernel", [name for name in KERNELS if name != "exact"])
def test_all_kernels_agree_forward_and_backward(new: NewTranslator, kernel: str, variant: Variant) -> None:
    results = []
    for name in ("exact", kernel):
        model = new(**{**variant, "kernel": name}).train()
        output = model(*some_ids(model), lengths(SOURCE, 6, 3, 1), lengths(TARGET, 2, 5, 3))
        (output * torch.linspace(-1, 1, output.numel()).view_as(output)).sum().backward()
        results.append([output.detach(), *(p.grad for p in model.parameters()), *model.buffers()])
    for one, other in zip(*results, strict=True):
        assert_close(one, other)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "variant",
    [
        {},
        {"residual": "post", "norm": "rms", "positions": "learned"},
        {"norm": "batch", "positions": "alibi", "feedforward": "swiglu"},
        {"norm": "group", "decoder_norm": "layer", "positions": "rotary", "num_kv_heads": 1, "tie": "none"},
        {"kernel": "exact", "window": 3, "tie": "all", "feedforward": "gelu"},
    ],
    ids=as_id,
)
def test_one_batch_can_be_overfitted(variant: Variant) -> None:
    torch.manual_seed(0)
    model = Translator(TranslatorConfig(**{**SMALL, "dim": 32, **variant}))
    source, target = some_ids(model, target=TARGET + 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(80):
        loss = F.cross_entropy(model(source, target[:, :-1]).flatten(0, 1), target[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.1


def test_dropout_acts_in_training_only(new: NewTranslator) -> None:
    model = new(dropout=0.5, attention_dropout=0.5)
    ids = some_ids(model)
    assert torch.equal(model(*ids), model(*ids))
    model.train()
    assert not torch.allclose(model(*ids), model(*ids), atol=0.01)


# Wiring --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tie", TIES)
def test_tied_tables_are_one_parameter_before_and_after_a_step(new: NewTranslator, tie: str) -> None:
    model = new(tie=tie).train()
    tables = [model.source_embedding.weight, model.target_embedding.weight, model.output.weight]
    expected = {"none": 3, "target": 2, "all": 1}[tie]
    assert len({id(table) for table in tables}) == expected
    stored = [name for name in model_tensors(model) if "embedding" in name or name == "output.weight"]
    assert len(stored) == expected
    model(*some_ids(model)).square().sum().backward()
    torch.optim.Adam(model.parameters(), lr=0.1).step()
    assert torch.equal(model.output.weight, model.target_embedding.weight) == (tie != "none")
    assert torch.equal(model.output.weight, model.source_embedding.weight) == (tie == "all")


@pytest.mark.parametrize(("encoder_layers", "decoder_layers"), [(1, 3), (3, 1), (2, 2)])
def test_the_two_stacks_may_differ_in_depth(new: NewTranslator, encoder_layers: int, decoder_layers: int) -> None:
    model = new(encoder_layers=encoder_layers, decoder_layers=decoder_layers)
    assert (len(model.encoder.blocks), len(model.decoder.blocks)) == (encoder_layers, decoder_layers)
    assert len(model.start(some_ids(model)[0]).cache.blocks) == decoder_layers
    assert not any(".cross." in name for name, _ in model.encoder.named_parameters())
    assert sum(".cross.query.weight" in name for name, _ in model.decoder.named_parameters()) == decoder_layers


def test_fewer_heads_of_keys_and_values_are_fewer_weights(new: NewTranslator) -> None:
    sizes = [new(num_kv_heads=count).decoder.blocks[0].attention.key.weight.shape for count in (1, 2, 4)]
    assert sizes == [(4, 16), (8, 16), (16, 16)]


def test_parameter_paths_can_be_read_aloud(new: NewTranslator) -> None:
    names = {name for name, _ in new().named_parameters()}
    assert names >= {
        "source_embedding.weight",
        "target_embedding.weight",
        "encoder.blocks.0.attention.query.weight",
        "decoder.blocks.0.cross.output.bias",
        "decoder.blocks.0.feedforward.inner.weight",
        "decoder.final_norm.weight",
    }


def test_the_same_seed_makes_the_same_model(new: NewTranslator) -> None:
    one, other = model_tensors(new()), model_tensors(new())
    assert all(torch.equal(one[name], other[name]) for name in one)


# What is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", MIXING_NORMS)
@pytest.mark.parametrize("setting", ["norm", "decoder_norm"])
def test_a_norm_that_mixes_time_is_refused_in_the_decoder(new: NewTranslator, setting: str, norm: str) -> None:
    fitting = ", ".join(sorted(NORMS.keys() - set(MIXING_NORMS)))
    with pytest.raises(ConfigError) as error:
        new(**{setting: norm})
    assert str(error.value) == (
        f"norm '{norm}' looks at later positions, which a decoder must not: choose from {fitting}"
    )


def test_one_table_for_two_vocabularies_is_refused(new: NewTranslator) -> None:
    with pytest.raises(ConfigError) as error:
        new(tie="all", target_vocab_size=7)
    assert str(error.value) == "tie = 'all' needs one vocabulary for both sides: set tokenizer.joint = true"


@pytest.mark.parametrize("side", ["source_vocab_size", "target_vocab_size"])
def test_a_translator_without_a_vocabulary_is_refused(new: NewTranslator, side: str) -> None:
    with pytest.raises(ConfigError) as error:
        new(**{side: 0})
    assert str(error.value) == (
        "a translator needs source_vocab_size and target_vocab_size: they come from the tokenizer"
    )


FAMILIES = {
    "norm": ("norm", NORMS),
    "decoder_norm": ("norm", NORMS),
    "residual": ("residual arrangement", RESIDUALS),
    "feedforward": ("feed-forward", FEED_FORWARDS),
    "positions": ("position scheme", POSITIONS),
    "tie": ("way to tie embeddings", TIES),
    "kernel": ("kernel", KERNELS),
    "kind": ("model", MODELS),
}


@pytest.mark.parametrize("setting", FAMILIES)
def test_a_misspelt_choice_is_met_with_the_nearest(setting: str) -> None:
    family, table = FAMILIES[setting]
    name = max(table, key=len)
    with pytest.raises(ConfigError) as error:
        build(TranslatorConfig, {setting: name + "x"}, "config.json")
    assert str(error.value) == f"config.json: '{setting}' = '{name}x': unknown {family}, did you mean '{name}'?"


# Saved equals loaded -------------------------------------------------------------------------------------------------

TEXTS = ["eins zwei", "drei vier"], ["one two", "three four"]


@pytest.mark.usefixtures("unchecked")
@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS, ids=as_id)
def test_saved_equals_loaded(new: NewTranslator, variant: Variant, tmp_path: Path) -> None:
    model = new(**variant).float()
    is_joint = variant.get("tie") == "all"
    tokenizers = TokenizerPair.train(TokenizerConfig(kind="char", joint=is_joint), *TEXTS)
    save_model(tmp_path / "m", model, tokenizers, generation={"beam_size": 3}, card="# hello", training_config="a = 1")
    stored = load_model(tmp_path / "m")
    assert stored.model.config == model.config
    assert not stored.model.training
    assert stored.generation == {"beam_size": 3}
    assert (stored.tokenizers.fingerprint(), stored.tokenizers.joint) == (tokenizers.fingerprint(), is_joint)
    ids = some_ids(model)
    assert torch.equal(stored.model(*ids), model(*ids))
    before, after = model_tensors(model), model_tensors(stored.model)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
