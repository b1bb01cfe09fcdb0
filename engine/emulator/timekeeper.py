"""The thread that lets due things happen: sleeps until the earliest of them, or until it is told of an earlier one."""

from __future__ import annotations

import logging
import threading

from engine.emulator import limits
from engine.emulator.broker import Broker
from engine.emulator.clock import NS_PER_S

logger = logging.getLogger(__name__)


class Timekeeper:
    """Drives `Broker.advance`.

    By the system's clock from a thread of its own, by a manual clock in the mover's thread.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._runtime = broker.runtime
        self._changed = threading.Condition(self._runtime.lock)
        self._wake_ns = 0
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._runtime.wake = self._wake
        self._runtime.clock.on_move(self._moved)

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="emulator-timekeeper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        with self._runtime.lock:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _wake(self, due_ns: int) -> None:
        """Something becomes due.

        Called with the lock held, and nearly always for something later than the next wake.
        """
        if due_ns < self._wake_ns:
            self._changed.notify_all()

    def _moved(self) -> None:
        self._broker.advance()
        with self._runtime.lock:
            self._changed.notify_all()

    def _run(self) -> None:
        clock = self._runtime.clock
        with self._runtime.lock:
            while not self._stopping:
                try:
                    due_ns = self._broker.advance()
                except Exception:
                    logger.exception("The timekeeper met an error and goes on", extra={"action": "advance_failed"})
                    due_ns = None
                soonest_ns = clock.now_ns() + round(limits.HOUSEKEEPING_S * NS_PER_S)
                self._wake_ns = soonest_ns if due_ns is None else min(due_ns, soonest_ns)
                wait_s = clock.wait_s(self._wake_ns)
                self._changed.wait(wait_s)
