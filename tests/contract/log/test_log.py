"""What every log promises, tried on each of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path

import pytest

from engine.errors import DamagedError, InvalidCommand, LimitExceeded, NoLeader, OutcomeUnknown, QueueFull
from engine.raft.log import Log, Role
from tests.contract.log.harness import BENCHES, SMALL, Bench, Recorder

Open = Callable[..., Log]


@pytest.fixture(params=list(BENCHES))
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return BENCHES[request.param](tmp_path)


@pytest.fixture
def started(bench: Bench) -> Iterator[Open]:
    """Open and start logs; whatever a test leaves open is closed."""
    logs: list[Log] = []

    def start(state: Recorder, **options: object) -> Log:
        log = bench.open(state, **options)  # type: ignore[arg-type]
        logs.append(log)
        log.start()
        return log

    yield start
    for log in logs:
        log.close(5)


def test_a_command_is_applied_and_answered_with_what_the_state_said(started: Open) -> None:
    state = Recorder()
    log = started(state)
    assert log.submit(b"abc").result(5) == b"cba"
    assert state.applied == [(2, 1, b"abc")]


def test_commands_are_applied_in_the_order_of_their_submission(started: Open) -> None:
    state = Recorder()
    log = started(state)
    sent = [f"command {number}".encode() for number in range(300)]
    futures = [log.submit(payload) for payload in sent]
    assert [future.result(5) for future in futures] == [payload[::-1] for payload in sent]
    assert state.commands == sent
    assert [index for index, _term, _payload in state.applied] == list(range(2, 302))


def test_submissions_of_many_threads_are_each_applied_once(started: Open) -> None:
    state = Recorder()
    log = started(state)

    def work(worker: int) -> list[bytes]:
        sent = [f"{worker}/{number}".encode() for number in range(50)]
        assert [log.submit(payload).result(10) for payload in sent] == [payload[::-1] for payload in sent]
        return sent

    with ThreadPoolExecutor(8) as pool:
        batches = list(pool.map(work, range(8)))
    assert sorted(state.commands) == sorted(payload for batch in batches for payload in batch)
    for worker, batch in enumerate(batches):
        assert [payload for payload in state.commands if payload.startswith(b"%d/" % worker)] == batch


def test_the_state_is_called_by_one_thread_of_the_log_and_so_are_the_callbacks(started: Open) -> None:
    state = Recorder()
    log = started(state)
    called: list[str] = []
    state.gate.clear()
    future = log.submit(b"x")
    future.add_done_callback(lambda _future: called.append(threading.current_thread().name))
    state.gate.set()
    future.result(5)
    log.barrier().result(5)
    assert called == list(state.threads)
    assert threading.current_thread().name not in state.threads


def test_a_callback_may_submit_the_next_command(started: Open) -> None:
    state = Recorder()
    log = started(state)
    done = threading.Event()

    def follow(_future: object) -> None:
        log.submit(b"second").add_done_callback(lambda _future: done.set())

    log.submit(b"first").add_done_callback(follow)
    assert done.wait(5)
    assert state.commands == [b"first", b"second"]


def test_the_applied_index_has_moved_before_a_caller_is_answered(started: Open) -> None:
    state = Recorder()
    log = started(state)
    log.submit(b"x").result(5)
    assert log.status().applied_index == log.status().last_index == 2


def test_entries_without_a_command_only_advance_the_state(started: Open) -> None:
    state = Recorder()
    started(state)
    assert state.leads.wait(5)
    assert (state.index, state.term, state.applied) == (1, 1, [])


def test_a_submitted_future_cannot_be_cancelled(started: Open) -> None:
    state = Recorder()
    log = started(state)
    state.gate.clear()
    future = log.submit(b"x")
    assert not future.cancel()
    state.gate.set()
    assert future.result(5) == b"x"


def test_a_barrier_waits_for_what_was_committed_before_it(started: Open) -> None:
    state = Recorder()
    log = started(state)
    state.gate.clear()
    future = log.submit(b"x")
    deadline = threading.Event()
    for _ in range(500):
        if log.status().commit_index == 2:
            break
        deadline.wait(0.01)
    barrier = log.barrier()
    assert not barrier.done()
    state.gate.set()
    assert barrier.result(5) >= 2
    assert future.done()


def test_a_barrier_with_nothing_to_wait_for_is_there_at_once(started: Open) -> None:
    state = Recorder()
    log = started(state)
    log.submit(b"x").result(5)
    assert log.barrier().result(0) == 2


def test_a_barrier_without_a_leader_is_refused(bench: Bench) -> None:
    log = bench.open(Recorder())
    with pytest.raises(NoLeader):
        log.barrier()
    log.close(5)


def test_wait_applied_returns_when_the_index_is_reached_and_false_when_it_is_not(started: Open) -> None:
    state = Recorder()
    log = started(state)
    log.submit(b"x")
    assert log.wait_applied(2, 5)
    assert not log.wait_applied(99, 0.01)


def test_an_entry_that_is_too_large_is_refused_and_the_largest_is_not(started: Open) -> None:
    log = started(Recorder())
    with pytest.raises(LimitExceeded, match="5001 bytes; at most 5000"):
        log.submit(b"x" * 5001)
    assert len(log.submit(b"x" * 5000).result(5)) == 5000


def test_an_empty_command_is_refused(started: Open) -> None:
    with pytest.raises(InvalidCommand):
        started(Recorder()).submit(b"")


def test_a_full_queue_refuses_until_something_was_applied(started: Open) -> None:
    state = Recorder()
    log = started(state, limits=replace(SMALL, queue_bytes=20_000))
    state.gate.clear()
    futures = [log.submit(b"x" * 1000) for _ in range(17)]
    with pytest.raises(QueueFull) as refused:
        log.submit(b"x" * 1000)
    assert refused.value.retry_after_s is not None
    state.gate.set()
    wait(futures, 5)
    assert log.submit(b"y").result(5) == b"y"
    assert len(state.commands) == len(futures) + 1


def test_nothing_is_accepted_before_the_start(bench: Bench) -> None:
    state = Recorder()
    log = bench.open(state)
    with pytest.raises(NoLeader):
        log.submit(b"x")
    log.close(5)
    assert state.applied == []


def test_each_start_is_a_new_term_that_begins_with_an_entry_of_its_own(bench: Bench) -> None:
    terms = []
    for _ in range(3):
        state = Recorder()
        log = bench.open(state)
        log.start()
        assert state.leads.wait(5)
        terms.append(state.leadership[0])
        log.close(5)
    assert terms == [(True, 1), (True, 2), (True, 3)]


def test_leadership_ends_with_closing(started: Open) -> None:
    state = Recorder()
    log = started(state)
    assert state.leads.wait(5)
    log.close(5)
    assert state.leadership == [(True, 1), (False, 1)]
    assert log.status().role is Role.FOLLOWER
    assert log.status().leader is None


def test_reopening_replays_everything_behind_the_applied_index(bench: Bench) -> None:
    first = Recorder()
    log = bench.open(first)
    log.start()
    for number in range(40):
        log.submit(b"%d" % number).result(5)
    log.close(5)
    for applied in (0, 1, 2, 20, 41):
        state = Recorder()
        log = bench.open(state, applied=(applied, 1 if applied else 0))
        log.start()
        assert log.barrier().result(5) == log.status().applied_index
        log.close(5)
        assert state.applied[: 41 - max(applied, 1)] == [entry for entry in first.applied if entry[0] > applied]


def test_runs_of_entries_never_mix_terms(bench: Bench) -> None:
    for _ in range(3):
        log = bench.open(Recorder())
        log.start()
        for future in [log.submit(b"x") for _ in range(3)]:
            future.result(5)
        log.close(5)
    state = Recorder()
    log = bench.open(state)
    log.start()
    log.barrier().result(5)
    log.close(5)
    assert [(index, term) for index, term, _payload in state.applied] == [
        (2, 1), (3, 1), (4, 1), (6, 2), (7, 2), (8, 2), (10, 3), (11, 3), (12, 3),
    ]  # fmt: skip


def test_a_log_that_no_longer_reaches_back_to_the_state_is_damage(bench: Bench) -> None:
    log = bench.open(Recorder(), limits=replace(SMALL, tail_bytes=1))
    log.start()
    for _ in range(20):
        log.submit(b"x" * 500).result(5)
    log.compact(20)
    assert log.status().first_index > 10
    log.close(5)
    with pytest.raises(DamagedError):
        bench.open(Recorder(), applied=(5, 1))


def test_a_state_with_another_term_at_its_applied_index_is_damage(bench: Bench) -> None:
    log = bench.open(Recorder())
    log.start()
    log.submit(b"x").result(5)
    log.close(5)
    with pytest.raises(DamagedError, match="term"):
        bench.open(Recorder(), applied=(2, 7))


def test_a_state_ahead_of_the_log_is_damage(bench: Bench) -> None:
    log = bench.open(Recorder())
    log.start()
    log.submit(b"x").result(5)
    log.close(5)
    with pytest.raises(DamagedError):
        bench.open(Recorder(), applied=(9, 1))


def test_compaction_never_takes_what_the_state_has_not_applied(started: Open) -> None:
    state = Recorder()
    log = started(state, limits=replace(SMALL, tail_bytes=1))
    for _ in range(8):
        log.submit(b"x" * 500).result(5)
    log.compact(1_000_000)
    status = log.status()
    assert status.first_index <= status.applied_index + 1
    assert log.submit(b"y").result(5) == b"y"


def test_compaction_does_not_disturb_a_later_start(bench: Bench) -> None:
    state = Recorder()
    log = bench.open(state, limits=replace(SMALL, tail_bytes=1))
    log.start()
    for number in range(30):
        log.submit(b"%03d" % number * 100).result(5)
    log.compact(21)
    log.close(5)
    again = Recorder()
    log = bench.open(again, applied=(21, 1))
    log.start()
    log.barrier().result(5)
    log.close(5)
    assert again.applied == [entry for entry in state.applied if entry[0] > 21]


def test_closing_finishes_what_was_submitted(bench: Bench) -> None:
    state = Recorder()
    log = bench.open(state)
    log.start()
    futures = [log.submit(b"%d" % number) for number in range(100)]
    log.close(5)
    assert all(future.done() and future.exception() is None for future in futures)
    assert len(state.commands) == 100


def test_nothing_is_accepted_after_closing_and_closing_twice_is_fine(started: Open) -> None:
    log = started(Recorder())
    log.close(5)
    log.close(5)
    with pytest.raises(NoLeader):
        log.submit(b"x")
    with pytest.raises(NoLeader):
        log.barrier()


def test_what_cannot_be_finished_in_time_has_an_unknown_outcome(bench: Bench) -> None:
    state = Recorder()
    log = bench.open(state)
    log.start()
    state.gate.clear()
    futures = [log.submit(b"x"), log.submit(b"y")]
    log.close(0.05)
    for future in futures:
        with pytest.raises(OutcomeUnknown):
            future.result(0)
    state.gate.set()


def test_a_state_that_raises_stops_the_log_and_tells_everyone(started: Open) -> None:
    state = Recorder()
    log = started(state)
    assert state.leads.wait(5)
    state.gate.clear()
    futures = [log.submit(b"x"), log.submit(b"y")]
    state.error = ValueError("a bug in the state")
    state.gate.set()
    for future in futures:
        with pytest.raises(OutcomeUnknown):
            future.result(5)
    assert state.fatal_seen.wait(5)
    assert state.errors == [state.error]
    assert state.leadership == [(True, 1), (False, 1)]
    assert log.status().fatal == "ValueError: a bug in the state"
    assert log.status().applied_index == 1
    with pytest.raises(NoLeader, match="a bug in the state"):
        log.submit(b"z")
    assert not log.wait_applied(2, 5)


def test_a_state_that_answers_too_few_stops_the_log(started: Open) -> None:
    state = Recorder()
    answered = state.apply
    state.apply = lambda first, term, payloads: answered(first, term, payloads)[1:]  # type: ignore[assignment]
    log = started(state)
    with pytest.raises(OutcomeUnknown):
        log.submit(b"x").result(5)
    assert state.fatal_seen.wait(5)
    assert "0 results for 1 entries" in str(log.status().fatal)


def test_what_a_failing_state_did_not_apply_is_replayed_after_the_restart(bench: Bench) -> None:
    state = Recorder()
    log = bench.open(state)
    log.start()
    log.submit(b"good").result(5)
    state.error = ValueError("a bug")
    with pytest.raises(OutcomeUnknown):
        log.submit(b"bad").result(5)
    log.close(5)
    again = Recorder()
    log = bench.open(again, applied=(2, 1))
    log.start()
    log.barrier().result(5)
    log.close(5)
    assert again.commands == [b"bad"]


def test_the_status_of_a_leading_log_is_complete(started: Open) -> None:
    log = started(Recorder())
    log.submit(b"x").result(5)
    status = log.status()
    assert (status.role, status.term, status.leader) == (Role.LEADER, 1, "node-a:5559")
    assert (status.first_index, status.last_index, status.commit_index) == (1, 2, 2)
    assert (status.synced_index, status.applied_index, status.fatal, status.disk_full) == (2, 2, None, False)
    assert (status.log_bytes > 0, log.members()) == (True, ("node-a:5559",))
