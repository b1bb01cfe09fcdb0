"""The transport over TCP: one port, one thread (or a caller who polls), all members."""

from __future__ import annotations

import os
import random
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import msgspec

from engine.clock import Clock, SystemClock
from engine.config import TransportLimits
from engine.raft.transport.address import look_up, parse_address
from engine.raft.transport.admission import Admission, RefusedError
from engine.raft.transport.connections import Connections
from engine.raft.transport.dial import Dial, tune
from engine.raft.transport.fragments import checked_message
from engine.raft.transport.handshake import Acceptor, Initiator
from engine.raft.transport.link import Link
from engine.raft.transport.listener import Listener
from engine.raft.transport.reports import Reports
from engine.raft.transport.resolver import LookUp, Resolver
from engine.raft.transport.transport import Events, Identity, Reason
from engine.raft.transport.waker import Waker


class TcpTransport:
    """See `transport.Transport`; besides, `poll` for those who start it with `threaded=False`."""

    def __init__(
        self,
        own: Identity,
        events: Events,
        *,
        bind_host: str,
        port: int,
        secrets: Sequence[bytes],
        limits: TransportLimits,
        clock: Clock | None = None,
        threaded: bool = True,
        ask: LookUp = look_up,
    ) -> None:
        self._events = events
        self._bind = (bind_host, port)
        self._secrets = tuple(secrets)
        self._limits = limits
        self._clock = clock or SystemClock()
        self._threaded = threaded
        self._rng = random.SystemRandom()
        self._admission = Admission(own, limits)
        self._connections: Connections[Link] = Connections(own.name, limits)
        self._arriving: dict[Link, None] = {}
        """Accepted and not authenticated, oldest first."""
        self._dials: dict[tuple[str, str], Dial] = {}
        self._dialled: dict[Link, Dial] = {}
        self._commands: deque[Callable[[], None]] = deque()
        self._dirty: deque[Link] = deque()
        self._reports = Reports(limits.log_period_s)
        self._selector = selectors.DefaultSelector()
        self._waker = Waker()
        self._resolver = Resolver(limits.resolvers_max, self._wake, ask)
        self._listener: Listener | None = None
        self._listening = False
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._tended_s = 0.0
        self._turned_s = self._clock.elapsed_s()

    @property
    def port(self) -> int:
        """Where it listens; only after the start."""
        assert self._listener is not None
        return self._listener.port

    def start(self) -> None:
        """Listen, and begin to connect; ConfigError when the port cannot be bound."""
        self._listener = Listener(*self._bind, self._limits)
        self._waker.open(self._selector)
        self._listen()
        self._reports.listening(self._bind[0], self.port, self._secrets)
        if self._threaded:
            self._thread = threading.Thread(target=self._run, name="transport", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Send what waits, say goodbye, close; takes at most about `close_timeout_s`. Repeating it does nothing."""
        if self._stopping or self._listener is None:
            return
        self._stopping = True
        self._wake()
        if self._thread is None:
            self._finish()
        elif self._thread is not threading.current_thread():
            self._thread.join()

    def set_members(self, members: Mapping[str, str], *, seeds: Collection[str] = (), strangers: bool = False) -> None:
        for address in (*members.values(), *seeds):
            parse_address(address)
        self._command(partial(self._set_members, dict(members), tuple(seeds), strangers))

    def set_cluster_id(self, cluster_id: str) -> None:
        self._command(partial(self._set_cluster_id, cluster_id))

    def fence(self, name: str, incarnation: str, process: str | None = None) -> None:
        self._command(partial(self._fence, name, incarnation, process))

    def send(self, name: str, kind: int, payload: bytes, *, urgent: bool = False) -> bool:
        checked_message(kind, payload, urgent, self._limits)
        link = self._connections.current(name)
        if link is None or not link.outbox.push(kind, payload, urgent):
            return False
        if not link.dirty:
            link.dirty = True
            self._dirty.append(link)
            self._wake()
        return True

    def writable(self, name: str) -> bool:
        link = self._connections.current(name)
        return link is not None and link.outbox.writable

    def backlog(self, name: str) -> int:
        link = self._connections.current(name)
        return link.waiting_bytes if link else 0

    def problems(self) -> Mapping[str, str]:
        dials = list(self._dials.values())
        return {dial.name or dial.address: dial.problem for dial in dials if not self._connected(dial)}

    def poll(self, timeout_s: float) -> None:
        """One turn of at most `timeout_s` and `tick_s`; always from one thread, never from within a callback."""
        ready = self._selector.select(min(timeout_s, self._limits.tick_s) if not self._dirty else 0)
        now_s = self._clock.elapsed_s()
        self._forgive_own_stall(now_s)
        for key, mask in ready:
            if isinstance(key.data, Link):
                self._handle(key.data, mask, now_s)
            elif key.fileobj is self._waker.watched:
                self._waker.woken()
            elif isinstance(key.fileobj, socket.socket):
                self._accept(key.fileobj, now_s)
        while self._commands:
            self._commands.popleft()()
        if now_s - self._tended_s >= self._limits.tick_s or not ready:
            self._tended_s = now_s
            self._tend(now_s)
        for _ in range(len(self._dirty)):
            link = self._dirty.popleft()
            link.dirty = False
            link.flush()

    # What a link reports.

    def link_opened(self, link: Link) -> None:
        self._arriving.pop(link, None)
        dial = self._dialled.get(link)
        peer = link.peer
        self._check(peer, invited=dial is not None)
        if dial is not None:
            dial.succeeded(peer.name)
        now_s = self._clock.elapsed_s()
        found = self._connections.add(link)
        self._reports.connected(peer, link.connection_id)
        for older in found.surplus:
            older.close("too many connections to this name")
        for older in found.replaced:
            older.goodbye("replaced by a newer connection")
        for older in found.doubt:
            older.supersede(now_s)
        self._events.on_connected(peer, link.connection_id)

    def link_message(self, link: Link, kind: int, payload: bytes) -> None:
        self._events.on_frame(link.peer.name, link.peer.incarnation, link.connection_id, kind, payload)

    def link_alive(self, link: Link) -> None:
        newer = self._connections.current(link.peer.name)
        link.close("another process of this name is connected too")
        if newer is None:
            return
        self._reports.duplicate(link.peer, newer.peer)
        self._events.on_duplicate(link.peer, newer.peer)

    def link_leaving(self, link: Link) -> None:
        self._connections.review(link.peer.name)

    def link_closed(self, link: Link, reason: str, refused: RefusedError | None) -> None:
        self._selector.unregister(link.socket)
        self._arriving.pop(link, None)
        now_s = self._clock.elapsed_s()
        opened = link.session is not None and link in self._connections
        dial = self._dialled.pop(link, None)
        if dial is not None and dial.link is link:
            dial.failed(now_s, reason, lived_s=now_s - link.opened_s if opened else 0.0)
        if opened:
            self._connections.remove(link)
            self._reports.disconnected(link.peer, link.connection_id, reason)
        if refused is not None:
            claimed = refused.claimed or (link.session.peer if link.session else link.unproven())
            address = claimed.address if claimed else (dial.address if dial else "")
            self._reports.refused(refused, claimed, address, now_s)
            self._events.on_rejected(refused.reason, claimed, refused.detail)
        elif dial is not None and not opened and not self._stopping:
            self._reports.unreachable(dial.name, dial.address, reason, now_s)
        if opened:
            self._events.on_disconnected(link.peer.name, link.connection_id, reason)

    def link_interest(self, link: Link) -> None:
        self._selector.modify(link.socket, _mask(link), link)

    # The loop.

    def _run(self) -> None:
        try:
            while not self._stopping:
                self.poll(self._limits.tick_s)
            self._finish()
        except Exception as error:
            self._reports.failed(error)
            self._stopping = True
            self._release()
            self._events.on_fatal(error)

    def _finish(self) -> None:
        """Send what waits, say goodbye, wait until the others have read it, and close whatever is left."""
        until_s = self._clock.elapsed_s() + self._limits.close_timeout_s
        assert self._listener is not None
        self._unlisten()
        self._listener.close()
        self._dials.clear()
        for link in [*self._arriving, *self._dialled]:
            if link.session is None:
                link.close("this node is stopping")
        for link in self._connections:
            link.goodbye("the other node is stopping")
        while self._clock.elapsed_s() < until_s and list(self._connections):
            self.poll(self._limits.tick_s)
        for link in self._connections:
            link.close("this node is stopping")
        self._release()

    def _release(self) -> None:
        """Give every socket back, whatever is going on."""
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        if self._listener is not None:
            self._listener.close()
        self._selector.close()
        self._waker.close()

    def _wake(self) -> None:
        if threading.current_thread() is not self._thread:
            self._waker.wake()

    def _command(self, command: Callable[[], None]) -> None:
        self._commands.append(command)
        self._wake()

    def _forgive_own_stall(self, now_s: float) -> None:
        """What this process did not read while it stood still says nothing about the others."""
        gap_s = now_s - self._turned_s
        self._turned_s = now_s
        if gap_s > self._limits.ping_period_s:
            for link in self._connections:
                link.heard_s += gap_s

    def _handle(self, link: Link, mask: int, now_s: float) -> None:
        if link.closed:
            return
        if link.connecting:
            dial = self._dialled[link]
            code = link.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                link.close(f"cannot connect to {dial.address}: {os.strerror(code)}")
            else:
                link.connected(now_s)
            return
        if mask & selectors.EVENT_READ:
            link.readable(now_s)
        if mask & selectors.EVENT_WRITE and not link.closed:
            link.flush()

    def _tend(self, now_s: float) -> None:
        limits = self._limits
        if not self._listening and not self._stopping and self._listener and now_s >= self._listener.paused_until_s:
            self._listen()
        late = [link for link in self._arriving if now_s - link.opened_s >= limits.handshake_timeout_s]
        for link in late:
            link.refuse(RefusedError(Reason.BAD_HANDSHAKE, "the handshake took too long", claimed=link.unproven()))
        for link, dial in list(self._dialled.items()):
            if link.session is None:
                patience_s = limits.connect_timeout_s if link.connecting else limits.handshake_timeout_s
                if now_s - link.opened_s >= patience_s:
                    what = "cannot connect" if link.connecting else "no handshake"
                    link.close(f"{what} within {patience_s:g} s at {dial.address}")
        for link in self._connections:
            if now_s - link.heard_s >= limits.idle_timeout_s:
                link.close(f"no sign of life for {limits.idle_timeout_s:g} s")
            elif now_s - link.asked_s >= limits.ping_period_s:
                link.ping(now_s)
        for dial in [] if self._stopping else list(self._dials.values()):
            if dial.link is None and not self._connected(dial):
                self._dial(dial, now_s)

    def _dial(self, dial: Dial, now_s: float) -> None:
        before = dial.problem
        connection = dial.next_socket(now_s, self._resolver)
        if connection is None:
            if dial.problem != before:
                self._reports.unreachable(dial.name, dial.address, dial.problem, now_s)
            return
        tune(connection, self._limits)
        initiator = Initiator(self._admission.own, dial.name, self._secrets)
        dial.link = link = Link(connection, initiator, self, self._limits, now_s, connecting=True)
        self._dialled[link] = dial
        self._selector.register(connection, _mask(link), link)

    def _accept(self, listening: socket.socket, now_s: float) -> None:
        assert self._listener is not None
        for connection in self._listener.accept(listening, now_s):
            tune(connection, self._limits)
            acceptor = Acceptor(self._admission.own, self._secrets, self._check)
            link = Link(connection, acceptor, self, self._limits, now_s)
            self._selector.register(connection, _mask(link), link)
            self._arriving[link] = None
            if len(self._arriving) > self._limits.arriving_max:
                self._reports.crowded(now_s)
                next(iter(self._arriving)).close("too many connections without a handshake")
        if self._listener.paused_until_s > now_s:
            self._unlisten()

    def _listen(self) -> None:
        assert self._listener is not None
        for listening in self._listener.sockets:
            self._selector.register(listening, selectors.EVENT_READ)
        self._listening = True

    def _unlisten(self) -> None:
        assert self._listener is not None
        if self._listening:
            for listening in self._listener.sockets:
                self._selector.unregister(listening)
        self._listening = False

    # Who is welcome.

    def _check(self, claimed: Identity, *, invited: bool = False) -> None:
        others = [n for n in self._connections.names() if n != claimed.name and not self._admission.is_member(n)]
        self._admission.check(claimed, invited=invited, strangers=len(others))

    def _connected(self, dial: Dial) -> bool:
        if dial.name or self._connections.current(dial.met) is not None:
            return self._connections.current(dial.met) is not None
        return self._connections.holds_address(dial.address)

    def _set_members(self, members: dict[str, str], seeds: tuple[str, ...], strangers: bool) -> None:
        own = self._admission.own
        self._admission.set_members(members, strangers)
        wanted = [item for item in members.items() if item[0] != own.name]
        wanted += [("", seed) for seed in seeds if seed != own.address]
        now_s = self._clock.elapsed_s()
        former, self._dials = self._dials, {}
        for name, address in wanted:
            key = (name, address)
            kept = former.pop(key) if key in former else None
            # Of two nodes that learn of each other at once, one dials first and the other need not.
            wait_s = self._limits.retry_min_s * (self._rng.random() if not name else name < own.name)
            self._dials[key] = kept or Dial(name, address, self._limits, now_s + wait_s, self._rng)
        for dial in former.values():
            if dial.link is not None and dial.link.session is None:
                dial.link.close("its address has changed, or it is no member any more")
        self._review()

    def _set_cluster_id(self, cluster_id: str) -> None:
        self._admission.own = msgspec.structs.replace(self._admission.own, cluster_id=cluster_id)
        self._review()

    def _fence(self, name: str, incarnation: str, process: str | None) -> None:
        self._admission.fence(name, incarnation, process)
        self._review()

    def _review(self) -> None:
        """Close the connections to those who are not welcome any more, and tell them why."""
        for link in self._connections:
            dial = self._dialled.get(link)
            try:
                self._check(link.peer, invited=dial is not None and (dial.name, dial.address) in self._dials)
            except RefusedError as refused:
                link.refuse(refused)


def _mask(link: Link) -> int:
    return selectors.EVENT_READ | (selectors.EVENT_WRITE if link.wants_write else 0)
