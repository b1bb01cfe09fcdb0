"""Who waits for what: futures of submitted entries by index, and barriers by applied index.

Not safe for threads: its log guards it. Futures are resolved by the log, without holding a lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from engine.errors import OutcomeUnknown
from engine.raft.tail import cost


class Pending:
    """Bounded by its log: `bytes` is what the waiting entries count in its budget."""

    def __init__(self) -> None:
        self._futures: deque[tuple[int, int, Future[Any]]] = deque()
        self._barriers: deque[tuple[int, Future[int]]] = deque()
        self.bytes = 0

    def add(self, index: int, payload: bytes) -> Future[Any]:
        """A future for the entry just appended; it cannot be cancelled, because the entry cannot."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        size = cost(payload)
        self._futures.append((index, size, future))
        self.bytes += size
        return future

    def add_barrier(self, index: int) -> Future[int]:
        """A future for the moment when `index` is applied; barriers come with rising indexes."""
        future: Future[int] = Future()
        future.set_running_or_notify_cancel()
        self._barriers.append((index, future))
        return future

    def take(self, through: int) -> list[tuple[int, Future[Any]]]:
        """Index and future of the entries up to `through`, in order."""
        taken: list[tuple[int, Future[Any]]] = []
        while self._futures and self._futures[0][0] <= through:
            index, size, future = self._futures.popleft()
            self.bytes -= size
            taken.append((index, future))
        return taken

    def take_barriers(self, applied_index: int) -> list[Future[int]]:
        """Barriers that are reached."""
        taken: list[Future[int]] = []
        while self._barriers and self._barriers[0][0] <= applied_index:
            taken.append(self._barriers.popleft()[1])
        return taken

    def take_all(self) -> list[Future[Any]]:
        """Everything that waits, because the log stops."""
        taken: list[Future[Any]] = [future for _index, _size, future in self._futures]
        taken += [future for _index, future in self._barriers]
        self._futures.clear()
        self._barriers.clear()
        self.bytes = 0
        return taken


def fail(futures: Sequence[Future[Any]], why: str) -> None:
    """Tell those who wait that the outcome will not be learnt here."""
    for future in futures:
        future.set_exception(OutcomeUnknown(f"{why} The command may have been stored; repeat it with the same key."))
