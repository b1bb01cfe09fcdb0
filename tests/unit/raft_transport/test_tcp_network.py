"""Networks as they are: names that do not resolve, silent hosts, stalls, two connections at once, large messages."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from engine.config import MIB, TransportLimits
from engine.errors import ConfigError
from engine.raft.transport.address import SocketAddress, bind_host, look_up, parse_address
from engine.raft.transport.frames import FIRST, LAST, FrameReader, FrameType, Seal, frame_parts
from engine.raft.transport.handshake import Initiator, Session
from engine.raft.transport.tcp import TcpTransport
from engine.raft.transport.transport import Identity
from tests.unit.raft_transport.harness import SECRET, SMALL, Node, Recorder, TcpWorld, acquaint, identity, know
from tests.unit.raft_transport.proxy import Proxy

UNREACHABLE = "127.0.0.1:1"


@pytest.fixture
def world() -> Iterator[TcpWorld]:
    made = TcpWorld()
    yield made
    made.close()


def connected(world: TcpWorld, a: Node, b: Node) -> None:
    acquaint(a, b)
    world.until(lambda: a.transport.writable("b") and b.transport.writable("a"))


def shake_by_hand(node: Node, who: Identity) -> tuple[socket.socket, Session]:
    """A connection of our own making, after the handshake."""
    host, _, port = node.address.rpartition(":")
    connection = socket.create_connection((host, int(port)))
    connection.settimeout(5)
    initiator = Initiator(who, node.name, [SECRET])
    connection.sendall(b"".join(initiator.begin()))
    reader = FrameReader(4096)
    while initiator.session is None:
        reader.feed(connection.recv(4096))
        while initiator.session is None and (frame := reader.next()) is not None:
            connection.sendall(b"".join(initiator.receive(frame)))
    return connection, initiator.session


def hear(connection: socket.socket, words: bytes) -> bool:
    """Read until the words have come."""
    received = b""
    while words not in received:
        data = connection.recv(65536)
        if not data:
            return False
        received += data
    return True


def test_of_two_connections_of_one_process_the_newest_is_used(world: TcpWorld) -> None:
    a = world.node("a")
    know(a, {"b": UNREACHABLE})
    who = identity("b", UNREACHABLE)
    older, _ = shake_by_hand(a, who)
    world.until(lambda: len(a.told.connected) == 1)
    newer, _ = shake_by_hand(a, who)
    world.until(lambda: len(a.told.connected) == 2)
    assert a.transport.send("b", 1, b"to the newest")
    with older, newer:
        assert hear(newer, b"to the newest")
        assert hear(older, b"replaced by a newer connection")
    world.until(lambda: len(a.told.disconnected) == 2)
    assert a.told.duplicates == []


def test_a_dead_process_that_left_a_connection_behind_is_no_duplicate(world: TcpWorld) -> None:
    a = world.node("a")
    know(a, {"b": UNREACHABLE})
    older, session = shake_by_hand(a, identity("b", UNREACHABLE))
    with older:
        world.until(lambda: a.told.connected)
        b = world.node("b")
        know(b, {"a": a.address})
        world.until(lambda: len(a.told.connected) == 2)
        late = frame_parts(Seal(session.send_key), FrameType.DATA, (b"from the grave",), flags=FIRST | LAST, kind=9)
        older.sendall(b"".join(late))
        world.until(lambda: any("no sign of life" in reason for _, reason in a.told.disconnected))
    assert a.told.duplicates == []
    assert a.told.payloads(9) == [], "nothing is taken from a process that another one has replaced"
    assert a.transport.send("b", 1, b"x")
    world.until(lambda: b.told.frames)


def test_a_frozen_edge_is_noticed_by_both_ends_and_used_again_when_it_thaws(world: TcpWorld) -> None:
    a, b = world.node("a"), world.node("b")
    proxy = Proxy(b.address)
    know(a, {"b": proxy.address})
    know(b, {"a": UNREACHABLE})
    world.until(lambda: a.transport.writable("b") and b.transport.writable("a"))
    proxy.freeze()
    world.until(lambda: a.told.disconnected and b.told.disconnected)
    assert "no sign of life for 1 s" in a.told.disconnected[0][1]
    assert not a.transport.send("b", 1, b"x")
    proxy.thaw()
    world.until(lambda: a.transport.send("b", 1, b"back"))
    world.until(lambda: b.told.payloads(1) == [b"back"])
    proxy.close()


def test_a_quiet_connection_stays(world: TcpWorld) -> None:
    a, b = world.node("a"), world.node("b")
    connected(world, a, b)
    world.pause(0.1)
    ended = len(a.told.disconnected)
    world.pause(1.5 * world.limits.idle_timeout_s)
    assert len(a.told.disconnected) == ended
    assert a.transport.writable("b")


def test_names_are_resolved_anew_for_each_connection_and_beside_everything_else() -> None:
    hang = threading.Event()
    answers: dict[str, str] = {}

    def ask(host: str, port: int, **_: bool) -> list[SocketAddress]:
        if host == "hangs":
            hang.wait(20)
        if host == "moves":
            if host not in answers:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            return look_up("127.0.0.1", int(answers[host]))
        return look_up(host, port)

    world = TcpWorld(replace(SMALL, resolve_timeout_s=0.3), ask=ask)
    try:
        a, b, c = (world.node(name) for name in "abc")
        know(a, {"b": b.address, "c": "moves:7", "d": "hangs:7"})
        for node in (b, c):
            know(node, {"a": UNREACHABLE})
        world.until(lambda: a.transport.send("b", 1, b"not held up"))
        world.until(lambda: "the resolver does not answer" in a.transport.problems().get("d", ""))
        world.until(lambda: a.transport.problems().get("c", "") == "cannot resolve 'moves': Name or service not known")
        answers["moves"] = c.address.rpartition(":")[2]
        world.until(lambda: a.transport.send("c", 1, b"found"))
        c.stop()
        world.until(lambda: not a.transport.writable("c"))
        moved = world.node("c")
        know(moved, {"a": UNREACHABLE})
        answers["moves"] = moved.address.rpartition(":")[2]
        world.until(lambda: a.transport.send("c", 1, b"found again"))
        world.until(lambda: moved.told.payloads(1) == [b"found again"])
    finally:
        hang.set()
        world.close()


def test_every_address_of_a_name_is_tried() -> None:
    def ask(host: str, port: int) -> list[SocketAddress]:
        return [*look_up("::1", 1), *look_up("127.0.0.1", 1), *look_up("127.0.0.1", port)]

    world = TcpWorld(ask=ask)
    a, b = world.node("a"), world.node("b")
    know(a, {"b": f"b.example:{b.address.rpartition(':')[2]}"})
    know(b, {"a": UNREACHABLE})
    world.until(lambda: a.transport.writable("b"))
    world.close()


def test_seeds_in_another_spelling_than_the_nodes_own_do_not_replace_each_other_for_ever(world: TcpWorld) -> None:
    a, b = world.node("a", cluster_id=""), world.node("b", cluster_id="")
    know(a, {}, [f"localhost:{b.address.rpartition(':')[2]}"], strangers=True)
    know(b, {}, [f"localhost:{a.address.rpartition(':')[2]}"], strangers=True)
    world.until(lambda: a.transport.writable("b") and b.transport.writable("a"))
    world.pause(0.3)
    connected = len(a.told.connected)
    world.pause(0.5)
    assert len(a.told.connected) == connected
    assert a.transport.problems() == b.transport.problems() == {}


def test_nodes_meet_over_ipv6(world: TcpWorld) -> None:
    a, b = (world.node(name, address=world.free_address("::1")) for name in "ab")
    connected(world, a, b)
    assert a.transport.send("b", 1, b"six")
    world.until(lambda: b.told.payloads(1) == [b"six"])


def test_without_a_bind_host_both_families_are_served(world: TcpWorld) -> None:
    recorder = Recorder(world.changed)
    transport = TcpTransport(identity("a", "a:1"), recorder, bind_host="", port=0, secrets=[SECRET], limits=SMALL)
    transport.start()
    try:
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, transport.port), 5).close()
    finally:
        transport.stop()


def test_a_port_that_is_taken_is_said_in_a_sentence(world: TcpWorld) -> None:
    a = world.node("a")
    with pytest.raises(ConfigError, match=r"CLUSTER_NODE_PORT.*in use"):
        world.node("b", address=a.address)


def test_heartbeats_pass_while_20_mb_go_through() -> None:
    """Each waits for what the kernel and one write hold, not for what is queued."""
    world = TcpWorld(TransportLimits())
    a, b = world.node("a"), world.node("b")
    connected(world, a, b)
    waits: list[float] = []
    b.told.on_message = lambda name, kind, payload: (
        waits.append(time.monotonic() - float(payload)) if kind == 2 else None
    )
    for _ in range(2):
        assert a.transport.send("b", 1, bytes(10 * MIB))
    while len(b.told.payloads(1)) < 2:
        assert a.transport.send("b", 2, repr(time.monotonic()).encode(), urgent=True)
        world.pause(0.005)
    world.until(lambda: len(waits) == len(b.told.payloads(2)))
    world.close()
    assert len(waits) >= 3
    assert max(waits) < 0.25, f"longest {max(waits):.3f} s of {len(waits)}"


def test_a_stall_of_this_process_is_not_taken_for_a_dead_peer(world: TcpWorld) -> None:
    recorder = Recorder(world.changed)
    b = identity("b", world.free_address())
    host, _, port = b.address.rpartition(":")
    polled = TcpTransport(b, recorder, bind_host=host, port=int(port), secrets=[SECRET], limits=SMALL, threaded=False)
    polled.start()
    patient = world.node("c", limits=replace(SMALL, idle_timeout_s=30.0, ping_period_s=30.0))
    polled.set_members({"c": patient.address})
    know(patient, {"b": b.address})
    deadline = time.monotonic() + 5
    while not polled.writable("c") and time.monotonic() < deadline:
        polled.poll(0.01)
    polled.poll(0)
    before = len(recorder.disconnected)
    world.pause(2 * SMALL.idle_timeout_s)
    for _ in range(20):
        polled.poll(0.01)
    assert len(recorder.disconnected) == before
    assert polled.writable("c")
    polled.stop()


def test_a_callback_that_raises_ends_the_transport_aloud(world: TcpWorld) -> None:
    a, b = world.node("a"), world.node("b")
    connected(world, a, b)

    def fail(name: str, kind: int, payload: bytes) -> None:
        raise RuntimeError("the state is broken")

    b.told.on_message = fail
    assert a.transport.send("b", 1, b"x")
    world.until(lambda: b.told.errors)
    assert str(b.told.errors.pop()) == "the state is broken"
    world.until(lambda: a.told.disconnected)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("n1:5559", "n1", 5559), ("10.0.0.1:1", "10.0.0.1", 1), ("[fe80::1%eth0]:65535", "fe80::1%eth0", 65535)],
)
def test_addresses_are_taken_apart(text: str, host: str, port: int) -> None:
    assert parse_address(text) == (host, port)


@pytest.mark.parametrize(
    "text",
    ["", "n1", ":1", "n1:", "n1:0", "n1:65536", "n1:x", "::1", "fe80::1:5559", "[::1]", "[]:1", "a b:1"],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"no host:port"):
        parse_address(text)


def test_without_a_bind_host_a_loopback_name_stays_on_loopback() -> None:
    assert bind_host(None, "localhost") == "localhost"
    assert bind_host(None, "127.0.0.1") == "127.0.0.1"
    assert bind_host("", "n1.example") == ""
    assert bind_host("[::1]", "n1.example") == "::1"
