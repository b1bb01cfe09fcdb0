"""Logs of one member over given files, and waiting for what they do."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from engine.clock import SystemClock
from engine.config import JournalLimits
from engine.raft.files import Files
from engine.raft.single import SingleMemberLog
from tests.contract.log.harness import SMALL, Recorder

QUICK = replace(SMALL, full_retry_min_s=0.005, full_retry_max_s=0.02)


def until(condition: Callable[[], object], what: str, timeout_s: float = 20) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"in time: {what}"
        time.sleep(0.002)


def open_log(
    directory: Path,
    state: Recorder,
    *,
    files: Files | None = None,
    limits: JournalLimits = QUICK,
    applied: tuple[int, int] = (0, 0),
    on_sync: Callable[[float], None] | None = None,
) -> SingleMemberLog:
    state.index, state.term = applied
    return SingleMemberLog(
        directory,
        state.apply,
        applied_index=applied[0],
        applied_term=applied[1],
        limits=limits,
        clock=SystemClock(),
        node_addr="node-a:5559",
        advance=state.advance,
        on_leadership=state.on_leadership,
        on_fatal=state.on_fatal,
        on_sync=on_sync,
        files=files,
    )
