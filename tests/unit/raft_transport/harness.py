"""Nodes that write down what their transport tells them, over TCP on loopback and in memory, under one interface."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeVar

from engine.clock import ManualClock
from engine.config import KIB, TransportLimits
from engine.raft.transport.address import look_up
from engine.raft.transport.memory import MemoryNetwork, MemoryTransport, Weather
from engine.raft.transport.resolver import LookUp
from engine.raft.transport.tcp import TcpTransport
from engine.raft.transport.transport import Identity, Reason, Transport

SMALL = TransportLimits(
    retry_min_s=0.02,
    retry_max_s=0.2,
    message_bytes_max=4 * 1024 * KIB,
    queue_bytes=1024 * KIB,
    urgent_bytes=64 * KIB,
    ping_period_s=0.2,
    idle_timeout_s=1.0,
    handshake_timeout_s=0.5,
    tick_s=0.01,
)
PATIENCE_S = 10.0
SECRET = b"a secret of some length"
_T = TypeVar("_T")
_processes = itertools.count(1)


class Recorder:
    """Everything that one transport has told."""

    def __init__(self, changed: threading.Condition) -> None:
        self._changed = changed
        self.frames: list[tuple[str, int, bytes]] = []
        self.connection_ids: list[str] = []
        self.connected: list[Identity] = []
        self.disconnected: list[tuple[str, str]] = []
        self.rejected: list[tuple[Reason, str]] = []
        self.duplicates: list[tuple[Identity, Identity]] = []
        self.errors: list[Exception] = []
        self.on_message: Callable[[str, int, bytes], None] = lambda name, kind, payload: None

    def on_frame(self, name: str, incarnation: str, connection_id: str, kind: int, payload: bytes) -> None:
        assert incarnation
        assert connection_id in self.connection_ids
        self.on_message(name, kind, payload)
        self._add(self.frames, (name, kind, payload))

    def on_connected(self, peer: Identity, connection_id: str) -> None:
        self.connection_ids.append(connection_id)
        self._add(self.connected, peer)

    def on_disconnected(self, name: str, connection_id: str, reason: str) -> None:
        assert connection_id in self.connection_ids
        self._add(self.disconnected, (name, reason))

    def on_rejected(self, reason: Reason, claimed: Identity | None, detail: str) -> None:
        assert detail
        self._add(self.rejected, (reason, claimed.name if claimed else ""))

    def on_duplicate(self, older: Identity, newer: Identity) -> None:
        self._add(self.duplicates, (older, newer))

    def on_fatal(self, error: Exception) -> None:
        self._add(self.errors, error)

    def payloads(self, kind: int) -> list[bytes]:
        return [payload for _, k, payload in list(self.frames) if k == kind]

    def reasons(self) -> set[Reason]:
        return {reason for reason, _ in list(self.rejected)}

    def _add(self, kept: list[_T], item: _T) -> None:
        with self._changed:
            kept.append(item)
            self._changed.notify_all()


class Node:
    """One process."""

    def __init__(self, identity: Identity, recorder: Recorder, transport: Transport) -> None:
        self.identity = identity
        self.name = identity.name
        self.address = identity.address
        self.told = recorder
        self.transport = transport

    def stop(self) -> None:
        self.transport.stop()


class World(Protocol):
    """A place where nodes live."""

    limits: TransportLimits

    def node(
        self,
        name: str,
        *,
        incarnation: str = "",
        cluster_id: str = "c1",
        address: str = "",
        secrets: Sequence[bytes] = (SECRET,),
    ) -> Node:
        """A running node, at a new address unless one is given."""
        ...

    def until(self, condition: Callable[[], object]) -> None:
        """Let things happen until the condition holds, or fail."""
        ...

    def pause(self, seconds: float) -> None:
        """Let things happen for a while, to see that something does not."""
        ...

    def close(self) -> None:
        """Stop every node."""
        ...


def identity(name: str, address: str, *, incarnation: str = "", cluster_id: str = "c1") -> Identity:
    return Identity(
        name=name,
        incarnation=incarnation or f"disk-of-{name}",
        process=f"p{next(_processes)}",
        cluster_id=cluster_id,
        address=address,
    )


def acquaint(*nodes: Node) -> None:
    """Everyone knows everyone."""
    members = {node.name: node.address for node in nodes}
    for node in nodes:
        node.transport.set_members(members)


def know(node: Node, others: Mapping[str, str], seeds: Collection[str] = (), *, strangers: bool = False) -> None:
    node.transport.set_members(others, seeds=seeds, strangers=strangers)


class TcpWorld:
    """Threads and loopback."""

    def __init__(self, limits: TransportLimits = SMALL, *, ask: LookUp = look_up) -> None:
        self.limits = limits
        self.changed = threading.Condition()
        self._ask = ask
        self._nodes: list[Node] = []
        self._reserved: list[socket.socket] = []

    def free_address(self, host: str = "127.0.0.1") -> str:
        """A port that nobody else takes while this world exists."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        reserved = socket.socket(family)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind((host, 0))
        self._reserved.append(reserved)
        port = reserved.getsockname()[1]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def node(
        self,
        name: str,
        *,
        incarnation: str = "",
        cluster_id: str = "c1",
        address: str = "",
        secrets: Sequence[bytes] = (SECRET,),
        limits: TransportLimits | None = None,
    ) -> Node:
        address = address or self.free_address()
        host, _, port = address.rpartition(":")
        who = identity(name, address, incarnation=incarnation, cluster_id=cluster_id)
        recorder = Recorder(self.changed)
        transport = TcpTransport(
            who,
            recorder,
            bind_host=host.strip("[]"),
            port=int(port),
            secrets=secrets,
            limits=limits or self.limits,
            ask=self._ask,
        )
        transport.start()
        node = Node(who, recorder, transport)
        self._nodes.append(node)
        return node

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        with self.changed:
            while not condition():
                assert time.monotonic() < deadline, "it did not happen in time"
                self.changed.wait(0.01)

    def pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        with self.changed:
            while (left := deadline - time.monotonic()) > 0:
                self.changed.wait(left)

    def close(self) -> None:
        for node in self._nodes:
            node.stop()
        for reserved in self._reserved:
            reserved.close()
        assert [error for node in self._nodes for error in node.told.errors] == []


