"""The network in memory: bad weather, cut edges, killed processes, and the same history for the same seed."""

from __future__ import annotations

import pytest

from engine.raft.transport.memory import Weather
from tests.unit.raft_transport.harness import MemoryWorld, Node, acquaint


def mesh(world: MemoryWorld) -> list[Node]:
    nodes = [world.node(name) for name in "abc"]
    acquaint(*nodes)
    world.until(lambda: all(len({peer.name for peer in node.told.connected}) == 2 for node in nodes))
    return nodes


def history(seed: int) -> list[object]:
    """What three nodes hear while messages are lost and an edge is cut now and then."""
    world = MemoryWorld(seed=seed, weather=Weather(loss=0.02))
    nodes = mesh(world)
    for turn in range(300):
        for node in nodes:
            for other in nodes:
                node.transport.send(other.name, turn, node.name.encode(), urgent=turn % 7 == 0)
        if turn % 50 == 10:
            world.network.cut("a:1000", "b:1001")
        if turn % 50 == 30:
            world.network.heal("a:1000", "b:1001")
        world.pause(0.003)
    world.pause(1)
    told = [(node.told.frames, node.told.connection_ids, node.told.disconnected) for node in nodes]
    world.close()
    return list(told)


def test_the_same_seed_tells_the_same_history_and_another_one_does_not() -> None:
    assert history(5) == history(5)
    assert history(5) != history(6)


@pytest.mark.parametrize("seed", range(5))
def test_what_arrives_is_in_order_and_gaps_come_with_a_lost_connection(seed: int) -> None:
    world = MemoryWorld(seed=seed, weather=Weather(loss=0.03))
    a, b, _ = mesh(world)
    sent: list[int] = []
    for number in range(400):
        if a.transport.send("b", 1, str(number).encode()):
            sent.append(number)
        world.pause(0.001)
    world.pause(1)
    arrived = [int(payload) for name, _, payload in b.told.frames if name == "a"]
    assert arrived == sorted(set(arrived))
    assert set(arrived) <= set(sent)
    if len(arrived) < len(sent):
        assert any(name == "b" for name, _ in a.told.disconnected)
    assert len(arrived) > 200


def test_a_cut_edge_holds_messages_back_and_heals_without_loss_when_it_is_short() -> None:
    world = MemoryWorld()
    a, b, c = mesh(world)
    world.network.cut(a.address, b.address)
    a.transport.send("b", 1, b"held")
    a.transport.send("c", 1, b"free")
    world.pause(0.5)
    assert b.told.frames == []
    assert c.told.payloads(1) == [b"free"]
    a.transport.send("b", 1, b"behind it")
    world.network.heal(a.address, b.address)
    world.until(lambda: b.told.payloads(1) == [b"held", b"behind it"])
    assert a.told.disconnected == []


def test_a_long_cut_ends_the_connection_at_both_ends_and_a_healed_edge_is_used_again() -> None:
    world = MemoryWorld()
    a, b, _ = mesh(world)
    world.network.cut(a.address, b.address)
    world.until(lambda: a.told.disconnected and b.told.disconnected)
    world.pause(3)
    assert not a.transport.writable("b")
    assert "cannot connect" in a.transport.problems()["b"]
    world.network.heal(a.address, b.address)
    world.until(lambda: a.transport.send("b", 1, b"x"))
    world.until(lambda: b.told.frames)


def test_a_killed_process_says_nothing_more_and_its_successor_is_taken_for_itself() -> None:
    world = MemoryWorld()
    a, b, _ = mesh(world)
    told = len(b.told.disconnected)
    world.crash(b)
    world.until(lambda: ("b", "the other node closed the connection") in a.told.disconnected)
    assert len(b.told.disconnected) == told
    again = world.node("b", address=b.address)
    acquaint(a, again)
    world.until(lambda: again.transport.send("a", 1, b"x"))
    world.until(lambda: a.told.connected[-1] == again.identity)
    assert a.told.duplicates == []


def test_a_slow_network_fills_the_queue() -> None:
    world = MemoryWorld(weather=Weather(bytes_per_s=1e6))
    a, b, _ = mesh(world)
    taken = 0
    while a.transport.send("b", 1, bytes(100_000)):
        taken += 1
    assert taken == 11
    world.until(lambda: len(b.told.frames) == taken)
    assert a.transport.backlog("b") == 0
