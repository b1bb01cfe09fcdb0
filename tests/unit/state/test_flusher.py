"""When boundaries are written, who is told, and what a disk that refuses does."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.clock import ManualClock
from engine.errors import StorageError
from engine.state.flusher import Flusher
from tests.unit.state.builders import SMALL, World, accept, create

PATIENCE_S = 20.0


class Bench:
    """A state, its flusher and a clock that stands still."""

    def __init__(self, directory: Path, **limits: Any) -> None:
        self.synced = 1 << 40
        self.world = World(directory, replace(SMALL, **limits), synced_index=lambda: self.synced)
        self.clock = ManualClock()
        self.stored: list[int] = []
        self.fatal: list[BaseException] = []
        self.changed = threading.Condition()
        self.flusher = Flusher(self.world.state, self.clock, self.world.limits, self._on_stored, self._on_fatal)

    def _on_stored(self, index: int) -> None:
        with self.changed:
            self.stored.append(index)
            self.changed.notify_all()

    def _on_fatal(self, error: BaseException) -> None:
        with self.changed:
            self.fatal.append(error)
            self.changed.notify_all()

    def wait(self, *stored: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.stored == list(stored) or self.fatal, PATIENCE_S), self.stored
        assert not self.fatal

    def rest(self) -> None:
        """Wait until the flusher waits for the clock."""
        for _ in range(int(PATIENCE_S * 1000)):
            if self.clock.waiters():
                return
            threading.Event().wait(0.001)
        raise AssertionError("the flusher never came to rest")

    def pass_s(self, seconds: float) -> None:
        self.rest()
        self.clock.advance(seconds)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    made.world.do(create())
    yield made
    made.flusher.stop()
    made.world.state.close()


def test_changes_are_stored_once_a_period(bench: Bench) -> None:
    bench.flusher.start()
    bench.wait(1)
    bench.world.do(accept("m1"))
    bench.pass_s(0.5)
    bench.rest()
    assert bench.stored == [1]
    bench.pass_s(0.5)
    bench.wait(1, 2)
    for _ in range(3):
        bench.pass_s(1)
    bench.rest()
    assert bench.stored == [1, 2]


def test_a_request_is_answered_by_a_boundary_of_its_own_only_once_a_period(bench: Bench) -> None:
    bench.flusher.start()
    bench.wait(1)
    assert bench.flusher.request(1).result(0) == 1
    bench.pass_s(30)
    bench.rest()
    bench.world.do(accept("m1"))
    assert bench.flusher.request(2).result(PATIENCE_S) == 2
    bench.world.do(accept("m2"), accept("m3"))
    futures = [bench.flusher.request(3), bench.flusher.request(4)]
    bench.rest()
    assert not any(future.done() for future in futures)
    bench.pass_s(1)
    assert [future.result(PATIENCE_S) for future in futures] == [4, 4]


def test_a_request_for_an_index_that_is_not_applied_yet_waits_for_it(bench: Bench) -> None:
    bench.flusher.start()
    bench.wait(1)
    future = bench.flusher.request(2)
    bench.pass_s(1)
    bench.rest()
    bench.world.do(accept("m1"))
    bench.pass_s(1)
    assert future.result(PATIENCE_S) == 2


def test_a_full_memory_table_is_stored_at_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, boundary_bytes=10_000, active_bytes=30_000)
    bench.world.do(create())
    bench.flusher.start()
    bench.wait(1)
    bench.rest()
    bench.world.do(accept("m1"))
    bench.rest()
    assert bench.stored == [1]
    bench.world.do(accept("big", payloads=[bytes(20_000)]))
    bench.wait(1, 3)
    assert not bench.world.state.pressure()
    bench.flusher.stop()
    bench.world.state.close()


def test_nothing_is_stored_beyond_what_the_own_journal_has_synced(bench: Bench) -> None:
    bench.synced = 0
    bench.flusher.start()
    bench.pass_s(5)
    bench.rest()
    assert bench.stored == []
    bench.synced = 1
    bench.pass_s(1)
    bench.wait(1)
    bench.synced = 2
    bench.world.do(accept("m1"), accept("m2"))
    bench.pass_s(1)
    bench.rest()
    assert bench.stored == [1]


def test_apply_freezes_at_the_first_synced_index_when_a_boundary_is_due(tmp_path: Path) -> None:
    """With a slow disk the applied index may never be synced when the flusher looks."""
    bench = Bench(tmp_path)
    bench.synced = 0
    bench.world.do(create())
    assert not bench.world.state.freeze()
    bench.synced = 2
    bench.world.do(accept("m1"), accept("m2"))
    assert bench.world.state.write_frozen() == 2
    bench.world.state.close()


def test_stopping_stores_what_was_applied(bench: Bench) -> None:
    bench.flusher.start()
    bench.wait(1)
    bench.world.do(accept("m1"))
    pending = bench.flusher.request(9)
    bench.flusher.stop()
    assert bench.stored == [1, 2]
    assert isinstance(pending.exception(0), StorageError)
    assert isinstance(bench.flusher.request(10).exception(0), StorageError)


def test_a_locked_file_is_tried_again_and_nothing_is_lost_meanwhile(tmp_path: Path) -> None:
    bench = Bench(tmp_path, busy_timeout_s=0.01)
    bench.world.do(create(), accept("m1"))
    other = sqlite3.connect(bench.world.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    bench.flusher.start()
    bench.rest()
    assert bench.stored == []
    assert bench.world.state.get([1])[0] is not None
    bench.world.do(accept("m2"))
    other.execute("ROLLBACK")
    other.close()
    bench.pass_s(1)
    bench.wait(2)
    bench.pass_s(1)
    bench.wait(2, 3)
    bench.flusher.stop()
    bench.world.state.close()


def test_what_cannot_be_survived_is_reported_and_fails_the_waiting(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.world.do(create())
    other = sqlite3.connect(bench.world.path, isolation_level=None)
    other.execute("DROP TABLE channels")
    other.close()
    future = bench.flusher.request(1)
    bench.flusher.start()
    assert isinstance(future.exception(PATIENCE_S), StorageError)
    with bench.changed:
        assert bench.changed.wait_for(lambda: bench.fatal, PATIENCE_S)
    bench.flusher.stop()
    bench.world.state.close()
