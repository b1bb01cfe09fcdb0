"""What the kernel says about a process: CPU time and memory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Resident memory now and at its highest, in MiB."""

    now_mib: float
    peak_mib: float


def cpu_s(pids: Iterable[int]) -> float:
    """User and system time of the processes so far; one that is gone counts as 0."""
    total = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS_PER_S


def memory(pids: Iterable[int]) -> Memory:
    """Sums over the processes; shared pages count in each."""
    now = peak = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            continue
        values = {
            name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines) if "kB" in rest
        }
        now += values.get("VmRSS", 0)
        peak += values.get("VmHWM", 0)
    return Memory(now_mib=now / 1024, peak_mib=peak / 1024)
