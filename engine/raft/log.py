"""What the rest of the engine sees of the replicated log: one ordered sequence of opaque commands.

The interface is the same for the log in memory (tests), the log of a single member and the log of many members, and
one suite of contract tests runs over all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import msgspec

Apply = Callable[[int, int, Sequence[bytes]], Sequence[Any]]
"""`apply(first_index, term, payloads)` returns one result for each payload.

The payloads are consecutive committed entries of one term. How they are cut into calls may differ from run to run and
from node to node, so the results must not depend on it. It never raises: an exception stops the log for good.
"""

Advance = Callable[[int, int], None]
"""`advance(index, term)`: an entry without a command was passed, so that the state's applied index moves on too."""

OnLeadership = Callable[[bool, int], None]
"""`on_leadership(leads, term)`, from a thread of the log: gained after an own entry of that term was applied."""

OnFatal = Callable[[Exception], None]
"""`on_fatal(error)`, once, from a thread of the log: nothing more is committed or applied; the process should end."""


class Role(StrEnum):
    """What this member is at the moment."""

    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One place in the log; an empty payload is the entry with which a leadership begins."""

    index: int
    """From 1, without gaps."""
    term: int
    """From 1, never falling along the log."""
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStatus:
    """A picture of the log at one moment."""

    role: Role
    term: int
    leader: str | None
    """Address of the leading node, as far as this member knows."""
    commit_index: int
    applied_index: int
    synced_index: int
    """Everything up to here survives a power cut on this member."""
    last_index: int
    first_index: int
    """The oldest entry still in the log; `last_index + 1` when there is none."""
    log_bytes: int
    """Bytes of the log's segments on disk."""
    fatal: str | None
    """The sentence of the error that stopped the log, None while it works."""
    disk_full: bool = False
    """The disk has no room: nothing is accepted until there is some again; then the log goes on by itself."""


class Log(Protocol):
    """An ordered log of commands, each applied in the same order on every member.

    Payloads have at least one byte. Callbacks of futures run in the log's applying thread and must be short; they may
    call `submit`.
    """

    def start(self) -> None:
        """Replay what is committed and not yet in the state, and take part from then on.

        A single member leads when this returns, unless it failed or waits for room on the disk; `on_leadership` is
        called from the log's thread about then. Raises StorageError when the new term cannot be stored.
        """
        ...

    def submit(self, payload: bytes) -> Future[Any]:
        """Append a command; the future resolves with apply's result, in the log's thread, after apply returned.

        Raises at once, with nothing submitted: NoLeader, QueueFull, LimitExceeded (larger than one entry may be),
        Unavailable with the reason DISK_FULL. The future fails with OutcomeUnknown when the log stops or loses
        leadership before the outcome is known; the command may then still be applied later.
        """
        ...

    def barrier(self) -> Future[int]:
        """Resolve with the applied index once everything committed before the call is applied here.

        Raises NoLeader while there is none.
        """
        ...

    def compact(self, index: int) -> None:
        """Let go of old entries: the state's file holds everything up to `index`, synced.

        Whole segments go, and a bounded tail stays for members that are behind.
        """
        ...

    def status(self) -> LogStatus:
        """The figures of this moment."""
        ...

    def members(self) -> tuple[str, ...]:
        """Addresses of the members, this one included."""
        ...

    def wait_applied(self, index: int, timeout_s: float) -> bool:
        """Wait until `index` is applied here; False when the time is up or the log has stopped."""
        ...

    def close(self, timeout_s: float) -> None:
        """Refuse new commands, finish what is queued, sync, stop the threads; repeating it does nothing.

        What is not finished in time fails with OutcomeUnknown.
        """
        ...
