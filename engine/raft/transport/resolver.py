"""Resolving host names beside the transport's thread, because `getaddrinfo` blocks for as long as it likes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from engine.raft.transport.address import HostPort, SocketAddress, look_up

LookUp = Callable[[str, int], list[SocketAddress]]


class Lookup:
    """One question; `done` turns true once, then `addresses` or `error` is there."""

    def __init__(self) -> None:
        self.done = False
        self.addresses: list[SocketAddress] = []
        self.error: OSError | None = None

    def finish(self, addresses: list[SocketAddress], error: OSError | None) -> None:
        """Give the answer."""
        self.addresses, self.error = addresses, error
        self.done = True


class Resolver:
    """Answers each question in a thread of its own, bounded in number; nothing is cached.

    A resolver that hangs keeps its thread until it returns: with `threads_max` of them hanging, further questions fail
    at once. Questions for a name that is being asked for already share its answer.
    """

    def __init__(self, threads_max: int, wake: Callable[[], None], ask: LookUp = look_up) -> None:
        self._threads_max = threads_max
        self._wake: Final = wake
        self._ask: Final = ask
        self._lock = threading.Lock()
        self._running: dict[HostPort, Lookup] = {}

    def look_up(self, target: HostPort) -> Lookup:
        """Begin to resolve; `wake` is called, from another thread, when the answer is there."""
        if target.is_literal:
            lookup = Lookup()
            self._answer(lookup, target)
            return lookup
        with self._lock:
            running = self._running.get(target)
            if running is not None:
                return running
            lookup = Lookup()
            if len(self._running) >= self._threads_max:
                lookup.finish([], OSError("too many names are being resolved, the resolver does not answer"))
                return lookup
            self._running[target] = lookup
        threading.Thread(target=self._run, args=(lookup, target), name="transport-resolver", daemon=True).start()
        return lookup

    def _run(self, lookup: Lookup, target: HostPort) -> None:
        try:
            self._answer(lookup, target)
        finally:
            with self._lock:
                del self._running[target]
            self._wake()

    def _answer(self, lookup: Lookup, target: HostPort) -> None:
        try:
            lookup.finish(self._ask(target.host, target.port), None)
        except (OSError, UnicodeError) as error:
            reason = error if isinstance(error, OSError) else OSError(f"no host name: {error}")
            lookup.finish([], reason)
