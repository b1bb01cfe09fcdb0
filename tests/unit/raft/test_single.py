"""The log of one member on real files: threads, a full disk, a failing sync, a killed process."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

from engine.config import JournalLimits
from engine.errors import NoLeader, OutcomeUnknown, Unavailable
from engine.raft.files import SystemFiles
from engine.raft.log import Role
from tests.contract.log.harness import Recorder
from tests.unit.raft.disk import FragileFiles
from tests.unit.raft.logs import QUICK, open_log, until


def test_a_slow_sync_does_not_hold_up_the_answers_to_what_is_synced(tmp_path: Path) -> None:
    files, state = FragileFiles(), Recorder()
    log = open_log(tmp_path / "log", state, files=files)
    log.start()
    state.gate.clear()
    first = log.submit(b"first")
    until(lambda: log.status().synced_index == 2, "the first command is synced")
    files.held_thread = "log-sync"
    second = log.submit(b"second")
    assert files.syncs_waiting.acquire(timeout=10)
    state.gate.set()
    assert first.result(5) == b"tsrif"
    assert not second.done()
    files.let_sync()
    assert second.result(5) == b"dnoces"
    log.close(5)


def test_a_slow_state_does_not_hold_up_syncing(tmp_path: Path) -> None:
    state = Recorder()
    log = open_log(tmp_path / "log", state)
    log.start()
    state.gate.clear()
    futures = [log.submit(b"x") for _ in range(5)]
    until(lambda: log.status().synced_index == 6, "all are synced while the state is busy")
    assert log.status().applied_index == 1
    state.gate.set()
    assert [future.result(5) for future in futures] == [b"x"] * 5
    log.close(5)


def test_commands_that_come_during_a_sync_share_the_next_one(tmp_path: Path) -> None:
    files, state = FragileFiles(), Recorder()
    log = open_log(tmp_path / "log", state, files=files, limits=replace(QUICK, segment_bytes=100_000))
    log.start()
    files.held_thread = "log-sync"
    futures = [log.submit(b"x")]
    assert files.syncs_waiting.acquire(timeout=10)
    futures += [log.submit(b"y") for _ in range(20)]
    files.held_thread = None
    operations = files.operations
    files.let_sync()
    for future in futures:
        future.result(5)
    assert files.operations - operations <= 6, "one sync and one mark, then one write, sync and mark for the rest"
    log.close(5)


def test_a_command_that_comes_during_a_sync_is_not_confirmed_by_it(tmp_path: Path) -> None:
    files, state = FragileFiles(), Recorder()
    log = open_log(tmp_path / "log", state, files=files)
    log.start()
    files.held_thread = "log-sync"
    first = log.submit(b"first")
    assert files.syncs_waiting.acquire(timeout=10)
    second = log.submit(b"second")
    files.let_sync()
    assert first.result(5) == b"tsrif"
    assert files.syncs_waiting.acquire(timeout=10)
    assert log.status().commit_index == log.status().synced_index == log.status().applied_index == 2
    assert not second.done()
    files.let_sync()
    assert second.result(5) == b"dnoces"
    log.close(5)


def test_the_time_of_every_sync_is_told(tmp_path: Path) -> None:
    times_s: list[float] = []
    state = Recorder()
    log = open_log(tmp_path / "log", state, on_sync=times_s.append)
    log.start()
    for _ in range(5):
        log.submit(b"x").result(5)
    log.close(5)
    assert len(times_s) == 6
    assert all(0 < time_s < 30 for time_s in times_s)


def test_a_full_disk_refuses_new_commands_keeps_what_waits_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    files, state = FragileFiles(), Recorder()
    log = open_log(tmp_path / "log", state, files=files)
    log.start()
    log.submit(b"before").result(5)
    files.room_bytes = 0
    waiting = log.submit(b"waiting")
    until(lambda: log.status().disk_full, "the disk is known to be full")
    with pytest.raises(Unavailable) as refused:
        log.submit(b"refused")
    assert refused.value.code == "DISK_FULL"
    assert refused.value.retry_after_s == QUICK.full_retry_max_s
    assert not waiting.done()
    status = log.status()
    assert (status.role, status.fatal, status.synced_index) == (Role.LEADER, None, 2)
    assert log.barrier().result(5) == 2
    files.room_bytes = None
    assert waiting.result(5) == b"gnitiaw"
    assert not log.status().disk_full
    assert log.submit(b"after").result(5) == b"retfa"
    log.close(5)
    again = Recorder()
    log = open_log(tmp_path / "log", again)
    log.start()
    log.barrier().result(5)
    log.close(5)
    assert again.commands == [b"before", b"waiting", b"after"]


def test_on_a_full_disk_commands_are_stored_one_by_one_as_far_as_the_room_goes(tmp_path: Path) -> None:
    files, state = FragileFiles(), Recorder()
    log = open_log(tmp_path / "log", state, files=files, limits=replace(QUICK, segment_bytes=100_000))
    log.start()
    files.held_thread = "log-sync"
    waiting = [log.submit(b"x")]
    assert files.syncs_waiting.acquire(timeout=10)
    waiting += [log.submit(b"y" * 700) for _ in range(5)]
    files.held_thread = None
    files.room_bytes = 1600
    files.let_sync()
    assert waiting[2].result(5) == b"y" * 700
    until(lambda: log.status().disk_full, "the disk is known to be full")
    assert [future.done() for future in waiting] == [True, True, True, False, False, False]
    files.room_bytes = None
    assert waiting[5].result(5) == b"y" * 700
    log.close(5)


def test_a_start_on_a_full_disk_explains_itself_and_leads_when_there_is_room(tmp_path: Path) -> None:
    files, state = FragileFiles(), Recorder()
    log = open_log(tmp_path / "log", state, files=files)
    log.start()
    log.submit(b"x").result(5)
    log.close(5)
    again = Recorder()
    files.room_bytes = 0
    log = open_log(tmp_path / "log", again, files=files)
    log.start()
    assert log.status().disk_full
    until(lambda: again.commands == [b"x"], "what was stored is applied all the same")
    assert again.leadership == []
    with pytest.raises(Unavailable, match="full"):
        log.submit(b"y")
    files.room_bytes = None
    assert again.leads.wait(5)
    assert log.submit(b"y").result(5) == b"y"
    log.close(5)


def test_closing_on_a_full_disk_ends_with_an_unknown_outcome(tmp_path: Path) -> None:
    files, state = FragileFiles(), Recorder()
    log = open_log(tmp_path / "log", state, files=files)
    log.start()
    files.room_bytes = 0
    waiting = log.submit(b"x")
    until(lambda: log.status().disk_full, "the disk is known to be full")
    log.close(5)
    with pytest.raises(OutcomeUnknown):
        waiting.result(0)


def test_a_failed_sync_is_the_end(tmp_path: Path) -> None:
    files, state = FragileFiles(), Recorder()
    log = open_log(tmp_path / "log", state, files=files)
    log.start()
    assert state.leads.wait(5)
    files.sync_error = True
    future = log.submit(b"x")
    with pytest.raises(OutcomeUnknown):
        future.result(5)
    assert state.fatal_seen.wait(5)
    assert log.status().fatal == "The disk could not be synced."
    assert [str(error) for error in state.errors] == ["The disk could not be synced."]
    assert state.leadership == [(True, 1), (False, 1)]
    assert state.commands == []
    files.sync_error = False
    with pytest.raises(NoLeader):
        log.submit(b"y")
    log.close(5)


def test_closing_while_replaying_does_not_wait_for_the_rest(tmp_path: Path) -> None:
    state = Recorder()
    log = open_log(tmp_path / "log", state)
    log.start()
    for _ in range(100):
        log.submit(b"x" * 50).result(5)
    log.close(5)
    again = Recorder()
    again.gate.clear()
    log = open_log(tmp_path / "log", again)
    starting = threading.Thread(target=log.start)
    starting.start()
    until(lambda: log.status().term == 2, "the replay has begun")
    closing = threading.Thread(target=log.close, args=(10,))
    closing.start()
    starting.join(10)
    assert not starting.is_alive(), "closing ends the wait for the replay"
    again.gate.set()
    closing.join(10)
    assert len(again.applied) < 100
    assert again.leadership == []
    log = open_log(tmp_path / "log", again, applied=(again.index, again.term))
    log.start()
    log.barrier().result(5)
    log.close(5)
    assert again.commands == state.commands


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    directory = tmp_path / "small"
    directory.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(directory)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield directory
    subprocess.run(["umount", str(directory)], check=True)


def test_a_disk_that_is_really_full_loses_nothing(small_disk: Path) -> None:
    limits = JournalLimits(segment_bytes=100_000, tail_bytes=100_000, full_retry_min_s=0.01, full_retry_max_s=0.05)
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"b" * 400_000)
    state = Recorder()
    log = open_log(small_disk / "log", state, limits=limits)
    log.start()
    waiting: list[Future[bytes]] = []
    while not log.status().disk_full and len(waiting) < 2000:
        waiting.append(log.submit(b"%05d" % len(waiting) * 300))
        until(lambda: waiting[-1].done() or log.status().disk_full, "stored, or no room")
    with pytest.raises(Unavailable) as refused:
        log.submit(b"refused")
    assert refused.value.code == "DISK_FULL"
    assert 100 < sum(future.done() for future in waiting) < 1000
    ballast.unlink()
    for future in waiting:
        future.result(10)
    assert log.submit(b"after").result(5) == b"retfa"
    log.close(5)
    again = Recorder()
    log = open_log(small_disk / "log", again, limits=limits)
    log.start()
    log.barrier().result(5)
    log.close(5)
    assert again.commands == [b"%05d" % number * 300 for number in range(len(waiting))] + [b"after"]


def test_what_a_killed_process_was_told_is_stored_is_there(tmp_path: Path) -> None:
    told: dict[int, bytes] = {}
    for round_number in range(3):
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.raft.writer", str(tmp_path / "log"), f"round{round_number}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(150 + 130 * round_number)]
        process.kill()
        lines += process.stdout.read().splitlines(keepends=True)
        process.stdout.close()
        process.wait(10)
        for line in lines:
            if line.startswith(b"stored ") and line.endswith(b"\n"):
                index, number = map(int, line.split()[1:])
                told[index] = b"round%d-%d-" % (round_number, number) + b"x" * (number % 400)
    assert len(told) > 500
    state = Recorder()
    log = open_log(tmp_path / "log", state, files=SystemFiles(), limits=JournalLimits(segment_bytes=20_000))
    log.start()
    log.barrier().result(10)
    log.close(5)
    found = {index: payload for index, _term, payload in state.applied}
    assert {index: found.get(index) for index in told} == told
    assert log.status().term == 4
