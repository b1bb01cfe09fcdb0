"""Dying before, or in the middle of, every single file operation: by kill -9, and by a power cut."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine.raft.files import SyncFailed
from engine.raft.journal import Journal
from engine.raft.log import Entry
from tests.unit.raft.disk import Crash, FragileFiles, contents, restore
from tests.unit.raft.journals import LIMITS, fill, open_at, payload, read_all, sync_all

OLD = [Entry(index, 1, payload(index)) for index in range(1, 41)]
LIMITS_SHORT_TAIL = replace(LIMITS, tail_bytes=100)


def append(journal: Journal) -> None:
    fill(journal, 20, term=2)
    sync_all(journal)


def take_back(journal: Journal) -> None:
    journal.truncate_from(12)


def take_back_all(journal: Journal) -> None:
    journal.truncate_from(1)


def replace_some(journal: Journal) -> None:
    journal.truncate_from(30)
    fill(journal, 20, term=2)
    sync_all(journal)


def compact(journal: Journal) -> None:
    journal.compact(33)


def vote(journal: Journal) -> None:
    journal.save_meta(term=8, vote="someone")


def check_append(journal: Journal) -> None:
    assert read_all(journal)[:40] == OLD
    assert all(entry.payload == payload(entry.index, 2) for entry in read_all(journal)[40:])


def check_take_back(journal: Journal) -> None:
    found = read_all(journal)
    assert found == OLD[: len(found)]
    assert len(found) >= 11


def check_take_back_all(journal: Journal) -> None:
    found = read_all(journal)
    assert found == OLD[: len(found)]


def check_replace(journal: Journal) -> None:
    found = read_all(journal)
    assert found[:29] == OLD[:29]
    new = [Entry(index, 2, payload(index, 2)) for index in range(30, 50)]
    assert found[29:] in (OLD[29 : len(found)], new[: len(found) - 29])


def check_compact(journal: Journal) -> None:
    assert journal.first_index <= 34
    assert read_all(journal) == OLD[journal.first_index - 1 :]


def check_vote(journal: Journal) -> None:
    assert read_all(journal) == OLD
    assert (journal.meta.term, journal.meta.vote) in ((0, None), (8, "someone"))


STEPS = [
    (append, check_append, 0),
    (take_back, check_take_back, 0),
    (take_back_all, check_take_back_all, 0),
    (replace_some, check_replace, 0),
    (compact, check_compact, 33),
    (vote, check_vote, 0),
]


@pytest.mark.parametrize("power_cut", [False, True], ids=["killed", "power cut"])
@pytest.mark.parametrize(("step", "check", "applied"), STEPS, ids=[step.__name__ for step, _check, _applied in STEPS])
def test_dying_anywhere_in_a_step_leaves_a_log_that_opens_and_has_what_was_confirmed(
    tmp_path: Path, step: Callable[[Journal], None], check: Callable[[Journal], None], applied: int, power_cut: bool
) -> None:
    journal = open_at(tmp_path / "log", limits=LIMITS_SHORT_TAIL)
    fill(journal, 40)
    sync_all(journal)
    journal.close()
    saved = contents(tmp_path / "log")
    for die_at in range(1, 200):
        restore(tmp_path / "log", saved)
        files = FragileFiles()
        files.adopt_all(tmp_path / "log")
        journal = open_at(tmp_path / "log", applied, min(applied, 1), files=files, limits=LIMITS_SHORT_TAIL)
        files.die_at = files.operations + die_at
        died = True
        try:
            step(journal)
            died = False
        except Crash:
            pass
        confirmed = journal.synced_index
        journal.close()
        left = tmp_path / f"left{die_at}"
        if power_cut:
            files.power_cut(left, random.Random(die_at))
        else:
            restore(left, contents(tmp_path / "log"))
        again = open_at(left, applied, min(applied, 1))
        check(again)
        assert again.last_index >= min(confirmed, 11 if step is take_back else confirmed)
        again.close()
        if not died:
            return
    pytest.fail("the step never ended")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("power_cut", [False, True], ids=["killed", "power cut"])
def test_a_first_start_that_dies_anywhere_may_be_repeated(tmp_path: Path, power_cut: bool, seed: int) -> None:
    for die_at in range(1, 100):
        files = FragileFiles(die_at=die_at)
        directory = tmp_path / f"log{die_at}"
        died = True
        try:
            open_at(directory, files=files).close()
            died = False
        except Crash:
            pass
        left = directory
        if power_cut:
            left = tmp_path / f"left{die_at}"
            files.power_cut(left, random.Random(seed * 1000 + die_at))
        journal = open_at(left)
        fill(journal, 3)
        sync_all(journal)
        journal.close()
        journal = open_at(left)
        assert journal.last_index == 3
        journal.close()
        if not died:
            return
    pytest.fail("the start never ended")


@pytest.mark.parametrize("power_cut", [False, True], ids=["killed", "power cut"])
@pytest.mark.parametrize("case", ["torn", "left behind", "begun anew"])
def test_a_repair_at_opening_that_dies_anywhere_is_finished_by_the_next(
    tmp_path: Path, case: str, power_cut: bool
) -> None:
    journal = open_at(tmp_path / "log")
    fill(journal, 30)
    sync_all(journal)
    mark = contents(tmp_path / "log")["mark"]
    fill(journal, 1)
    sync_all(journal)
    journal.close()
    saved = contents(tmp_path / "log") | {"mark": mark}
    names = sorted(name for name in saved if name.endswith(".log"))
    applied = {"torn": 0, "left behind": 20, "begun anew": 31}[case]
    if case == "torn":
        saved[names[-1]] = saved[names[-1]][:-3]
    else:
        victim = names[0] if case == "left behind" else names[-1]
        saved[victim] = saved[victim][:70] + b"\xff" + saved[victim][71:]
    expected = {"torn": range(1, 31), "left behind": range(21, 32), "begun anew": range(0)}[case]
    for die_at in range(1, 100):
        restore(tmp_path / "log", saved)
        files = FragileFiles()
        files.adopt_all(tmp_path / "log")
        files.die_at = die_at
        died = True
        try:
            open_at(tmp_path / "log", applied, min(applied, 1), files=files).close()
            died = False
        except Crash:
            pass
        left = tmp_path / f"left{die_at}"
        if power_cut:
            files.power_cut(left, random.Random(die_at))
        else:
            restore(left, contents(tmp_path / "log"))
        again = open_at(left, applied, min(applied, 1))
        assert [entry.index for entry in read_all(again) if entry.index > applied] == list(expected)
        again.close()
        if not died:
            return
    pytest.fail("the opening never ended")


def test_what_a_failed_sync_left_in_memory_is_written_again_before_it_counts(tmp_path: Path) -> None:
    files = FragileFiles()
    journal = open_at(tmp_path / "log", files=files)
    fill(journal, 3)
    files.sync_error = True
    with pytest.raises(SyncFailed):
        journal.sync(1000)
    journal.close()
    files.sync_error = False
    again = open_at(tmp_path / "log", files=files)
    assert again.synced_index == 3
    for seed in range(20):
        files.power_cut(tmp_path / f"left{seed}", random.Random(seed))
        left = open_at(tmp_path / f"left{seed}")
        assert left.last_index == 3
        left.close()
    again.close()
