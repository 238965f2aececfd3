"""Every position scheme against its paper's formula, and the laws of distance, offset and length."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from clearhead.errors import ConfigError, DataError
from clearhead.nn.positions import POSITIONS, Positions, alibi_slopes, waves

DIM, HEADS, HEAD_DIM, MAX_LEN = 16, 4, 4, 8
RELATIVE = [name for name, kind in POSITIONS.items() if kind.embed is Positions.embed]
"""What leaves the embeddings alone can only act between two positions, so only their distance may count."""


def scheme(name: str, max_len: int = MAX_LEN, num_heads: int = HEADS, head_dim: int = HEAD_DIM) -> Positions:
    torch.manual_seed(0)
    made = POSITIONS[name](dim=DIM, num_heads=num_heads, head_dim=head_dim, max_len=max_len)
    for parameter in made.parameters():
        parameter.data.normal_()
    return made


def scores(positions: Positions, query: Tensor, key: Tensor, query_at: int, key_at: int) -> Tensor:
    """The scores of queries that start at one offset and keys that start at another."""
    product = positions.rotate(query, query_at) @ positions.rotate(key, key_at).transpose(-2, -1)
    query_end, key_end = query_at + query.shape[2], key_at + key.shape[2]
    # Queries are counted from the end, so ask for all of them and cut out the ones meant.
    bias = positions.bias(max(query_end, key_end), max(query_end, key_end))
    return product if bias is None else product + bias[:, query_at:query_end, key_at:key_end]


@pytest.mark.parametrize("dim", [2, 6, 16])
def test_sinusoidal_is_the_papers_formula(dim: int) -> None:
    table = waves(40, dim)
    for position in range(40):
        for i in range(dim // 2):
            angle = position / 10_000 ** (2 * i / dim)
            assert table[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-5)
            assert table[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-5)


def test_sinusoidal_adds_its_table_and_an_odd_width_drops_the_last_wave() -> None:
    x = torch.randn(2, 5, DIM)
    torch.testing.assert_close(scheme("sinusoidal").embed(x, 2) - x, waves(7, DIM)[2:].expand(2, 5, DIM))
    assert torch.equal(waves(5, 7), waves(5, 8)[:, :7])


def test_learned_adds_the_vector_of_each_position() -> None:
    positions, x = scheme("learned"), torch.randn(2, 5, DIM)
    moved = positions.embed(x, 3)
    for time in range(5):
        torch.testing.assert_close(moved[:, time], x[:, time] + positions.weight[3 + time])


@pytest.mark.parametrize("head_dim", [2, 5, 8])
def test_rotary_turns_each_pair_by_its_angle(head_dim: int) -> None:
    positions, half = scheme("rotary", head_dim=head_dim), head_dim // 2
    x = torch.randn(2, HEADS, 6, head_dim)
    turned = positions.rotate(x, 1)
    for time in range(6):
        for i in range(half):
            angle = (1 + time) / 10_000 ** (i / half)
            pair = torch.complex(x[:, :, time, i], x[:, :, time, half + i]) * complex(math.cos(angle), math.sin(angle))
            torch.testing.assert_close(turned[:, :, time, i], pair.real, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(turned[:, :, time, half + i], pair.imag, atol=1e-5, rtol=1e-5)
    assert torch.equal(turned[..., 2 * half :], x[..., 2 * half :])
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))


def papers_slopes(num_heads: int) -> list[float]:
    """The recursion of the authors, written from their description."""
    if math.log2(num_heads).is_integer():
        start = 2 ** (-8 / num_heads)
        return [start ** (head + 1) for head in range(num_heads)]
    power = 2 ** math.floor(math.log2(num_heads))
    return papers_slopes(power) + papers_slopes(2 * power)[::2][: num_heads - power]


@pytest.mark.parametrize("num_heads", range(1, 18))
def test_alibi_slopes_are_the_papers_also_for_odd_counts(num_heads: int) -> None:
    slopes = alibi_slopes(num_heads)
    assert slopes == pytest.approx(papers_slopes(num_heads))
    assert len(slopes) == len(set(slopes)) == num_heads
    assert all(0 < slope < 1 for slope in slopes)


@pytest.mark.parametrize("num_heads", [1, 3, 4, 6])
@pytest.mark.parametrize(("query_len", "key_len"), [(5, 5), (1, 5), (2, 7)])
def test_alibi_falls_with_distance(num_heads: int, query_len: int, key_len: int) -> None:
    bias = scheme("alibi", num_heads=num_heads).bias(query_len, key_len)
    assert bias is not None
    for head, slope in enumerate(alibi_slopes(num_heads)):
        for query in range(query_len):
            for key in range(key_len):
                distance = abs(key_len - query_len + query - key)
                assert bias[head, query, key].item() == pytest.approx(-slope * distance, rel=1e-6)


@pytest.mark.parametrize("name", RELATIVE)
def test_scores_depend_on_distance_only(name: str) -> None:
    positions = scheme(name, max_len=64)
    query, key = torch.randn(2, HEADS, 3, HEAD_DIM), torch.randn(2, HEADS, 4, HEAD_DIM)
    expected = scores(positions, query, key, query_at=2, key_at=0)
    for shift in (1, 7, 50):
        shifted = scores(positions, query, key, query_at=2 + shift, key_at=shift)
        torch.testing.assert_close(shifted, expected, atol=1e-5, rtol=1e-5)
    if name != "none":
        further = scores(positions, query, key, query_at=5, key_at=0)
        assert not torch.allclose(further, expected, atol=1e-3)


@pytest.mark.parametrize("head_dim", [4, 5])
@pytest.mark.parametrize("spread", [False, True])
def test_turning_by_hand_gives_the_same_and_the_same_gradient(
    head_dim: int, spread: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    positions = scheme("rotary", head_dim=head_dim)
    at = torch.rand(2, 5) * 7 if spread else None
    # Heads lie between positions in memory, as a projection leaves them.
    given = torch.randn(2, 5, 3, head_dim, requires_grad=True)
    weights = torch.randn(2, 3, 5, head_dim)
    found = []
    for by_hand in (True, False):
        monkeypatch.setattr(positions, "by_hand", by_hand)
        turned = positions.rotate(given.transpose(1, 2), 0 if spread else 2, at)
        found.append((turned, *torch.autograd.grad(turned, given, weights)))
    for ours, plain in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain)


def test_rotary_and_alibi_are_relative_and_the_others_are_not() -> None:
    assert set(RELATIVE) >= {"none", "rotary", "alibi"}
    assert not set(RELATIVE) & {"sinusoidal", "learned"}


@pytest.mark.parametrize("name", POSITIONS)
def test_an_offset_continues_where_the_past_ended(name: str) -> None:
    positions = scheme(name)
    x, heads = torch.randn(2, MAX_LEN, DIM), torch.randn(2, HEADS, MAX_LEN, HEAD_DIM)
    for offset in range(MAX_LEN):
        assert torch.equal(positions.embed(x[:, offset:], offset), positions.embed(x)[:, offset:])
        assert torch.equal(positions.rotate(heads[:, :, offset:], offset), positions.rotate(heads)[:, :, offset:])
        whole = positions.bias(MAX_LEN, MAX_LEN)
        if whole is not None:
            assert torch.equal(positions.bias(MAX_LEN - offset, MAX_LEN), whole[:, offset:])


@pytest.mark.parametrize("name", [name for name in POSITIONS if name != "learned"])
def test_past_max_len_a_scheme_agrees_with_a_larger_table(name: str) -> None:
    small, large = scheme(name, max_len=4), scheme(name, max_len=32)
    for offset, time in [(0, 9), (3, 2), (10, 5)]:
        x, heads = torch.randn(2, time, DIM), torch.randn(2, HEADS, time, HEAD_DIM)
        assert torch.equal(small.embed(x, offset), large.embed(x, offset))
        assert torch.equal(small.rotate(heads, offset), large.rotate(heads, offset))
        bias = small.bias(time, offset + time)
        assert bias is None or torch.equal(bias, large.bias(time, offset + time))


@pytest.mark.parametrize(("time", "offset"), [(9, 0), (1, 8), (5, 4)])
def test_learned_positions_end_at_max_len(time: int, offset: int) -> None:
    positions = scheme("learned")
    with pytest.raises(DataError) as error:
        positions.embed(torch.randn(1, time, DIM), offset)
    assert str(error.value) == (
        "a sequence of 9 tokens is longer than the 8 learned positions of this model: "
        "shorten it, or train with a larger max_len"
    )


def test_rotary_needs_two_columns_to_turn() -> None:
    with pytest.raises(ConfigError) as error:
        scheme("rotary", head_dim=1)
    assert str(error.value) == "rotary positions turn pairs of features, and a head_dim of 1 has none: use fewer heads"


@pytest.mark.parametrize("name", POSITIONS)
def test_fixed_tables_are_not_saved_with_the_weights(name: str) -> None:
    positions = scheme(name)
    assert set(positions.state_dict()) == {name for name, _ in positions.named_parameters()}


@pytest.mark.parametrize("name", POSITIONS)
def test_half_precision_stays_half(name: str) -> None:
    positions, x, heads = scheme(name), torch.randn(2, 5, DIM), torch.randn(2, HEADS, 5, HEAD_DIM)
    for made in (positions, scheme(name).bfloat16()):
        embedded, rotated = made.embed(x.bfloat16()), made.rotate(heads.bfloat16())
        assert embedded.dtype == rotated.dtype == torch.bfloat16
        torch.testing.assert_close(embedded.float(), positions.embed(x), atol=0.05, rtol=0.02)
        torch.testing.assert_close(rotated.float(), positions.rotate(heads), atol=0.05, rtol=0.02)
