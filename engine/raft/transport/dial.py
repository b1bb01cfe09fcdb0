"""Reaching one address: resolve, try each of its addresses, wait longer after each failure, begin anew."""

from __future__ import annotations

import errno
import random
import socket
from collections import deque

from engine.config import TransportLimits
from engine.raft.transport.address import HostPort, SocketAddress, parse_address
from engine.raft.transport.link import Link
from engine.raft.transport.resolver import Lookup, Resolver


class Dial:
    """What one member's, or one seed's, next connection needs to know. Used by the transport's thread only."""

    def __init__(self, name: str, address: str, limits: TransportLimits, first_s: float, rng: random.Random) -> None:
        """The first attempt is made at `first_s`."""
        self.name = name
        """The member's name; empty for a seed."""
        self.address = address
        self.met = name
        """Who answered there last: a seed may be another spelling of an address that the node itself does not use."""
        self.link: Link | None = None
        """The connection being made, or made, by this dial."""
        self.problem = "it has not been reached yet"
        """A sentence with the last failure."""
        self._target: HostPort = parse_address(address)
        self._limits = limits
        self._rng = rng
        self._pause_s = limits.retry_min_s
        self._retry_s = first_s
        self._lookup: Lookup | None = None
        self._lookup_until_s = 0.0
        self._addresses: deque[SocketAddress] = deque()

    def next_socket(self, now_s: float, resolver: Resolver) -> socket.socket | None:
        """A socket whose connecting has begun; None while it is not time, or the name is being resolved."""
        if self._addresses:
            return self._begin(now_s)
        if self._lookup is None:
            if now_s < self._retry_s:
                return None
            self._lookup = resolver.look_up(self._target)
            self._lookup_until_s = now_s + self._limits.resolve_timeout_s
        if not self._lookup.done:
            if now_s >= self._lookup_until_s:
                self._lookup = None
                self.failed(now_s, f"cannot resolve {self._target.host!r}: the resolver does not answer")
            return None
        lookup, self._lookup = self._lookup, None
        if lookup.error is not None:
            reason = lookup.error.strerror or str(lookup.error)
            self.failed(now_s, f"cannot resolve {self._target.host!r}: {reason}")
            return None
        self._addresses.extend(lookup.addresses[: self._limits.addresses_max])
        return self._begin(now_s)

    def failed(self, now_s: float, problem: str, *, lived_s: float = 0.0) -> None:
        """Note what failed; the next address is tried at once, and after the last one there is a pause.

        Pauses grow until a connection has lived for a while: one that is refused right after it opened is no success.
        """
        self.problem = problem
        self.link = None
        if lived_s >= self._limits.settled_s:
            self._pause_s = self._limits.retry_min_s
        if self._addresses:
            return
        self._retry_s = now_s + self._pause_s * self._rng.uniform(0.5, 1.0)
        self._pause_s = min(self._pause_s * 2, self._limits.retry_max_s)

    def succeeded(self, name: str) -> None:
        """The handshake is done: the other addresses are of no interest."""
        self.met = name
        self._addresses.clear()

    def _begin(self, now_s: float) -> socket.socket | None:
        target = self._addresses.popleft()
        try:
            connection = socket.socket(target.family, socket.SOCK_STREAM)
        except OSError as error:
            self.failed(now_s, f"cannot open a socket for {self.address}: {error.strerror}")
            return None
        connection.setblocking(False)
        code = connection.connect_ex(target.address)
        if code not in (0, errno.EINPROGRESS):
            connection.close()
            self.failed(now_s, f"cannot connect to {self.address}: {errno.errorcode.get(code, code)}")
            return None
        return connection


def tune(connection: socket.socket, limits: TransportLimits) -> None:
    """Small messages leave at once, little waits in the kernel, and what is not confirmed in time ends it."""
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, limits.unsent_bytes)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(limits.idle_timeout_s * 1000))
