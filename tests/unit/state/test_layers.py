"""A newer version of a row that is in a lower layer: it hides the old one, and its end is the end of both."""

from __future__ import annotations

import pytest

from engine.state import rows
from engine.state.layers import Layers
from engine.state.rows import Row, message_crc
from tests.unit.state.builders import T0_MS, World, accept


def changed(row: Row, seq: int) -> Row:
    """The row at revision 2 with a later due time."""
    newer = (1, T0_MS + 99, *row[rows.PAYLOAD : rows.ATTEMPTS], 3, 2, row[rows.ORIGINAL_DUE_MS])
    return (*newer, message_crc(seq, newer))


@pytest.fixture
def layers(world: World, request: pytest.FixtureRequest) -> Layers:
    """Layers with seq 1 below the active table."""
    world.do(accept("m1", "m2"))
    world.state.freeze()
    if request.param == "stored":
        world.state.write_frozen()
    return world.state._layers


@pytest.mark.parametrize("layers", ["frozen", "stored"], indirect=True)
def test_a_newer_row_hides_the_one_below_and_is_written_over_it(world: World, layers: Layers) -> None:
    (old,) = layers.find([1])
    assert old is not None
    newer = changed(old, 1)
    layers.put_messages(1, [1], [newer], {newer[rows.DUE_MS] >> rows.SLOT_BITS}, len(newer[rows.PAYLOAD]))
    assert world.state.get([1]) == [newer]
    world.do(accept("m3"))
    world.state.boundary()
    assert world.state.get([1]) == [newer]


@pytest.mark.parametrize("layers", ["frozen", "stored"], indirect=True)
@pytest.mark.parametrize("others", [[], [2]], ids=["alone", "with one below"])
@pytest.mark.parametrize("revisions", [{1: 2}, None], ids=["by revision", "any revision"])
def test_when_a_newer_row_goes_the_one_below_does_not_come_back(
    world: World, layers: Layers, others: list[int], revisions: dict[int, int] | None
) -> None:
    (old,) = layers.find([1])
    assert old is not None
    newer = changed(old, 1)
    layers.put_messages(1, [1], [newer], set(), len(newer[rows.PAYLOAD]))
    assert layers.remove_messages(1, [1], {}).stale == 1
    gone = layers.remove_messages(1, [1, *others], revisions)
    assert (gone.rows, gone.stale) == (1 + len(others), 0)
    assert layers.remove_messages(1, [1], {1: 2}).stale == 1
    assert world.state.get([1]) == [None]
    world.do(accept("m3"))
    world.state.boundary()
    assert world.state.get([1]) == [None]


@pytest.mark.parametrize("layers", ["frozen", "stored"], indirect=True)
def test_a_row_that_returns_after_its_end_is_there_again(world: World, layers: Layers) -> None:
    (old,) = layers.find([1])
    assert old is not None
    layers.remove_messages(1, [1], None)
    newer = changed(old, 1)
    layers.put_messages(1, [1], [newer], set(), len(newer[rows.PAYLOAD]))
    assert world.state.get([1]) == [newer]
    world.do(accept("m3"))
    world.state.boundary()
    assert world.state.get([1]) == [newer]


def test_stored_rows_are_read_as_far_as_their_payloads_fit_and_at_least_one(world: World) -> None:
    world.do(accept("a", "b", "c", payloads=[b"x" * 100] * 3))
    world.state.boundary()
    world.do(accept("d", payloads=[b"x" * 100]))
    read = [len(world.state.get([1, 2, 9, 3, 4], size)) for size in (0, 100, 199, 200, 299, 300, None)]
    assert read == [1, 1, 1, 3, 3, 5, 5]
    assert [row is not None for row in world.state.get([9, 1, 2], 100)] == [False, True]
