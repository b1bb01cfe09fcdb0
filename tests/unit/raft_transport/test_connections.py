"""Which connection of a name is used and which ones go, seen from both ends."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest

from engine.raft.transport.connections import Connections
from engine.raft.transport.transport import Identity
from tests.unit.raft_transport.harness import SMALL, identity


@dataclass(eq=False)
class Wire:
    """One end of a connection."""

    number: int
    peer: Identity
    superseded: bool = False
    leaving: str = ""


A, B = identity("a", "a:1"), identity("b", "b:1")


@pytest.mark.parametrize(
    ("seen_by_a", "seen_by_b"), list(itertools.product(itertools.permutations(range(3)), repeat=2))
)
def test_connections_made_at_once_leave_exactly_one_whatever_the_orders(
    seen_by_a: tuple[int, ...], seen_by_b: tuple[int, ...]
) -> None:
    of_a: Connections[Wire] = Connections("a", SMALL)
    of_b: Connections[Wire] = Connections("b", SMALL)
    gone = [wire.number for number in seen_by_a for wire in of_a.add(Wire(number, B)).replaced]
    gone += [wire.number for number in seen_by_b for wire in of_b.add(Wire(number, A)).replaced]
    left = set(seen_by_a) - set(gone)
    assert left == {seen_by_a[-1]}


def test_one_connection_too_many_pushes_out_the_oldest() -> None:
    connections: Connections[Wire] = Connections("z", SMALL)
    wires = [Wire(number, A) for number in range(SMALL.peer_connections_max + 1)]
    surplus = [wire.number for wire in wires for wire in connections.add(wire).surplus]
    assert surplus == [0]
    assert connections.current("a") is wires[-1]


def test_when_the_newest_ends_the_one_before_takes_its_place_unless_it_is_in_doubt() -> None:
    connections: Connections[Wire] = Connections("z", SMALL)
    doubtful, older, newer = (Wire(number, A) for number in range(3))
    for wire in (doubtful, older, newer):
        connections.add(wire)
    doubtful.superseded = True
    connections.remove(newer)
    assert connections.current("a") is older
    older.leaving = "it is being closed"
    connections.review("a")
    assert connections.current("a") is None
    connections.remove(older)
    connections.remove(doubtful)
    assert list(connections) == []
