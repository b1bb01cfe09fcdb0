"""What comes over the cluster port from those who are no members, and what they can do to those who are."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import struct
from collections.abc import Iterator
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from engine.raft.transport.frames import FrameReader, FrameType, frame_parts
from engine.raft.transport.handshake import Initiator
from engine.raft.transport.transport import Reason
from tests.unit.raft_transport.harness import SECRET, SMALL, Node, TcpWorld, acquaint, identity, know
from tests.unit.raft_transport.proxy import Proxy

UNREACHABLE = "127.0.0.1:1"


@pytest.fixture
def world() -> Iterator[TcpWorld]:
    made = TcpWorld()
    yield made
    made.close()


def dial(node: Node) -> socket.socket:
    host, _, port = node.address.rpartition(":")
    connection = socket.create_connection((host, int(port)))
    connection.settimeout(5)
    return connection


def is_closed(connection: socket.socket) -> bool:
    """Whether the other end has closed, after whatever it still had to say."""
    with contextlib.suppress(ConnectionError):
        while connection.recv(65536):
            pass
    return True


def through(world: TcpWorld, proxy_to: Node, dialler: Node, proxy: Proxy) -> None:
    """Members of which only `dialler` can dial, through the proxy."""
    know(dialler, {dialler.name: dialler.address, proxy_to.name: proxy.address})
    know(proxy_to, {proxy_to.name: proxy_to.address, dialler.name: UNREACHABLE})


def take_all(taken: list[int]) -> None:
    """Every descriptor that this process may still have."""
    while True:
        taken.append(os.dup(0))


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        struct.pack("<BBHI", FrameType.HELLO, 0, 0, 0xFFFFFFFF),
        struct.pack("<BBHI", FrameType.HELLO, 0, 0, 4097),
        struct.pack("<BBHI", FrameType.DATA, 3, 1, 5) + b"hello",
        struct.pack("<BBHI", FrameType.HELLO, 0, 0, 5) + b"\xc1\xff\xff\xff\xff",
        struct.pack("<BBHI", FrameType.BYE, 0, 0, 0),
        bytes(5000),
    ],
)
def test_what_is_no_handshake_is_refused_and_closed(world: TcpWorld, garbage: bytes) -> None:
    a = world.node("a")
    with dial(a) as connection:
        connection.sendall(garbage)
        assert is_closed(connection)
    world.until(lambda: a.told.rejected)
    assert a.told.rejected == [(Reason.BAD_HANDSHAKE, "")]


def test_who_says_nothing_or_half_a_frame_is_closed_after_a_while(world: TcpWorld) -> None:
    a = world.node("a")
    with dial(a) as silent, dial(a) as slow:
        slow.sendall(b"\x01\x00\x00")
        assert is_closed(silent)
        assert is_closed(slow)
    world.until(lambda: [reason for reason, _ in a.told.rejected] == [Reason.BAD_HANDSHAKE] * 2)


def test_a_thousand_idle_connections_keep_no_member_out(world: TcpWorld) -> None:
    a, b = world.node("a", limits=replace(SMALL, handshake_timeout_s=30.0)), world.node("b")
    with contextlib.ExitStack() as stack:
        for _ in range(1000):
            stack.enter_context(dial(a))
        know(a, {"b": UNREACHABLE})
        know(b, {"a": a.address})
        world.until(lambda: b.transport.send("a", 1, b"through the crowd"))
        world.until(lambda: a.told.payloads(1))


def test_a_flood_of_invented_names_is_one_line_in_the_log(world: TcpWorld) -> None:
    a = world.node("a")
    with capture_logs() as lines:
        for number in range(20):
            initiator = Initiator(identity(f"invented {number}", "x:1"), "a", [b"a guess at the secret"])
            with dial(a) as connection:
                connection.sendall(b"".join(initiator.begin()))
                reader = FrameReader(4096)
                reader.feed(connection.recv(4096))
                challenge = reader.next()
                assert challenge is not None
                connection.sendall(b"".join(initiator.receive(challenge)))
                assert is_closed(connection)
        world.until(lambda: len(a.told.rejected) == 20)
    refusals = [line for line in lines if line["action"] == "transport_refused"]
    assert [line["reason"] for line in refusals] == ["wrong_secret"]


def test_the_port_survives_running_out_of_descriptors(world: TcpWorld) -> None:
    limits = replace(SMALL, accept_pause_s=0.05)
    a = world.node("a", limits=limits)
    b = world.node("b")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    with contextlib.ExitStack() as stack:
        waiting = socket.socket()
        stack.enter_context(waiting)
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
        with pytest.raises(OSError, match="Too many open files"):
            take_all(taken)
        for descriptor in taken:
            stack.callback(os.close, descriptor)
        host, _, port = a.address.rpartition(":")
        waiting.connect((host, int(port)))
        world.pause(0.2)
    acquaint(a, b)
    world.until(lambda: b.transport.send("a", 1, b"still here"))
    world.until(lambda: a.told.payloads(1))


def test_an_altered_frame_ends_the_connection_and_is_not_delivered(world: TcpWorld) -> None:
    a, b = world.node("a"), world.node("b")
    proxy = Proxy(b.address)
    through(world, b, a, proxy)
    world.until(lambda: a.transport.writable("b"))
    proxy.alter = lambda from_dialler, data: data.replace(b"pay ann", b"pay bob")
    assert a.transport.send("b", 1, b"pay ann")
    world.until(lambda: any("MAC" in reason for _, reason in b.told.disconnected))
    assert b.told.frames == []
    proxy.close()


def test_repeated_and_injected_frames_end_the_connection_and_are_not_delivered(world: TcpWorld) -> None:
    a, b = world.node("a"), world.node("b")
    proxy = Proxy(b.address)
    through(world, b, a, proxy)
    world.until(lambda: a.transport.writable("b"))
    before = len(proxy.recorded[True])
    assert a.transport.send("b", 1, b"once")
    world.until(lambda: b.told.frames)
    proxy.inject(to_target=True, data=bytes(proxy.recorded[True][before:]))
    world.until(lambda: any("MAC" in reason for _, reason in b.told.disconnected))
    assert b.told.payloads(1) == [b"once"]
    proxy.close()


def test_a_recorded_connection_cannot_be_played_again(world: TcpWorld) -> None:
    a, b = world.node("a"), world.node("b")
    proxy = Proxy(b.address)
    through(world, b, a, proxy)
    world.until(lambda: a.transport.send("b", 1, b"once"))
    world.until(lambda: b.told.frames)
    recorded = bytes(proxy.recorded[True])
    a.stop()
    proxy.close()
    with dial(b) as connection:
        connection.sendall(recorded)
        assert is_closed(connection)
    world.until(lambda: (Reason.WRONG_SECRET, "a") in b.told.rejected)
    assert b.told.payloads(1) == [b"once"]


def test_another_version_is_refused_with_a_reason_that_the_other_end_can_read(world: TcpWorld) -> None:
    a = world.node("a")
    know(a, {"b": UNREACHABLE})
    hello = Initiator(identity("b", "b:1"), "a", [SECRET], versions=(7, 9)).begin()
    with dial(a) as connection:
        connection.sendall(b"".join(hello))
        reader = FrameReader(4096)
        reader.feed(connection.recv(4096))
        frame = reader.next()
        assert frame is not None
        assert frame.type is FrameType.REJECT
        assert b"incompatible_version" in frame.body
        assert is_closed(connection)
    world.until(lambda: a.told.rejected == [(Reason.INCOMPATIBLE_VERSION, "b")])


def test_a_member_that_answers_a_dial_with_garbage_is_left_alone(world: TcpWorld) -> None:
    a = world.node("a")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(5)
        know(a, {"b": f"127.0.0.1:{server.getsockname()[1]}"})
        for _ in range(2):
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
                assert is_closed(connection)
    assert a.told.connected == []
    assert a.told.reasons() == {Reason.BAD_HANDSHAKE}


def test_a_dialled_host_that_accepts_and_says_nothing_is_given_up(world: TcpWorld) -> None:
    a = world.node("a")
    with socket.create_server(("127.0.0.1", 0)) as server:
        know(a, {"b": f"127.0.0.1:{server.getsockname()[1]}"})
        world.until(lambda: "no handshake within 0.5 s" in a.transport.problems().get("b", ""))


def test_a_frame_without_the_key_does_not_pass_after_the_handshake(world: TcpWorld) -> None:
    a, b = world.node("a"), world.node("b")
    proxy = Proxy(b.address)
    through(world, b, a, proxy)
    world.until(lambda: a.transport.writable("b") and b.transport.writable("a"))
    proxy.inject(to_target=False, data=b"".join(frame_parts(None, FrameType.DATA, (b"evil",), flags=3, kind=1)))
    proxy.inject(to_target=False, data=bytes(64))
    world.until(lambda: any("MAC" in reason for _, reason in a.told.disconnected))
    assert a.told.frames == []
    proxy.close()
