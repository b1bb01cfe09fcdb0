"""Things to be done later, by one thread for all sources: repeating an ack request after a pause."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable

import structlog

from engine.clock import Clock

_log = structlog.get_logger(__name__)


class Timer:
    """Runs actions after a delay, in a thread that starts with the first of them.

    Actions must be short. Their number is bounded by the callers: each source has at most one per request in flight.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._condition = threading.Condition()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._thread: threading.Thread | None = None
        self._closed = False

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Run `action` once `delay_s` has passed; after `close` nothing is run any more."""
        with self._condition:
            if self._closed:
                return
            heapq.heappush(self._due, (self._clock.elapsed_s() + delay_s, next(self._order), action))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="pubsub-timer", daemon=True)
                self._thread.start()
            self._condition.notify_all()

    def close(self) -> None:
        """Forget what is due and end the thread."""
        with self._condition:
            self._closed = True
            self._due.clear()
            self._condition.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        """Until closed: wait for the next action and run it."""
        while True:
            with self._condition:
                while not self._closed and not (self._due and self._due[0][0] <= self._clock.elapsed_s()):
                    wait_s = self._due[0][0] - self._clock.elapsed_s() if self._due else None
                    self._clock.wait(self._condition, wait_s)
                if self._closed:
                    return
                action = heapq.heappop(self._due)[2]
            try:
                action()
            except Exception:
                _log.exception("A delayed action failed; the timer goes on.", action="timer_action_failed")
