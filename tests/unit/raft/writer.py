"""A process that writes commands until it is killed, and says which of them it was told are stored."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from engine.clock import SystemClock
from engine.config import JournalLimits
from engine.raft.single import SingleMemberLog


def main(directory: Path, tag: str) -> None:
    limits = JournalLimits(segment_bytes=20_000, tail_bytes=50_000)
    log = SingleMemberLog(
        directory,
        lambda first, _term, payloads: range(first, first + len(payloads)),
        applied_index=0,
        applied_term=0,
        limits=limits,
        clock=SystemClock(),
        node_addr="localhost:0",
    )
    log.start()
    for number in range(1_000_000):
        command = f"{tag}-{number}-".encode() + b"x" * (number % 400)
        future = log.submit(command)
        future.add_done_callback(
            lambda done, number=number: os.write(1, f"stored {done.result()} {number}\n".encode())  # type: ignore[misc]
        )
        if number % 20 == 19:
            future.result()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
