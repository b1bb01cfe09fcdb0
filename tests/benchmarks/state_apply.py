"""What the state costs: `python -m tests.benchmarks.state_apply [messages]`; about 20 s for 1,000,000.

Prints CPU and wall microseconds per message or row, resident memory, and the longest time that one step held the GIL
while a million keys were loaded.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from engine import commands as c
from engine.config import StateLimits
from engine.model import Destination, DestinationConfig, Policy, Source, SourceConfig
from engine.state.rows import slot_of
from engine.state.state import State
from engine.state.timeline import Timeline

BATCH = 500
CONFIRM = 4000
BODY = os.urandom(242)
DUE_MS = 1_800_000_000_000 - 1_800_000_000_000 % (1 << 20)
NOW_MS = 1_700_000_000_000


def resident_mb() -> float:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def measured(what: str, n: int, work: Callable[[], object]) -> object:
    """Run `work` once and print its cost for each of `n`."""
    wall, cpu = time.perf_counter(), time.thread_time()
    result = work()
    wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
    print(f"{what:46} {cpu / n * 1e6:8.2f} µs CPU {wall / n * 1e6:8.2f} µs wall   each, {wall:6.2f} s in all")
    return result


def create() -> bytes:
    """The one channel."""
    return c.encode(
        c.CreateChannel(
            stamp_ms=NOW_MS,
            id="bench",
            name="bench",
            source=Source(config=SourceConfig(project_id="p", subscription_id="s")),
            destination=Destination(config=DestinationConfig(project_id="p", topic_id="t")),
            policy=Policy(),
        )
    )


def accept(batch: int, due_ms: int, n: int = BATCH) -> bytes:
    """An Accept of `n` new messages of 250 bytes."""
    first = batch * BATCH
    return c.encode(
        c.Accept(
            stamp_ms=NOW_MS + batch * 20,
            channel_uid=1,
            subscription="projects/p/subscriptions/s",
            source_ids=[f"{7_000_000_000_000_000 + first + i}" for i in range(n)],
            publish_us=[NOW_MS * 1000 + first + i for i in range(n)],
            dues_ms=[due_ms + i % 1000 for i in range(n)],
            payloads=[BODY + (first + i).to_bytes(8, "big") for i in range(n)],
        )
    )


def confirm(seqs: range) -> bytes:
    """A Confirm of these."""
    return c.encode(c.Confirm(stamp_ms=NOW_MS, channel_uid=1, seqs=list(seqs)))


class Bench:
    """A state that is fed entry by entry."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = State.open(path, StateLimits())
        self.apply(create())

    def apply(self, *entries: bytes) -> None:
        """The next entries."""
        self.state.apply(self.state.applied_index + 1, 1, entries)

    def fill(self, messages: int) -> None:
        """Make this many pending, with a boundary every 40,000."""
        cpu = written = 0.0
        for batch in range(messages // BATCH):
            entry = accept(batch, DUE_MS)
            start = time.thread_time()
            self.apply(entry)
            cpu += time.thread_time() - start
            if batch % 80 == 79:
                start = time.perf_counter()
                self.state.boundary()
                self.state.tidy()
                written += time.perf_counter() - start
        self.state.boundary()
        print(f"{'accept, 500 an entry':46} {cpu / messages * 1e6:8.2f} µs CPU")
        print(f"{'boundary, per row written':46} {'':15} {written / messages * 1e6:8.2f} µs wall")
        print(f"{'resident with all pending':46} {resident_mb():8.0f} MB")

    def load(self) -> None:
        """The window of all pending messages, beside a thread that notices how long it is kept waiting."""
        gaps = [0.0]
        stop = threading.Event()

        def watch() -> None:
            last = time.perf_counter()
            while not stop.is_set():
                time.sleep(0.0005)
                now = time.perf_counter()
                gaps.append(now - last)
                last = now

        watcher = threading.Thread(target=watch)
        watcher.start()
        timeline = Timeline(slot_of(DUE_MS) + 1)
        for dues, seqs in self.state.window(1, slot_of(DUE_MS)):
            timeline.load(dues, seqs)
        stop.set()
        watcher.join()
        gaps.sort()
        print(f"{'  longest wait of another thread':46} {gaps[-1] * 1000:8.1f} ms   ({len(timeline)} keys)")
        dues_ms, _ = timeline.take(DUE_MS + 10_000, 1000)
        assert len(dues_ms) == 1000


def main(messages: int) -> None:
    """All measurements in one directory."""
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory) / "state.db")
        print(f"{'resident, empty':46} {resident_mb():8.0f} MB")
        bench.fill(messages)
        measured("window into a timeline, per key", messages, bench.load)
        after = messages // BATCH
        entries = [accept(after + i, NOW_MS) for i in range(80)]
        measured("accept beside them", len(entries) * BATCH, lambda: bench.apply(*entries))
        entries = [confirm(range(s, s + CONFIRM)) for s in range(messages + 1, messages + 80 * BATCH, CONFIRM)]
        measured("confirm, in memory", 80 * BATCH, lambda: bench.apply(*entries))
        entries = [accept(after + 100 + i, NOW_MS, 1) for i in range(1000)]
        measured("accept, 1 an entry", 1000, lambda: bench.apply(*entries))
        entries = [accept(i, NOW_MS) for i in range(40)]
        measured("accept of duplicates", len(entries) * BATCH, lambda: bench.apply(*entries))
        chunks = [list(range(s, s + BATCH)) for s in range(1, 20_000, BATCH)]
        measured("get, from the file", 20_000, lambda: [bench.state.get(chunk) for chunk in chunks])
        entries = [confirm(range(s, s + BATCH)) for s in range(1, 20_000, BATCH)]
        measured("confirm, in the file", 20_000, lambda: bench.apply(*entries))
        measured("boundary of their deletes", 20_000, bench.state.boundary)
        measured("closing", 1, bench.state.close)
        state = measured("opening again", 1, lambda: State.open(bench.path, StateLimits()))
        assert isinstance(state, State)
        state.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
