"""The log of a cluster with one member: every entry that is synced here is committed.

Two threads, so that neither waits for the other: one writes and syncs groups (while a group syncs, the next gathers),
one applies what is synced and answers those who wait. A lone command is written at once; nothing lingers or polls.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import structlog

from engine.clock import Clock, wait_until
from engine.config import JournalLimits
from engine.errors import InvalidCommand, LimitExceeded, NoLeader, QueueFull, SchedulerError, StorageError, Unavailable
from engine.raft.applying import Applier
from engine.raft.files import DiskFull, Files, SystemFiles
from engine.raft.journal import open_journal
from engine.raft.log import Advance, Apply, Entry, LogStatus, OnFatal, OnLeadership, Role
from engine.raft.pending import Pending, fail
from engine.raft.tail import cost

log = structlog.get_logger(__name__)


class SingleMemberLog:
    """A log of one member in a directory that nobody else uses meanwhile (its caller holds the lock).

    Opening reads and checks everything; it raises DamagedError and ConfigError with the files unchanged, and
    StorageError when the disk refuses. `applied_index` and `applied_term` are what the state's file holds, synced.
    `on_sync` is told how many seconds each group took to write and sync, in the syncing thread.
    """

    def __init__(
        self,
        directory: Path,
        apply: Apply,
        *,
        applied_index: int,
        applied_term: int,
        limits: JournalLimits,
        clock: Clock,
        node_addr: str,
        advance: Advance | None = None,
        on_leadership: OnLeadership | None = None,
        on_fatal: OnFatal | None = None,
        on_sync: Callable[[float], None] | None = None,
        files: Files | None = None,
    ) -> None:
        self._journal = open_journal(
            files or SystemFiles(), directory, limits, applied_index=applied_index, applied_term=applied_term
        )
        self._limits = limits
        self._clock = clock
        self._node_addr = node_addr
        self._applier = Applier(apply, advance, clock, limits.apply_slice_s)
        self._on_leadership = on_leadership
        self._on_fatal = on_fatal
        self._on_sync = on_sync
        self._pending = Pending()
        self._term = self._journal.meta.term
        self._commit_index = self._journal.last_index
        """Alone, whatever the log holds is committed: nobody can have another opinion."""
        self._applied_index = applied_index
        self._leading_from: int | None = None
        """Index of the entry that begins this leadership, once `start` appended it."""
        self._role = Role.FOLLOWER
        self._accepting = False
        self._closing = False
        self._disk_full = False
        self._fatal: str | None = None
        self._sync_done = False
        self._apply_done = False
        self._lock = threading.Lock()
        self._to_sync = threading.Condition(self._lock)
        self._to_apply = threading.Condition(self._lock)
        self._changed = threading.Condition(self._lock)
        """Notified when the applied index, the role or a state of failure changes."""
        self._syncer = threading.Thread(target=self._run_sync, name="log-sync", daemon=True)
        self._applying = threading.Thread(target=self._run_apply, name="log-apply", daemon=True)

    def start(self) -> None:
        self._journal.save_meta(term=self._term + 1, vote=self._journal.meta.node_name, commit_index=self._commit_index)
        with self._lock:
            if self._closing:
                return
            self._term += 1
            self._leading_from = self._journal.last_index + 1
            self._journal.append(Entry(self._leading_from, self._term, b""))
            self._syncer.start()
            self._applying.start()
        with self._changed:
            while self._role is not Role.LEADER and not (self._fatal or self._disk_full or self._closing):
                self._changed.wait()

    def submit(self, payload: bytes) -> Future[Any]:
        size = cost(payload)
        if not payload:
            raise InvalidCommand("A command has at least one byte.")
        if len(payload) > self._limits.entry_bytes:
            raise LimitExceeded(f"An entry has {len(payload)} bytes; at most {self._limits.entry_bytes} are allowed.")
        with self._lock:
            self._check_accepting()
            if self._pending.bytes + size > self._limits.queue_bytes:
                raise QueueFull(f"{self._pending.bytes} bytes wait in front of the log; the limit is reached.")
            entry = Entry(self._journal.last_index + 1, self._term, payload)
            self._journal.append(entry)
            future = self._pending.add(entry.index, payload)
            self._to_sync.notify()
        return future

    def barrier(self) -> Future[int]:
        with self._lock:
            if self._role is not Role.LEADER:
                raise NoLeader(self._fatal or "This node does not lead yet, or no longer.")
            future = self._pending.add_barrier(self._commit_index)
            reached = self._pending.take_barriers(self._applied_index)
            applied_index = self._applied_index
        for barrier in reached:
            barrier.set_result(applied_index)
        return future

    def compact(self, index: int) -> None:
        self._journal.compact(min(index, self._applied_index))

    def status(self) -> LogStatus:
        log_bytes = self._journal.bytes
        with self._lock:
            return LogStatus(
                role=self._role,
                term=self._term,
                leader=self._node_addr if self._role is Role.LEADER else None,
                commit_index=self._commit_index,
                applied_index=self._applied_index,
                synced_index=self._journal.synced_index,
                last_index=self._journal.last_index,
                first_index=self._journal.first_index,
                log_bytes=log_bytes,
                fatal=self._fatal,
                disk_full=self._disk_full,
            )

    def members(self) -> tuple[str, ...]:
        return (self._node_addr,)

    def wait_applied(self, index: int, timeout_s: float) -> bool:
        with self._changed:
            wait_until(self._clock, self._changed, lambda: self._applied_index >= index or self._apply_done, timeout_s)
            return self._applied_index >= index

    def close(self, timeout_s: float) -> None:
        with self._lock:
            first_call, self._closing, self._accepting = not self._closing, True, False
            self._to_sync.notify()
            self._to_apply.notify()
            self._changed.notify_all()
        if not first_call:
            return
        deadline_s = self._clock.elapsed_s() + timeout_s
        for thread in (self._syncer, self._applying):
            if thread.ident is not None:
                thread.join(max(0.0, deadline_s - self._clock.elapsed_s()))
        with self._lock:
            unfinished = self._pending.take_all()
            in_time = not self._syncer.is_alive() and not self._applying.is_alive()
            if not in_time:
                self._fatal = self._fatal or "The log was closed before it had finished."
        fail(unfinished, "The log was closed before this was finished.")
        if not in_time:
            log.error("The log could not finish in time.", action="log_close_timeout", unfinished=len(unfinished))
            return
        if self._fatal is None:
            self._note_commit()
        self._journal.close()
        log.info("The log is closed.", action="log_closed", applied_index=self._applied_index)

    def _note_commit(self) -> None:
        """The stored commit index is only a lower bound: a disk that refuses it now costs nothing but this line."""
        try:
            self._journal.save_meta(commit_index=self._commit_index)
        except StorageError as error:
            log.warning("The commit index was not noted while closing.", action="log_meta_failed", cause=str(error))

    def _check_accepting(self) -> None:
        if self._fatal is not None:
            raise NoLeader(f"The log of this node has stopped: {self._fatal}")
        if self._closing:
            raise NoLeader("This node is shutting down.")
        if self._disk_full:
            raise Unavailable(
                "The disk of this node is full; nothing is accepted until there is room.",
                reason="DISK_FULL",
                retry_after_s=self._limits.full_retry_max_s,
            )
        if not self._accepting:
            raise NoLeader("This node does not lead yet.")

    def _run_sync(self) -> None:
        try:
            self._sync_loop()
        except Exception as error:
            self._stop(error)
        finally:
            with self._lock:
                self._sync_done = True
                self._to_apply.notify()

    def _run_apply(self) -> None:
        try:
            self._apply_loop()
        except Exception as error:
            self._stop(error)
        finally:
            with self._lock:
                self._apply_done = True
                self._changed.notify_all()

    def _sync_loop(self) -> None:
        """Write and sync until closed; alone, what is synced is committed."""
        retry_s = self._limits.full_retry_min_s
        while self._wait_to_sync():
            began_s = self._clock.elapsed_s()
            try:
                synced = self._journal.sync(1 if self._disk_full else self._limits.group_bytes)
            except DiskFull as error:
                if not self._wait_for_room(error, retry_s):
                    return
                retry_s = min(retry_s * 2, self._limits.full_retry_max_s)
                continue
            retry_s = self._limits.full_retry_min_s
            if self._on_sync is not None:
                self._on_sync(self._clock.elapsed_s() - began_s)
            with self._lock:
                if self._disk_full:
                    self._disk_full = False
                    log.warning("There is room on the disk again: the log goes on.", action="log_disk_room")
                self._commit_index = synced
                self._to_apply.notify()

    def _wait_to_sync(self) -> bool:
        """Wait for something to sync; False when the log closes and nothing is left, or it has failed."""
        with self._to_sync:
            while self._fatal is None:
                if self._journal.last_index > self._journal.synced_index:
                    return True
                if self._closing:
                    return False
                self._to_sync.wait()
            return False

    def _wait_for_room(self, error: DiskFull, retry_s: float) -> bool:
        """Stop accepting until a later attempt succeeds; False when the log is being closed."""
        with self._to_sync:
            if not self._disk_full:
                self._disk_full = True
                self._changed.notify_all()
                log.error(
                    "The disk is full: nothing is accepted until there is room; what waits is tried again.",
                    action="log_disk_full",
                    cause=str(error),
                )
            deadline_s = self._clock.elapsed_s() + retry_s
            while not self._closing and (left_s := deadline_s - self._clock.elapsed_s()) > 0:
                self._clock.wait(self._to_sync, left_s)
            return not self._closing

    def _apply_loop(self) -> None:
        """Apply what is committed, in order, until closed and everything is applied."""
        while (target := self._wait_to_apply()) is not None:
            entries = self._journal.entries(self._applied_index + 1, target, self._limits.group_bytes)
            position = 0
            while position < len(entries) and not self._giving_up:
                run = self._applier.cut(entries, position)
                results = self._applier.apply(run)
                self._answer(run, results)
                position += len(run)
        with self._lock:
            led, self._role = self._role is Role.LEADER, Role.FOLLOWER
        if led and self._on_leadership is not None:
            self._on_leadership(False, self._term)

    def _wait_to_apply(self) -> int | None:
        with self._to_apply:
            while not self._giving_up:
                if self._commit_index > self._applied_index:
                    return self._commit_index
                if self._closing and self._sync_done:
                    return None
                self._to_apply.wait()
            return None

    @property
    def _giving_up(self) -> bool:
        """Stop applying at once: after a failure, or when closed while still replaying, since nobody waits for that."""
        return self._fatal is not None or (self._closing and self._role is not Role.LEADER)

    def _answer(self, run: Sequence[Entry], results: Sequence[Any]) -> None:
        """The run is applied: move on, then tell those who wait for it."""
        first, last = run[0].index, run[-1].index
        with self._lock:
            self._applied_index = last
            futures = self._pending.take(last)
            barriers = self._pending.take_barriers(last)
            gained = first == self._leading_from and self._fatal is None
            if gained:
                self._role = Role.LEADER
                self._accepting = not self._closing
            self._changed.notify_all()
        self._journal.release(last)
        for index, future in futures:
            future.set_result(results[index - first])
        for barrier in barriers:
            barrier.set_result(last)
        if gained:
            log.info("This node leads.", action="leadership_gained", term=self._term)
            if self._on_leadership is not None:
                self._on_leadership(True, self._term)

    def _stop(self, error: Exception) -> None:
        """Nothing more is committed or applied; everyone who waits is told, then the owner."""
        sentence = str(error) if isinstance(error, SchedulerError) else f"{type(error).__name__}: {error}"
        with self._lock:
            if self._fatal is not None:
                return
            self._fatal = sentence
            led, self._role, self._accepting = self._role is Role.LEADER, Role.FOLLOWER, False
            waiting = self._pending.take_all()
            self._to_sync.notify()
            self._to_apply.notify()
            self._changed.notify_all()
        log.critical(
            "The log has stopped: this node must be started again.",
            action="log_stopped",
            cause=sentence,
            storage=isinstance(error, StorageError),
            exc_info=error,
        )
        fail(waiting, "The log of this node has stopped.")
        try:
            if led and self._on_leadership is not None:
                self._on_leadership(False, self._term)
        finally:
            if self._on_fatal is not None:
                self._on_fatal(error)
