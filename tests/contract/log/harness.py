"""A state that remembers what it was told, and the two logs under one constructor."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from engine.clock import SystemClock
from engine.config import JournalLimits
from engine.raft.log import Log
from engine.raft.memory import MemoryLog, MemoryStorage
from engine.raft.single import SingleMemberLog

SMALL = JournalLimits(
    segment_bytes=2000, entry_bytes=5000, tail_bytes=3000, queue_bytes=200_000, group_bytes=4000, apply_slice_s=0.02
)


class Recorder:
    """A state: keeps every entry in order, answers each with its payload reversed."""

    def __init__(self) -> None:
        self.index = 0
        self.term = 0
        self.applied: list[tuple[int, int, bytes]] = []
        self.leadership: list[tuple[bool, int]] = []
        self.errors: list[Exception] = []
        self.threads: set[str] = set()
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.fatal_seen = threading.Event()
        self.leads = threading.Event()

    def apply(self, first_index: int, term: int, payloads: Sequence[bytes]) -> Sequence[Any]:
        self.gate.wait(30)
        if self.error is not None:
            raise self.error
        assert first_index == self.index + 1, "no entry is skipped or repeated"
        self.threads.add(threading.current_thread().name)
        for offset, payload in enumerate(payloads):
            self.applied.append((first_index + offset, term, bytes(payload)))
        self.index = first_index + len(payloads) - 1
        self.term = term
        return [payload[::-1] for payload in payloads]

    def advance(self, index: int, term: int) -> None:
        assert index == self.index + 1, "no entry is skipped or repeated"
        self.index = index
        self.term = term

    def on_leadership(self, leads: bool, term: int) -> None:
        self.leadership.append((leads, term))
        if leads:
            self.leads.set()

    def on_fatal(self, error: Exception) -> None:
        self.errors.append(error)
        self.fatal_seen.set()

    @property
    def commands(self) -> list[bytes]:
        return [payload for _index, _term, payload in self.applied]


class Bench(Protocol):
    """One kind of log with storage that outlives it."""

    def open(self, state: Recorder, *, applied: tuple[int, int] = (0, 0), limits: JournalLimits = SMALL) -> Log: ...


class MemoryBench:
    def __init__(self, _directory: Path) -> None:
        self._storage = MemoryStorage()

    def open(self, state: Recorder, *, applied: tuple[int, int] = (0, 0), limits: JournalLimits = SMALL) -> Log:
        state.index, state.term = applied
        return MemoryLog(
            state.apply,
            applied_index=applied[0],
            applied_term=applied[1],
            limits=limits,
            node_addr="node-a:5559",
            advance=state.advance,
            on_leadership=state.on_leadership,
            on_fatal=state.on_fatal,
            storage=self._storage,
        )


class SingleBench:
    def __init__(self, directory: Path) -> None:
        self._directory = directory / "log"

    def open(self, state: Recorder, *, applied: tuple[int, int] = (0, 0), limits: JournalLimits = SMALL) -> Log:
        state.index, state.term = applied
        return SingleMemberLog(
            self._directory,
            state.apply,
            applied_index=applied[0],
            applied_term=applied[1],
            limits=limits,
            clock=SystemClock(),
            node_addr="node-a:5559",
            advance=state.advance,
            on_leadership=state.on_leadership,
            on_fatal=state.on_fatal,
        )


BENCHES: dict[str, Callable[[Path], Bench]] = {"memory": MemoryBench, "single": SingleBench}
