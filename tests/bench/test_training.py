"""The contest is fair: same batches, same sizes, models that learn; and its arithmetic is what it says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from clearhead.bench.corpus import made_pairs, restore, store
from clearhead.bench.peers import PEERS, Trainee
from clearhead.bench.seat import Seat
from clearhead.bench.sizes import SIZES, Size, useful_flops
from clearhead.bench.training import (
    OURS,
    PADDED_TO,
    PEAK,
    PROCESSES,
    Row,
    TrainingFigures,
    contest,
    our_model,
    pad_to,
    sit,
)
from clearhead.bench.tutorial import LabelSmoothing
from clearhead.data.batches import BatchConfig, Batches
from clearhead.errors import ConfigError
from clearhead.text.specials import PAD_ID
from clearhead.training.losses import LOSSES

SMALL = replace(
    SIZES["tiny"], dim=16, ff_dim=32, num_heads=2, num_layers=1, source_vocab_size=90, target_vocab_size=90, dropout=0.0
)
SEPARATE = replace(SMALL, target_vocab_size=70, joint=False)


def built(name: str, size: Size) -> Trainee:
    if not find_spec(PEERS[name].package):
        pytest.skip(f"{PEERS[name].package} is not installed")
    torch.manual_seed(0)
    return PEERS[name].build(size)


def one_batch(size: Size) -> tuple[torch.Tensor, torch.Tensor]:
    batch = next(Batches(made_pairs(size, 60), BatchConfig(max_tokens=200), 1).shares()).parts[0].batch
    return torch.from_numpy(batch.source), torch.from_numpy(batch.target)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("size", [SMALL, SEPARATE], ids=["joint", "separate"])
@pytest.mark.parametrize("name", PEERS)
def test_every_peer_learns_a_batch_and_padding_does_not_change_its_loss(name: str, size: Size) -> None:
    trainee, (source, target) = built(name, size), one_batch(size)
    trainee.model.eval()
    with torch.no_grad():
        longer = [torch.from_numpy(pad_to(x.numpy(), PADDED_TO)) for x in (source, target)]
        before = trainee.loss(source, target)
        torch.testing.assert_close(trainee.loss(*longer), before, atol=1e-4, rtol=1e-4)
    for group in trainee.optimizer.param_groups:
        group["lr"] = 0.01
    trainee.model.train()
    for _ in range(8):
        trainee.step(source, target)
    assert float(trainee.loss(source, target).detach()) < float(before) - 0.1


@pytest.mark.parametrize("size", [SMALL, SEPARATE], ids=["joint", "separate"])
def test_everybody_has_about_as_many_trained_parameters_outside_the_tables(size: Size) -> None:
    def count(model: nn.Module) -> int:
        shapes = [p.shape for p in model.parameters() if p.requires_grad]
        tables = (size.source_vocab_size, size.target_vocab_size, 256)
        return sum(shape.numel() for shape in shapes if shape[0] not in tables)

    ours = count(our_model(size))
    for name in PEERS:
        if find_spec(PEERS[name].package):
            assert count(built(name, size).model) == pytest.approx(ours, rel=0.06), name


def test_the_tutorials_smoothing_is_our_kl_loss() -> None:
    torch.manual_seed(0)
    model, labels = our_model(SMALL), torch.tensor([5, 7, 33, PAD_ID])
    hidden = torch.randn(4, SMALL.dim)
    theirs = LabelSmoothing(SMALL.target_vocab_size, 0.1)(model.output(hidden).log_softmax(-1), labels)
    ours = LOSSES["kl"](0.1, PAD_ID)(hidden[:3], labels[:3], model.output)
    torch.testing.assert_close(theirs, ours.total)


def test_useful_operations_are_the_multiplications_of_the_weights_and_between_positions() -> None:
    model, source, target = our_model(SMALL), 5, 7
    multiplied = 0

    def count(module: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        nonlocal multiplied
        multiplied += inputs[0][..., 0].numel() * module.weight.numel()

    for module in model.modules():
        if isinstance(module, nn.Linear) or module is model.output:
            module.register_forward_hook(count)
    model(torch.randint(4, 90, (1, source)), torch.randint(4, 90, (1, target)))
    between = 2 * SMALL.dim * SMALL.num_layers * (source**2 + target**2 + source * target)
    assert useful_flops(SMALL, np.array([source]), np.array([target])) == 6 * (multiplied + between)


def test_made_sentences_are_as_long_as_multi30ks_and_survive_the_disk(tmp_path: Path) -> None:
    pairs = made_pairs(SEPARATE, 3000)
    assert pairs.source_lengths.mean() == pytest.approx(14.43, abs=0.4)
    assert pairs.target_lengths.std() == pytest.approx(4.59, abs=0.4)
    assert np.corrcoef(pairs.source_lengths, pairs.target_lengths)[0, 1] > 0.8
    assert max(pairs.target(index).max() for index in range(3000)) < SEPARATE.target_vocab_size
    chosen = pairs.subset(np.arange(50, 80))
    store(chosen, tmp_path)
    again = restore(tmp_path)
    for index in range(30):
        assert np.array_equal(again.source(index), chosen.source(index))
        assert np.array_equal(again.target(index), chosen.target(index))


@pytest.fixture
def seated(tmp_path: Path) -> Callable[[str], Callable[[dict[str, int]], dict[str, float]]]:
    store(made_pairs(SMALL, 200), tmp_path)
    return lambda name: sit({"name": name, "size": asdict(SMALL), "folder": str(tmp_path), "threads": 1})


def test_all_who_bucket_train_on_the_same_tokens(seated: Callable[..., Callable[..., dict[str, float]]]) -> None:
    facts = [seated(name)({"steps": 2}) for name in ("clearhead fp32", "torch.nn.Transformer")]
    assert facts[0]["tokens"] == facts[1]["tokens"] > 2000
    assert facts[0]["flops"] == facts[1]["flops"]
    padded = seated("padded to 72, batches of 32")({"steps": 1})
    assert 300 < padded["tokens"] < 700
    assert seated(f"{PEAK} fp32")({"steps": 1})["gflops"] > 0.1


def test_a_team_shares_the_same_tokens_out(tmp_path: Path) -> None:
    store(made_pairs(SMALL, 200), tmp_path)
    settings = {"name": f"clearhead fp32{PROCESSES}", "size": asdict(SMALL), "folder": str(tmp_path), "threads": 1}
    with Seat("train", settings, processes=2) as team:
        together = team.ask({"steps": 2})
    alone = sit({**settings, "name": "clearhead fp32"})({"steps": 2})
    assert together["tokens"] == alone["tokens"]
    assert together["flops"] == pytest.approx(alone["flops"])
    assert together["peak"] >= team.facts["peak"] > 0


def test_ratios_are_to_the_best_bucketed_peer_and_to_the_padded_loop() -> None:
    ours, padded = next(iter(OURS)), next(name for name, peer in PEERS.items() if peer.padded)
    rows = (
        Row(ours, False, 600.0, 30.0, 2**20),
        Row("torch.nn.Transformer", False, 200.0, 10.0, 2**21),
        Row("x-transformers", False, 100.0, 5.0, 2**21),
        Row(padded, True, 20.0, 1.0, 2**22),
    )
    figures = TrainingFigures("tiny", "some sentences", 1, 3, {"fp32": 60.0}, rows)
    _, table = figures.table()
    assert table[0] == (ours, "600", "3.00", "30.00", "30.0", "50 %", "1")
    assert [line[0] for line in table] == [row.name for row in rows]
    assert "fp32 60 GFLOP/s" in figures.remark()


def test_an_unknown_size_is_named() -> None:
    with pytest.raises(ConfigError, match="unknown size 'tini': did you mean 'tiny'"):
        contest("tini")
