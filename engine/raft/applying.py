"""Handing committed entries to the state: runs of one term, cut so that no call takes longer than a slice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.clock import Clock
from engine.raft.log import Advance, Apply, Entry

_RUN_ENTRIES_MAX = 1024
"""The most entries of one call, however quick they are."""


class Applier:
    """Calls the state; keeps the length of a call near the slice by measuring."""

    def __init__(self, apply: Apply, advance: Advance | None, clock: Clock, slice_s: float) -> None:
        self._apply = apply
        self._advance = advance
        self._clock = clock
        self._slice_s = slice_s
        self.run_entries = 1
        """How many entries the next call may take: doubled while calls are quick, halved when one was too long."""

    def cut(self, entries: Sequence[Entry], position: int) -> list[Entry]:
        """The entries from `position` on that may go into one call: of one term, or a single one without command."""
        first = entries[position]
        if not first.payload:
            return [first]
        run: list[Entry] = []
        for entry in entries[position : position + self.run_entries]:
            if entry.term != first.term or not entry.payload:
                break
            run.append(entry)
        return run

    def apply(self, run: Sequence[Entry]) -> Sequence[Any]:
        """One result for each entry of a run; whatever the state raises comes through."""
        first = run[0]
        if not first.payload:
            if self._advance is not None:
                self._advance(first.index, first.term)
            return [None]
        began_s = self._clock.elapsed_s()
        results = self._apply(first.index, first.term, [entry.payload for entry in run])
        took_s = self._clock.elapsed_s() - began_s
        if len(results) != len(run):
            raise RuntimeError(f"the state gave {len(results)} results for {len(run)} entries from {first.index} on")
        if took_s > self._slice_s:
            self.run_entries = max(1, self.run_entries // 2)
        elif took_s < self._slice_s / 4 and len(run) == self.run_entries:
            self.run_entries = min(_RUN_ENTRIES_MAX, self.run_entries * 2)
        return results
