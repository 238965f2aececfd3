"""Long texts: whatever is read fits, is part of the text, and nothing is lost where all is to be read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data.cutting import LONG_TEXTS, Ends, Windows, long_texts
from clearhead.errors import ConfigError


@given(
    st.sampled_from(sorted(LONG_TEXTS)), st.integers(0, 60), st.integers(1, 20), st.floats(0, 1), st.floats(0, 0.999)
)
def test_what_is_read_fits_and_is_in_order(way: str, length: int, room: int, head: float, chance: float) -> None:
    ids, cut = np.arange(length), LONG_TEXTS[way](room, head)
    pieces = cut.pieces(ids)
    assert len(pieces) == cut.num_pieces(np.array([length]))[0]
    for piece in [*pieces, cut.drawn(ids, chance)]:
        assert len(piece) == min(room, length)
        assert bool((np.diff(piece) > 0).all())


@given(st.sampled_from(sorted(LONG_TEXTS)), st.integers(1, 20), st.floats(0, 1))
def test_a_text_that_fits_is_read_whole(way: str, length: int, chance: float) -> None:
    ids, cut = np.arange(length), LONG_TEXTS[way](length, 0.25)
    assert [piece.tolist() for piece in cut.pieces(ids)] == [ids.tolist()]
    assert cut.drawn(ids, min(chance, 0.999)).tolist() == ids.tolist()


@given(st.integers(1, 80), st.integers(1, 20))
def test_windows_leave_nothing_out(length: int, room: int) -> None:
    pieces = Windows(room, 0.25).pieces(np.arange(length))
    assert set(np.concatenate(pieces).tolist()) == set(range(length))


def test_ends_are_the_beginning_and_the_end() -> None:
    assert Ends(8, 0.25).pieces(np.arange(100))[0].tolist() == [0, 1, 94, 95, 96, 97, 98, 99]
    assert Ends(8, 0.0).pieces(np.arange(100))[0].tolist() == list(range(92, 100))
    assert Ends(8, 1.0).pieces(np.arange(100))[0].tolist() == list(range(8))


def test_every_window_can_be_drawn() -> None:
    starts = {int(Windows(4, 0.25).drawn(np.arange(7), chance)[0]) for chance in np.linspace(0, 0.999, 50)}
    assert starts == {0, 1, 2, 3}


def test_room_is_left_for_what_stands_around_a_text() -> None:
    assert long_texts("ends", 512, 0.25).room == 510
    assert long_texts("ends", 512, 0.25).meaning == "their first 128 and last 382 are read"
    with pytest.raises(ConfigError, match="unknown way to read long texts"):
        long_texts("middle", 512, 0.25)
