"""The time by which the local Pub/Sub lives: the system's, or one that tests move.

Deadlines, back-off, retention, expiration and publish times all follow the clock. What a caller waits for on the wire
(an empty Pull, a delayed call) is real time: nobody could move a clock while waiting for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

NS_PER_S = 1_000_000_000


class Clock(Protocol):
    """A source of the current time that tells when it jumps."""

    def now_ns(self) -> int:
        """Nanoseconds since the epoch."""
        ...

    def wait_s(self, due_ns: int) -> float | None:
        """Real seconds until `due_ns`, or None when only a move of the clock can bring it."""
        ...

    def on_move(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every move, in the mover's thread."""
        ...


class SystemClock:
    """The machine's wall clock."""

    def now_ns(self) -> int:
        """Nanoseconds since the epoch."""
        return time.time_ns()

    def wait_s(self, due_ns: int) -> float | None:
        """Real seconds until `due_ns`, never negative."""
        return max(0.0, (due_ns - time.time_ns()) / NS_PER_S)

    def on_move(self, listener: Callable[[], None]) -> None:
        """The system's clock never tells of a move."""


class ManualClock:
    """A clock that stands still until it is moved; starts at the machine's time unless told otherwise.

    `advance` returns after everything that became due has happened (leases expired, messages dead-lettered), so a
    test needs no waiting of its own.
    """

    def __init__(self, now_ns: int | None = None) -> None:
        self._lock = threading.Lock()
        self._now_ns = time.time_ns() if now_ns is None else now_ns
        self._listeners: list[Callable[[], None]] = []

    def now_ns(self) -> int:
        """Nanoseconds since the epoch."""
        return self._now_ns

    def wait_s(self, due_ns: int) -> float | None:
        """None: waiting brings nothing."""
        return None if due_ns > self._now_ns else 0.0

    def on_move(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every move, in the mover's thread."""
        self._listeners.append(listener)

    def advance(self, seconds: float) -> None:
        """Move forward by `seconds` ≥ 0."""
        if seconds < 0:
            raise ValueError(f"a clock moves forward, not by {seconds} s")
        with self._lock:
            self._now_ns += round(seconds * NS_PER_S)
        for listener in self._listeners:
            listener()
