"""The log in memory: the same behaviour without a disk, with handles by which tests bring about what rarely happens."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from engine.clock import Clock, SystemClock, wait_until
from engine.config import JournalLimits
from engine.errors import DamagedError, InvalidCommand, LimitExceeded, NoLeader, QueueFull, SchedulerError, Unavailable
from engine.raft.applying import Applier
from engine.raft.log import Advance, Apply, Entry, LogStatus, OnFatal, OnLeadership, Role
from engine.raft.pending import Pending, fail
from engine.raft.tail import cost


class MemoryStorage:
    """What outlives one MemoryLog, as a directory outlives a process: hand it to the next one."""

    def __init__(self) -> None:
        self.term = 0
        self.entries: list[Entry] = []
        """The entries from `first_index` on."""
        self.first_index = 1

    @property
    def last_index(self) -> int:
        """Index of the newest entry."""
        return self.first_index + len(self.entries) - 1

    def read(self, first: int, last: int) -> list[Entry]:
        """Entries `first..last`."""
        return self.entries[first - self.first_index : last - self.first_index + 1]


class MemoryLog:
    """A log of one member without files; see `engine.raft.log.Log` for what its methods promise."""

    def __init__(
        self,
        apply: Apply,
        *,
        applied_index: int = 0,
        applied_term: int = 0,
        limits: JournalLimits | None = None,
        clock: Clock | None = None,
        node_addr: str = "localhost:5559",
        advance: Advance | None = None,
        on_leadership: OnLeadership | None = None,
        on_fatal: OnFatal | None = None,
        storage: MemoryStorage | None = None,
    ) -> None:
        self.storage = storage or MemoryStorage()
        self._limits = limits or JournalLimits()
        self._clock = clock or SystemClock()
        self._node_addr = node_addr
        self._applier = Applier(apply, advance, self._clock, self._limits.apply_slice_s)
        self._on_leadership = on_leadership
        self._on_fatal = on_fatal
        self._check_reach(applied_index, applied_term)
        self._pending = Pending()
        self._commit_index = self.storage.last_index
        self._applied_index = applied_index
        self._leading_from: int | None = None
        self._role = Role.FOLLOWER
        self._closing = False
        self._done = False
        self._held = False
        self._disk_full = False
        self._failure: Exception | None = None
        self._fatal: str | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="log-memory", daemon=True)

    def start(self) -> None:
        with self._changed:
            if self._closing:
                return
            self._lead()
            self._thread.start()
            while not (self._role is Role.LEADER or self._fatal or self._closing or self._held or self._disk_full):
                self._changed.wait()

    def submit(self, payload: bytes) -> Future[Any]:
        if not payload:
            raise InvalidCommand("A command has at least one byte.")
        if len(payload) > self._limits.entry_bytes:
            raise LimitExceeded(f"An entry has {len(payload)} bytes; at most {self._limits.entry_bytes} are allowed.")
        with self._changed:
            if self._disk_full and self._fatal is None and not self._closing:
                raise Unavailable("The disk of this node is full.", reason="DISK_FULL")
            if self._role is not Role.LEADER or self._closing:
                raise NoLeader(self._fatal or "This node does not lead.")
            if self._pending.bytes + cost(payload) > self._limits.queue_bytes:
                raise QueueFull(f"{self._pending.bytes} bytes wait in front of the log; the limit is reached.")
            entry = Entry(self.storage.last_index + 1, self.storage.term, payload)
            self.storage.entries.append(entry)
            future = self._pending.add(entry.index, payload)
            self._changed.notify_all()
        return future

    def barrier(self) -> Future[int]:
        with self._changed:
            if self._role is not Role.LEADER:
                raise NoLeader(self._fatal or "This node does not lead.")
            future = self._pending.add_barrier(self._commit_index)
            reached = self._pending.take_barriers(self._applied_index)
            applied_index = self._applied_index
        for barrier in reached:
            barrier.set_result(applied_index)
        return future

    def compact(self, index: int) -> None:
        with self._changed:
            count = min(index, self._applied_index) - self.storage.first_index + 1
            if count > 0:
                del self.storage.entries[:count]
                self.storage.first_index += count

    def status(self) -> LogStatus:
        with self._changed:
            return LogStatus(
                role=self._role,
                term=self.storage.term,
                leader=self._node_addr if self._role is Role.LEADER else None,
                commit_index=self._commit_index,
                applied_index=self._applied_index,
                synced_index=self._commit_index,
                last_index=self.storage.last_index,
                first_index=self.storage.first_index,
                log_bytes=sum(len(entry.payload) for entry in self.storage.entries),
                fatal=self._fatal,
                disk_full=self._disk_full,
            )

    def members(self) -> tuple[str, ...]:
        return (self._node_addr,)

    def wait_applied(self, index: int, timeout_s: float) -> bool:
        with self._changed:
            wait_until(self._clock, self._changed, lambda: self._applied_index >= index or self._done, timeout_s)
            return self._applied_index >= index

    def close(self, timeout_s: float) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        with self._changed:
            if self._thread.is_alive():
                self._fatal = self._fatal or "The log was closed before it had finished."
            waiting = self._pending.take_all()
        fail(waiting, "The log was closed before this was finished.")

    def hold_commits(self) -> None:
        """Nothing is committed until `release_commits`: submissions wait."""
        with self._changed:
            self._held = True
            self._changed.notify_all()

    def release_commits(self) -> None:
        """Commit what waits, and go on as usual."""
        with self._changed:
            self._held = False
            self._changed.notify_all()

    def fill_disk(self) -> None:
        """As if the disk were full: submissions are refused, what waits goes on waiting."""
        with self._changed:
            self._disk_full = True
            self._changed.notify_all()

    def free_disk(self) -> None:
        """As if there were room again."""
        with self._changed:
            self._disk_full = False
            self._changed.notify_all()

    def fail(self, error: Exception) -> None:
        """Stop for good, as a failed sync does."""
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def lose_leadership(self, *, keep: bool = True) -> None:
        """Another node leads now: whoever waits learns that the outcome is unknown.

        With `keep` the uncommitted entries are committed by the other leader, else they are gone.
        """
        with self._changed:
            led, self._role, self._leading_from = self._role is Role.LEADER, Role.FOLLOWER, None
            if not keep:
                del self.storage.entries[max(0, self._commit_index - self.storage.first_index + 1) :]
            waiting = self._pending.take_all()
            term = self.storage.term
        fail(waiting, "Another node leads now.")
        if led and self._on_leadership is not None:
            self._on_leadership(False, term)

    def gain_leadership(self) -> None:
        """Lead again, in a later term; `on_leadership` follows when its first entry is applied."""
        with self._changed:
            self._lead()
            self._changed.notify_all()

    def _lead(self) -> None:
        self.storage.term += 1
        self._leading_from = self.storage.last_index + 1
        self.storage.entries.append(Entry(self._leading_from, self.storage.term, b""))

    def _check_reach(self, applied_index: int, applied_term: int) -> None:
        if not self.storage.first_index - 1 <= applied_index <= self.storage.last_index:
            raise DamagedError(
                f"The log holds entries {self.storage.first_index}..{self.storage.last_index}, but the state has "
                f"applied up to {applied_index}."
            )
        found = self.storage.read(applied_index, applied_index) if applied_index >= self.storage.first_index else []
        if found and found[0].term != applied_term:
            raise DamagedError(f"Entry {applied_index} has term {found[0].term}, the state says {applied_term}.")

    def _run(self) -> None:
        try:
            while (entries := self._wait()) is not None:
                run = self._applier.cut(entries, 0)
                self._answer(run, self._applier.apply(run))
            self._step_down()
        except Exception as error:
            self._stop(error)
        finally:
            with self._changed:
                self._done = True
                self._changed.notify_all()

    def _wait(self) -> list[Entry] | None:
        """Committed entries that are not applied; None when the log is closed and nothing is left."""
        with self._changed:
            while self._fatal is None:
                if self._failure is not None:
                    raise self._failure
                if not (self._held or self._disk_full):
                    self._commit_index = self.storage.last_index
                if self._commit_index > self._applied_index:
                    first = self._applied_index + 1
                    return self.storage.read(first, min(self._commit_index, first + self._applier.run_entries - 1))
                if self._closing:
                    return None
                self._changed.wait()
            return None

    def _answer(self, run: Sequence[Entry], results: Sequence[Any]) -> None:
        first, last = run[0].index, run[-1].index
        with self._changed:
            self._applied_index = last
            futures = self._pending.take(last)
            barriers = self._pending.take_barriers(last)
            gained = first == self._leading_from
            if gained:
                self._role = Role.LEADER
            self._changed.notify_all()
        for index, future in futures:
            future.set_result(results[index - first])
        for barrier in barriers:
            barrier.set_result(last)
        if gained and self._on_leadership is not None:
            self._on_leadership(True, self.storage.term)

    def _step_down(self) -> None:
        with self._changed:
            led, self._role = self._role is Role.LEADER, Role.FOLLOWER
        if led and self._on_leadership is not None:
            self._on_leadership(False, self.storage.term)

    def _stop(self, error: Exception) -> None:
        with self._changed:
            self._fatal = str(error) if isinstance(error, SchedulerError) else f"{type(error).__name__}: {error}"
            waiting = self._pending.take_all()
            self._changed.notify_all()
        fail(waiting, "The log of this node has stopped.")
        try:
            self._step_down()
        finally:
            if self._on_fatal is not None:
                self._on_fatal(error)
