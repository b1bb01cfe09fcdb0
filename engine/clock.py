"""Time as a parameter: the system's clock, and one that tests move by hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Wall time for dues and stamps, elapsed time for time-outs, and a way to wait by either."""

    def now_ms(self) -> int:
        """Wall clock: milliseconds since the epoch, UTC."""
        ...

    def elapsed_s(self) -> float:
        """Seconds that only ever grow and go on while the machine is suspended (CLOCK_BOOTTIME)."""
        ...

    def wait(self, condition: threading.Condition, timeout_s: float | None) -> bool:
        """Wait on a held condition until notified (True) or until `timeout_s` elapsed (False)."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def elapsed_s(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wait(self, condition: threading.Condition, timeout_s: float | None) -> bool:
        return condition.wait(timeout_s)


class ManualClock:
    """A clock that stands still until `advance` moves it; whoever waits for that time is woken."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._elapsed_s = 0.0
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[threading.Condition, float]] = {}
        self._next_id = 0

    def now_ms(self) -> int:
        return self._now_ms

    def elapsed_s(self) -> float:
        return self._elapsed_s

    def wait(self, condition: threading.Condition, timeout_s: float | None) -> bool:
        if timeout_s is None:
            return condition.wait()
        if timeout_s <= 0:
            return False
        with self._lock:
            self._next_id += 1
            waiter = self._next_id
            deadline_s = self._elapsed_s + timeout_s
            self._waiting[waiter] = (condition, deadline_s)
        try:
            condition.wait()
            return self._elapsed_s < deadline_s
        finally:
            with self._lock:
                self._waiting.pop(waiter, None)

    def advance(self, seconds: float) -> None:
        """Move both clocks forward and wake everyone whose time-out has come."""
        with self._lock:
            self._now_ms += round(seconds * 1000)
            self._elapsed_s += seconds
            woken = [c for c, deadline_s in self._waiting.values() if deadline_s <= self._elapsed_s]
        for condition in woken:
            with condition:
                condition.notify_all()

    def step(self, milliseconds: int) -> None:
        """Move the wall clock alone, as an NTP step does, in either direction."""
        with self._lock:
            self._now_ms += milliseconds

    def waiters(self) -> int:
        """How many threads wait with a time-out: tests use it to know that the others are at rest."""
        with self._lock:
            return len(self._waiting)


class StepWatch:
    """Notices when the wall clock was set: it moved otherwise than the elapsed time since the last look."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ms = self._offset()

    def step_ms(self) -> float:
        """How far the wall clock was set since the last call: forward positive, backward negative."""
        former_ms, self._offset_ms = self._offset_ms, self._offset()
        return self._offset_ms - former_ms

    def _offset(self) -> float:
        return self._clock.now_ms() - self._clock.elapsed_s() * 1000


def wait_until(clock: Clock, condition: threading.Condition, predicate: Callable[[], bool], timeout_s: float) -> bool:
    """Wait on a held condition until `predicate` holds or `timeout_s` has passed; say whether it holds."""
    deadline_s = clock.elapsed_s() + timeout_s
    while not predicate():
        remaining_s = deadline_s - clock.elapsed_s()
        if remaining_s <= 0:
            return False
        clock.wait(condition, remaining_s)
    return True
