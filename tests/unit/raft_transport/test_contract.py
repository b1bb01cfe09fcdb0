"""What every transport does, over TCP and in memory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

import pytest

from engine.errors import ConfigError, LimitExceeded
from engine.raft.transport.transport import Reason
from tests.unit.raft_transport.harness import MemoryWorld, Node, TcpWorld, World, acquaint, know

UNREACHABLE = "127.0.0.1:1"


@pytest.fixture(params=["tcp", "memory"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made: World = TcpWorld() if request.param == "tcp" else MemoryWorld()
    yield made
    made.close()


def pair(world: World) -> tuple[Node, Node]:
    """Two members that are connected, and only once: what is sent on two connections has no order."""
    a, b = world.node("a"), world.node("b")
    know(a, {"a": a.address, "b": b.address})
    know(b, {"a": UNREACHABLE, "b": b.address})
    world.until(lambda: a.transport.writable("b") and b.transport.writable("a"))
    return a, b


def test_members_connect_and_exchange_messages_in_both_directions(world: World) -> None:
    a, b = pair(world)
    assert a.transport.send("b", 7, b"to b")
    assert b.transport.send("a", 65535, b"")
    world.until(lambda: a.told.frames and b.told.frames)
    assert a.told.frames == [("b", 65535, b"")]
    assert b.told.frames == [("a", 7, b"to b")]


def test_both_ends_know_a_connection_by_the_same_id_and_each_other_by_their_identity(world: World) -> None:
    a, b = pair(world)
    world.until(lambda: set(a.told.connection_ids) == set(b.told.connection_ids))
    assert a.told.connected[-1] == b.identity
    assert b.told.connected[-1] == a.identity


def test_three_members_form_a_full_mesh(world: World) -> None:
    nodes = [world.node(name) for name in "abc"]
    acquaint(*nodes)
    for one in nodes:
        for other in nodes:
            if one is not other:
                world.until(partial(one.transport.send, other.name, 1, one.name.encode()))
    world.until(lambda: all(len(node.told.frames) == 2 for node in nodes))
    for node in nodes:
        assert {(name, payload) for name, _, payload in node.told.frames} == {
            (other.name, other.name.encode()) for other in nodes if other is not node
        }


def test_messages_of_every_size_arrive_whole_and_in_order(world: World) -> None:
    a, b = pair(world)
    numbers = random.Random(3)
    fragment = world.limits.fragment_bytes
    sizes = [0, 1, fragment - 1, fragment, fragment + 1, 2 * fragment, 3 * fragment + 7, world.limits.message_bytes_max]
    sent = [numbers.randbytes(size) for size in (*sizes, *(numbers.randrange(3000) for _ in range(200)))]
    for payload in sent:
        world.until(partial(a.transport.send, "b", 2, payload))
    world.until(lambda: len(b.told.frames) == len(sent))
    assert b.told.payloads(2) == sent


def test_a_full_queue_says_so_and_takes_messages_again_later_and_loses_none(world: World) -> None:
    a, b = pair(world)
    payload = bytes(200_000)
    taken = 0
    while a.transport.send("b", 1, payload):
        taken += 1
        assert taken < 1000
    world.until(lambda: len(b.told.frames) == taken and a.transport.backlog("b") == 0)
    assert a.transport.writable("b")


def test_an_urgent_message_has_room_although_the_queue_is_full(world: World) -> None:
    a, b = pair(world)
    payload = bytes(world.limits.message_bytes_max)
    for _ in range(100):
        if not a.transport.send("b", 1, payload):
            break
    assert not a.transport.writable("b")
    assert a.transport.send("b", 2, b"now", urgent=True)
    world.until(lambda: b.told.payloads(2) == [b"now"])


def test_urgent_messages_keep_their_order(world: World) -> None:
    a, b = pair(world)
    sent = [str(number).encode() for number in range(300)]
    for payload in sent:
        world.until(partial(a.transport.send, "b", 1, payload, urgent=True))
    world.until(lambda: len(b.told.frames) == len(sent))
    assert b.told.payloads(1) == sent


def test_what_can_never_be_sent_is_refused_at_once(world: World) -> None:
    a, _ = pair(world)
    with pytest.raises(LimitExceeded):
        a.transport.send("b", 1, bytes(world.limits.message_bytes_max + 1))
    with pytest.raises(LimitExceeded):
        a.transport.send("b", 1, bytes(world.limits.fragment_bytes + 1), urgent=True)
    with pytest.raises(ValueError, match="65536"):
        a.transport.send("b", 65536, b"")


def test_sending_to_a_name_that_is_not_connected_is_answered_no(world: World) -> None:
    a = world.node("a")
    know(a, {"a": a.address, "b": UNREACHABLE})
    assert not a.transport.send("b", 1, b"x")
    assert not a.transport.writable("b")
    assert a.transport.backlog("b") == 0
    world.until(lambda: UNREACHABLE in a.transport.problems().get("b", ""))


def test_an_address_that_is_none_is_refused_with_its_text(world: World) -> None:
    a = world.node("a")
    with pytest.raises(ConfigError, match=r"brackets"):
        know(a, {"b": "fe80::1:5559"})
    with pytest.raises(ConfigError, match="'nowhere'"):
        know(a, {}, ["nowhere"])


def test_a_member_that_stops_is_noticed_and_one_that_returns_is_connected_again(world: World) -> None:
    a, b = pair(world)
    b.stop()
    world.until(lambda: a.told.disconnected)
    assert not a.transport.send("b", 1, b"x")
    again = world.node("b", address=b.address)
    acquaint(a, again)
    world.until(lambda: a.transport.send("b", 1, b"welcome back"))
    world.until(lambda: again.told.frames)
    assert a.told.connected[-1] == again.identity
    assert a.told.duplicates == []


def test_stopping_sends_what_waits(world: World) -> None:
    a, b = pair(world)
    payloads = [bytes([number]) * 100_000 for number in range(8)]
    for payload in payloads:
        assert a.transport.send("b", 1, payload)
    a.stop()
    world.until(lambda: b.told.disconnected)
    assert b.told.payloads(1) == payloads
    assert not a.transport.send("b", 1, b"x")
    a.stop()


def test_a_removed_member_is_disconnected_and_told_why(world: World) -> None:
    a, b = pair(world)
    know(a, {"a": a.address})
    world.until(lambda: b.told.disconnected and Reason.UNKNOWN_NAME in b.told.reasons())
    world.until(lambda: not a.transport.writable("b"))


def test_an_unknown_name_is_refused_and_both_ends_hear_the_reason(world: World) -> None:
    a, b = world.node("a"), world.node("b")
    know(a, {"a": a.address})
    know(b, {"a": a.address})
    world.until(lambda: (Reason.UNKNOWN_NAME, "b") in a.told.rejected and Reason.UNKNOWN_NAME in b.told.reasons())
    assert a.told.connected == []


def test_nodes_of_different_clusters_refuse_each_other(world: World) -> None:
    a, b = world.node("a"), world.node("b", cluster_id="c2")
    acquaint(a, b)
    world.until(lambda: {Reason.OTHER_CLUSTER} == a.told.reasons() == b.told.reasons())
    assert a.told.connected == b.told.connected == []


def test_a_node_without_a_cluster_may_talk_to_one_that_has_one(world: World) -> None:
    a, b = world.node("a"), world.node("b", cluster_id="")
    acquaint(a, b)
    world.until(lambda: a.told.connected and b.told.connected)
    assert b.told.connected[0].cluster_id == "c1"


def test_a_connection_ends_when_its_ends_turn_out_to_be_of_different_clusters(world: World) -> None:
    a, b = world.node("a", cluster_id=""), world.node("b", cluster_id="c2")
    acquaint(a, b)
    world.until(lambda: a.told.connected and b.told.connected)
    a.transport.set_cluster_id("c1")
    world.until(lambda: b.told.disconnected and Reason.OTHER_CLUSTER in b.told.reasons())


def test_a_node_with_another_secret_is_refused(world: World) -> None:
    a, b = world.node("a"), world.node("b", secrets=[b"something else entirely"])
    acquaint(a, b)
    world.until(lambda: Reason.WRONG_SECRET in a.told.reasons() and Reason.WRONG_SECRET in b.told.reasons())
    assert a.told.connected == b.told.connected == []


def test_a_node_without_a_secret_is_refused_by_one_that_has_one(world: World) -> None:
    a, b = world.node("a"), world.node("b", secrets=[])
    acquaint(a, b)
    world.until(lambda: Reason.WRONG_SECRET in a.told.reasons() and Reason.WRONG_SECRET in b.told.reasons())
    assert a.told.connected == []


def test_secrets_are_replaced_node_by_node_without_a_refusal(world: World) -> None:
    old, new = b"the old secret of them", b"the new secret of them"
    steps = [([old], [old, new]), ([old, new], [old, new]), ([new, old], [old, new]), ([new], [new, old])]
    for ours, theirs in steps:
        a, b = world.node("a", secrets=ours), world.node("b", secrets=theirs)
        acquaint(a, b)
        world.until(partial(a.transport.send, "b", 1, b"x"))
        world.until(partial(len, b.told.frames))
        assert a.told.rejected == b.told.rejected == []
        a.stop()
        b.stop()


def test_a_dialled_address_that_leads_to_another_node_is_not_used(world: World) -> None:
    a, b = world.node("a"), world.node("b")
    know(a, {"c": b.address, "b": b.address.rpartition(":")[0] + ":1"})
    know(b, {"a": a.address.rpartition(":")[0] + ":1"})
    world.until(lambda: Reason.OTHER_NODE in a.told.reasons() and Reason.OTHER_NODE in b.told.reasons())
    assert a.told.connected == []


def test_seeds_are_met_without_knowing_their_names(world: World) -> None:
    nodes = [world.node(name, cluster_id="") for name in "abc"]
    addresses = [node.address for node in nodes]
    for node in nodes:
        know(node, {}, addresses, strangers=True)
    world.until(lambda: all(len({peer.name for peer in list(node.told.connected)}) == 2 for node in nodes))
    world.until(lambda: all(node.transport.problems() == {} for node in nodes))
    world.pause(0.2)
    connected = [len(node.told.connection_ids) for node in nodes]
    world.pause(0.3)
    assert [len(node.told.connection_ids) for node in nodes] == connected, "nobody dials again"


def test_a_fenced_incarnation_is_disconnected_and_refused_but_a_new_disk_is_not(world: World) -> None:
    a, b = pair(world)
    a.transport.fence("b", b.identity.incarnation)
    world.until(lambda: Reason.STALE_INCARNATION in b.told.reasons() and b.told.disconnected)
    world.until(lambda: not a.transport.writable("b"))
    b.stop()
    again = world.node("b", address=b.address, incarnation="new disk")
    acquaint(a, again)
    world.until(lambda: a.transport.send("b", 1, b"x"))


def test_two_processes_of_one_name_are_reported_and_fencing_one_leaves_the_other(world: World) -> None:
    a, first = pair(world)
    second = world.node("b", incarnation="a copy")
    acquaint(a, second)
    world.until(lambda: a.told.duplicates)
    older, newer = a.told.duplicates[0]
    assert {older, newer} == {first.identity, second.identity}
    know(first, {"a": a.address})
    a.transport.fence("b", first.identity.incarnation, first.identity.process)
    world.until(lambda: Reason.STALE_INCARNATION in first.told.reasons())
    world.until(lambda: a.transport.send("b", 1, b"x"))
    world.until(lambda: second.told.payloads(1) == [b"x"])


def test_a_process_that_bears_this_nodes_own_name_is_refused(world: World) -> None:
    a, double = world.node("a"), world.node("a")
    know(double, {}, [a.address])
    world.until(lambda: Reason.SAME_NODE in a.told.reasons() and Reason.SAME_NODE in double.told.reasons())
    assert a.told.connected == []
