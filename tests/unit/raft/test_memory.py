"""The handles of the log in memory: what tests of other parts bring about with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.errors import NoLeader, OutcomeUnknown, StorageError, Unavailable
from engine.raft.memory import MemoryLog
from tests.contract.log.harness import Recorder


@pytest.fixture
def state() -> Recorder:
    return Recorder()


@pytest.fixture
def log(state: Recorder) -> Iterator[MemoryLog]:
    log = MemoryLog(state.apply, advance=state.advance, on_leadership=state.on_leadership, on_fatal=state.on_fatal)
    log.start()
    assert state.leads.wait(5)
    state.leads.clear()
    yield log
    log.close(5)


def test_held_commits_wait_until_they_are_released(log: MemoryLog, state: Recorder) -> None:
    log.hold_commits()
    futures = [log.submit(b"one"), log.submit(b"two")]
    assert not log.wait_applied(2, 0.05)
    assert log.status().commit_index == 1
    log.release_commits()
    assert [future.result(5) for future in futures] == [b"eno", b"owt"]


def test_a_full_disk_refuses_and_keeps_what_waits(log: MemoryLog, state: Recorder) -> None:
    log.hold_commits()
    waiting = log.submit(b"abc")
    log.fill_disk()
    log.release_commits()
    with pytest.raises(Unavailable) as refused:
        log.submit(b"x")
    assert refused.value.code == "DISK_FULL"
    assert log.status().disk_full
    assert not waiting.done()
    log.free_disk()
    assert waiting.result(5) == b"cba"


def test_a_failure_stops_the_log(log: MemoryLog, state: Recorder) -> None:
    log.hold_commits()
    waiting = log.submit(b"abc")
    error = StorageError("The disk is gone.")
    log.fail(error)
    with pytest.raises(OutcomeUnknown):
        waiting.result(5)
    assert state.fatal_seen.wait(5)
    assert state.errors == [error]
    assert state.leadership == [(True, 1), (False, 1)]
    assert log.status().fatal == "The disk is gone."


@pytest.mark.parametrize("keep", [True, False])
def test_lost_leadership_leaves_outcomes_open_and_the_next_term_decides(
    log: MemoryLog, state: Recorder, keep: bool
) -> None:
    log.hold_commits()
    waiting = log.submit(b"abc")
    log.lose_leadership(keep=keep)
    with pytest.raises(OutcomeUnknown):
        waiting.result(0)
    with pytest.raises(NoLeader):
        log.submit(b"x")
    log.gain_leadership()
    log.release_commits()
    assert state.leads.wait(5)
    assert log.submit(b"after").result(5) == b"retfa"
    assert state.commands == ([b"abc"] if keep else []) + [b"after"]
    assert state.leadership == [(True, 1), (False, 1), (True, 2)]