class MemoryWorld:
    """One thread and a clock that is moved by hand."""

    def __init__(self, limits: TransportLimits = SMALL, *, seed: int = 1, weather: Weather | None = None) -> None:
        self.limits = limits
        self.network = MemoryNetwork(ManualClock(), limits, seed=seed, weather=weather)
        self._nodes: list[Node] = []
        self._ports = itertools.count(1000)

    def node(
        self,
        name: str,
        *,
        incarnation: str = "",
        cluster_id: str = "c1",
        address: str = "",
        secrets: Sequence[bytes] = (SECRET,),
    ) -> Node:
        address = address or f"{name}:{next(self._ports)}"
        who = identity(name, address, incarnation=incarnation, cluster_id=cluster_id)
        recorder = Recorder(threading.Condition())
        transport = self.network.transport(who, recorder, secrets=secrets)
        transport.start()
        node = Node(who, recorder, transport)
        self._nodes.append(node)
        return node

    def until(self, condition: Callable[[], object]) -> None:
        for _ in range(int(PATIENCE_S / 0.005)):
            if condition():
                return
            self.network.run(0.005)
        raise AssertionError("it did not happen in time")

    def pause(self, seconds: float) -> None:
        self.network.run(seconds)

    def close(self) -> None:
        for node in self._nodes:
            node.stop()

    def crash(self, node: Node) -> None:
        assert isinstance(node.transport, MemoryTransport)
        node.transport.crash()
