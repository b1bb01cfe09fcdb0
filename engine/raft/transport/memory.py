"""The transport in memory: a whole network in one thread, moved by a ManualClock, the same for the same seed.

It behaves like the one over TCP: order within a connection, urgent messages that pass others, bounded queues, nothing
lost without its connection. Handles bring about what rarely happens: cut edges, broken connections, killed processes.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from engine.clock import ManualClock
from engine.config import TransportLimits
from engine.raft.transport.address import parse_address
from engine.raft.transport.admission import Admission, RefusedError
from engine.raft.transport.connections import Connections
from engine.raft.transport.fragments import MESSAGE_COST_BYTES, checked_message
from engine.raft.transport.transport import Events, Identity, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """How the network is at the moment."""

    delay_min_s: float = 0.0005
    delay_max_s: float = 0.002
    """Each message takes a random time between these, so connections overtake each other."""
    bytes_per_s: float = 100e6
    loss: float = 0.0
    """Probability that a message breaks its connection and is lost with everything behind it."""


class MemoryNetwork:
    """All nodes, what travels between them, and the time."""

    def __init__(
        self, clock: ManualClock, limits: TransportLimits, *, seed: int, weather: Weather | None = None
    ) -> None:
        self.clock = clock
        self.limits = limits
        self.rng = random.Random(seed)  # noqa: S311 - a simulation that can be repeated.
        self.weather = weather or Weather()
        self._running: dict[str, MemoryTransport] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._scheduled = 0
        self._cuts: dict[tuple[str, str], int] = {}

    def transport(self, own: Identity, events: Events, *, secrets: Sequence[bytes] = ()) -> MemoryTransport:
        """A node at the address of `own`; it takes part from its start."""
        return MemoryTransport(self, own, events, secrets)

    def run(self, seconds: float) -> None:
        """Let this much time pass, with everything that happens in it, in order."""
        until_s = self.clock.elapsed_s() + seconds
        while self._events and self._events[0][0] <= until_s:
            at_s, _, event = heapq.heappop(self._events)
            self.clock.advance(max(0.0, at_s - self.clock.elapsed_s()))
            event()
        self.clock.advance(max(0.0, until_s - self.clock.elapsed_s()))

    def cut(self, source: str, target: str) -> None:
        """Nothing more arrives from one address at another; connections between them die after the idle time-out."""
        self._scheduled += 1
        self._cuts[(source, target)] = mark = self._scheduled
        self.later(self.limits.idle_timeout_s, partial(self._expire, source, target, mark))

    def heal(self, source: str, target: str) -> None:
        """What was held back arrives now, as far as its connection still stands."""
        if self._cuts.pop((source, target), None) is not None:
            for link in self._between(source, target):
                link.release()

    def is_cut(self, source: str, target: str) -> bool:
        """Whether nothing arrives from `source` at `target`."""
        return (source, target) in self._cuts

    def later(self, seconds: float, event: Callable[[], None]) -> None:
        """Do something in the future."""
        self._scheduled += 1
        heapq.heappush(self._events, (self.clock.elapsed_s() + seconds, self._scheduled, event))

    def delay_s(self) -> float:
        """How long the next thing travels."""
        return self.rng.uniform(self.weather.delay_min_s, self.weather.delay_max_s)

    def join(self, transport: MemoryTransport) -> None:
        """It can be reached from now on."""
        self._running[transport.own.address] = transport

    def leave(self, transport: MemoryTransport) -> None:
        """It cannot be reached any more."""
        if self._running.get(transport.own.address) is transport:
            del self._running[transport.own.address]

    def find(self, address: str) -> MemoryTransport | None:
        """Who answers at an address."""
        return self._running.get(address)

    def _expire(self, source: str, target: str, mark: int) -> None:
        if self._cuts.get((source, target)) == mark:
            for link in self._between(source, target):
                reason = f"no sign of life for {self.limits.idle_timeout_s:g} s"
                link.end(reason)
                link.other.end(reason)

    def _between(self, source: str, target: str) -> list[MemoryLink]:
        sender = self._running.get(source)
        return [link for link in sender.links() if link.other.owner.own.address == target] if sender else []


class MemoryLink:
    """One end of a connection, and what is on its way from there."""

    other: MemoryLink

    def __init__(
        self, owner: MemoryTransport, peer: Identity, connection_id: str, dialled: tuple[str, str] | None
    ) -> None:
        self.owner = owner
        self.peer = peer
        self.connection_id = connection_id
        self.dialled = dialled
        self.superseded = False
        self.leaving = ""
        self.closed = False
        self._waiting_bytes = {False: 0, True: 0}
        self._arrives_s = {False: 0.0, True: 0.0}
        self._held: deque[Callable[[], None]] = deque()

    @property
    def waiting_bytes(self) -> int:
        """On the way in both lanes."""
        return sum(self._waiting_bytes.values())

    def writable(self, urgent: bool) -> bool:
        """Whether the lane takes a message."""
        limits = self.owner.network.limits
        return self._waiting_bytes[urgent] < (limits.urgent_bytes if urgent else limits.queue_bytes)

    def send(self, kind: int, payload: bytes, urgent: bool) -> bool:
        """Put a message on its way."""
        if not self.writable(urgent):
            return False
        self._waiting_bytes[urgent] += len(payload) + MESSAGE_COST_BYTES
        self._travel(partial(self._deliver, kind, payload, urgent), urgent, len(payload))
        return True

    def close(self, reason: str, told: str) -> None:
        """End it here now, and there when everything before has arrived."""
        if not self.closed:
            self.end(reason)
            self._arrives_s[False] = max(self._arrives_s.values())
            self._travel(partial(self.other.end, told), False, 0)

    def end(self, reason: str) -> None:
        """It has ended at this end."""
        if not self.closed:
            self.closed = True
            self.owner.ended(self, reason)

    def release(self) -> None:
        """The edge works again."""
        while self._held:
            self._held.popleft()()

    def _travel(self, arrival: Callable[[], None], urgent: bool, size: int) -> None:
        network = self.owner.network
        now_s = network.clock.elapsed_s()
        begins_s = max(now_s + network.delay_s(), self._arrives_s[urgent])
        self._arrives_s[urgent] = begins_s + size / network.weather.bytes_per_s
        network.later(self._arrives_s[urgent] - now_s, partial(self._arrive, arrival))

    def _arrive(self, arrival: Callable[[], None]) -> None:
        if self._held or self.owner.network.is_cut(self.owner.own.address, self.other.owner.own.address):
            self._held.append(arrival)
        else:
            arrival()

    def _deliver(self, kind: int, payload: bytes, urgent: bool) -> None:
        self._waiting_bytes[urgent] -= len(payload) + MESSAGE_COST_BYTES
        network = self.owner.network
        if self.other.closed:
            return
        if network.weather.loss and network.rng.random() < network.weather.loss:
            self.end("the connection broke")
            self.other.end("the connection broke")
        else:
            self.other.owner.arrived(self.other, kind, payload)


class MemoryTransport:
    """See `transport.Transport`; besides, `crash`. Everything happens within `MemoryNetwork.run`, in its thread."""

    def __init__(self, network: MemoryNetwork, own: Identity, events: Events, secrets: Sequence[bytes]) -> None:
        self.network = network
        self.own = own
        self._events = events
        self._secrets = tuple(secrets) or (b"",)
        self._admission = Admission(own, network.limits)
        self._connections: Connections[MemoryLink] = Connections(own.name, network.limits)
        self._wanted: dict[tuple[str, str], str] = {}
        """(name or nothing, address) → the last problem."""
        self._met: dict[tuple[str, str], str] = {}
        """Who answered there last."""
        self._running = False

    def start(self) -> None:
        self._running = True
        self.network.join(self)
        self._dial_all()

    def stop(self) -> None:
        if self._running:
            for link in self._connections:
                link.close("this node is stopping", "the other node is stopping")
            self._leave()

    def crash(self) -> None:
        """End like a killed process: what is on the way out is gone, the others learn of it a little later."""
        self._leave()
        for link in self._connections:
            link.end("killed")
            self.network.later(self.network.delay_s(), partial(link.other.end, "the other node closed the connection"))

    def set_members(self, members: Mapping[str, str], *, seeds: Collection[str] = (), strangers: bool = False) -> None:
        for address in (*members.values(), *seeds):
            parse_address(address)
        self._admission.set_members(members, strangers)
        wanted = [item for item in members.items() if item[0] != self.own.name]
        wanted += [("", seed) for seed in seeds if seed != self.own.address]
        self._wanted = {key: self._wanted.get(key, "it has not been reached yet") for key in wanted}
        self._met = {key: name for key, name in self._met.items() if key in self._wanted}
        self._review()

    def set_cluster_id(self, cluster_id: str) -> None:
        self.own = self._admission.own = msgspec.structs.replace(self.own, cluster_id=cluster_id)
        self._review()

    def fence(self, name: str, incarnation: str, process: str | None = None) -> None:
        self._admission.fence(name, incarnation, process)
        self._review()

    def send(self, name: str, kind: int, payload: bytes, *, urgent: bool = False) -> bool:
        checked_message(kind, payload, urgent, self.network.limits)
        link = self._connections.current(name)
        return link is not None and link.send(kind, payload, urgent)

    def writable(self, name: str) -> bool:
        link = self._connections.current(name)
        return link is not None and link.writable(urgent=False)

    def backlog(self, name: str) -> int:
        link = self._connections.current(name)
        return link.waiting_bytes if link else 0

    def problems(self) -> Mapping[str, str]:
        return {key[0] or key[1]: problem for key, problem in self._wanted.items() if not self._reached(key)}

    def links(self) -> list[MemoryLink]:
        """This end of every connection."""
        return list(self._connections)

    def arrived(self, link: MemoryLink, kind: int, payload: bytes) -> None:
        """A message came."""
        if not link.superseded:
            self._events.on_frame(link.peer.name, link.peer.incarnation, link.connection_id, kind, payload)

    def ended(self, link: MemoryLink, reason: str) -> None:
        """A connection ended."""
        self._connections.remove(link)
        if self._running:
            self._events.on_disconnected(link.peer.name, link.connection_id, reason)

    def _leave(self) -> None:
        self._running = False
        self.network.leave(self)

    def _dial_all(self) -> None:
        if not self._running:
            return
        for key in self._wanted:
            if not self._reached(key):
                self.network.later(2 * self.network.delay_s(), partial(self._meet, key))
        pause_s = self.network.limits.retry_min_s * self.network.rng.uniform(0.5, 1.0)
        self.network.later(pause_s, self._dial_all)

    def _reached(self, key: tuple[str, str]) -> bool:
        name, address = key
        if name or self._connections.current(self._met.get(key, "")) is not None:
            return self._connections.current(name or self._met[key]) is not None
        return self._connections.holds_address(address)

    def _meet(self, key: tuple[str, str]) -> None:
        name, address = key
        if not self._running or key not in self._wanted or self._reached(key):
            return
        other = self.network.find(address)
        edges = ((self.own.address, address), (address, self.own.address))
        if other is None or any(self.network.is_cut(*edge) for edge in edges):
            self._wanted[key] = f"cannot connect to {address}"
            return
        try:
            self._agree(other, name)
        except RefusedError as refused:
            self._wanted[key] = refused.detail
            self._events.on_rejected(refused.reason, refused.claimed, refused.detail)
            return
        self._met[key] = other.own.name
        connection_id = f"{self.network.rng.getrandbits(64):016x}"
        mine = MemoryLink(self, other.own, connection_id, key)
        theirs = MemoryLink(other, self.own, connection_id, None)
        mine.other, theirs.other = theirs, mine
        other._opened(theirs)
        self._opened(mine)

    def _agree(self, other: MemoryTransport, name: str) -> None:
        try:
            other._judge(self, name)
        except RefusedError as refused:
            other._events.on_rejected(refused.reason, self.own, refused.detail)
            raise RefusedError(refused.reason, refused.detail, claimed=other.own, by_peer=True) from refused
        try:
            self._check(other.own, invited=True)
        except RefusedError as refused:
            other._events.on_rejected(refused.reason, self.own, refused.detail)
            raise

    def _judge(self, caller: MemoryTransport, to: str) -> None:
        if caller._secrets[0] not in self._secrets or self._secrets[0] not in caller._secrets:
            raise RefusedError(Reason.WRONG_SECRET, "the other node signs with none of the secrets of this one")
        if to not in ("", self.own.name):
            raise RefusedError(Reason.OTHER_NODE, f"this is {self.own.name!r} and not {to!r}")
        self._check(caller.own, invited=False)

    def _check(self, claimed: Identity, *, invited: bool) -> None:
        others = [n for n in self._connections.names() if n != claimed.name and not self._admission.is_member(n)]
        self._admission.check(claimed, invited=invited, strangers=len(others))

    def _opened(self, link: MemoryLink) -> None:
        found = self._connections.add(link)
        for older in (*found.surplus, *found.replaced):
            older.close("replaced by a newer connection", "the other node closed the connection")
        for older in found.doubt:
            older.superseded = True
            self.network.later(2 * self.network.delay_s(), partial(self._doubt, older))
        self._events.on_connected(link.peer, link.connection_id)

    def _doubt(self, older: MemoryLink) -> None:
        edges = (older.owner.own.address, older.other.owner.own.address)
        if older.closed or self.network.is_cut(*edges) or self.network.is_cut(*reversed(edges)):
            return
        newer = self._connections.current(older.peer.name)
        reason = "another process of this name is connected too"
        older.close(reason, reason)
        if newer is not None:
            self._events.on_duplicate(older.peer, newer.peer)

    def _review(self) -> None:
        for link in self._connections:
            try:
                self._check(link.peer, invited=link.dialled in self._wanted)
            except RefusedError as refused:
                told = partial(link.other.owner._told, refused, self.own)
                link.close(refused.detail, refused.detail)
                self._events.on_rejected(refused.reason, link.peer, refused.detail)
                self.network.later(self.network.delay_s(), told)

    def _told(self, refused: RefusedError, by: Identity) -> None:
        if self._running:
            self._events.on_rejected(refused.reason, by, refused.detail)
