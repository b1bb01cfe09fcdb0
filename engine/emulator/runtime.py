"""What every part of the server shares: the lock, the clock, the numbers given out, the memory in use, the counters."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable

from engine.emulator import limits
from engine.emulator.clock import Clock
from engine.emulator.errors import exhausted


class Runtime:
    """Shared state. All of it is read and written with `lock` held, except where a method says otherwise."""

    def __init__(self, clock: Clock, *, backlog_bytes_max: int) -> None:
        self.clock = clock
        self.lock = threading.RLock()
        self.counters: Counter[str] = Counter()
        self.run = os.urandom(4).hex().encode()
        """Part of every ack id, so that one from an earlier run is never taken for one of this."""
        self.held_bytes = 0
        self.backlog_bytes_max = backlog_bytes_max
        self.wake: Callable[[int], None] = lambda due_ns: None
        """Tells the timekeeper that something becomes due; set by it."""
        self._batches = time.time_ns() // 125_000
        self._groups = 0

    def next_batch(self) -> int:
        """A number for a Publish request; starts from the time, so that message ids differ between runs."""
        self._batches += 1
        return self._batches

    def next_group(self) -> int:
        """A number for a group of deliveries."""
        self._groups += 1
        return self._groups

    def hold(self, count: int, size: int) -> None:
        """Account for messages kept."""
        self.held_bytes += size + count * limits.MESSAGE_OVERHEAD_BYTES

    def free(self, count: int, size: int) -> None:
        """Account for messages let go."""
        self.held_bytes -= size + count * limits.MESSAGE_OVERHEAD_BYTES

    def require_room(self, count: int, size: int) -> None:
        """Refuse what would exceed the memory allowed for all backlogs."""
        wanted = self.held_bytes + size + count * limits.MESSAGE_OVERHEAD_BYTES
        if wanted > self.backlog_bytes_max:
            raise exhausted(
                f"The backlogs of the local Pub/Sub would take {wanted} bytes, and {self.backlog_bytes_max} are "
                f"allowed: acknowledge, seek or delete a subscription first."
            )
