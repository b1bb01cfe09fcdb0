"""The journal without accidents: append, sync, read back, cut at both ends."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from engine.errors import ConfigError
from engine.raft.files import SystemFiles
from engine.raft.journal import create_journal
from engine.raft.log import Entry
from tests.unit.raft.disk import FragileFiles, contents
from tests.unit.raft.journals import LIMITS, fill, open_at, payload, read_all, sync_all


def test_entries_are_the_same_after_reopening(tmp_path: Path) -> None:
    journal = open_at(tmp_path / "log")
    fill(journal, 50)
    sync_all(journal)
    journal.close()
    again = open_at(tmp_path / "log")
    assert read_all(again) == [Entry(index, 1, payload(index)) for index in range(1, 51)]
    assert (again.first_index, again.last_index, again.last_term, again.synced_index) == (1, 50, 1, 50)
    again.close()


def test_entries_beyond_the_memory_budget_are_read_back_from_their_segments(tmp_path: Path) -> None:
    journal = open_at(tmp_path / "log")
    fill(journal, 200)
    sync_all(journal)
    assert journal.memory_bytes <= LIMITS.tail_bytes
    assert len(list((tmp_path / "log").glob("*.log"))) > 10
    assert read_all(journal) == [Entry(index, 1, payload(index)) for index in range(1, 201)]
    journal.close()


def test_what_is_not_synced_stays_in_memory_whatever_the_budget(tmp_path: Path) -> None:
    journal = open_at(tmp_path / "log")
    fill(journal, 100)
    assert journal.memory_bytes > LIMITS.tail_bytes
    assert read_all(journal)[-1] == Entry(100, 1, payload(100))
    journal.close()


def test_an_entry_deep_in_a_large_segment_is_found(tmp_path: Path) -> None:
    journal = open_at(tmp_path / "log", limits=replace(LIMITS, segment_bytes=10_000_000, entry_bytes=100_000))
    for size in (10, 70_000, 30, 9000, 120_000, 5) * 5:
        fill(journal, 3, size=size)
    sync_all(journal)
    for index in range(1, journal.last_index + 1):
        assert journal.entries(index, index, 1)[0].payload.startswith(b"%d@1." % index)
    journal.close()


def test_reading_returns_at_least_one_entry_and_keeps_to_the_bytes(tmp_path: Path) -> None:
    journal = open_at(tmp_path / "log", limits=replace(LIMITS, segment_bytes=100_000))
    fill(journal, 30, size=100)
    sync_all(journal)
    journal.release(30)
    assert len(journal.entries(1, 30, 1)) == 1
    assert len(journal.entries(1, 9, 3 * 68)) == 3
    assert len(journal.entries(5, 6, 10_000)) == 2
    journal.close()


def test_entries_that_are_not_in_the_log_are_a_lookup_error(tmp_path: Path) -> None:
    journal = open_at(tmp_path / "log")
    fill(journal, 3)
    for index in (0, 4):
        with pytest.raises(LookupError):
            journal.entries(index, index, 1)
    journal.close()


def test_the_term_of_every_entry_is_known_and_none_outside(tmp_path: Path) -> None:
    journal = open_at(tmp_path / "log")
    for term, count in ((1, 3), (4, 1), (5, 40)):
        fill(journal, count, term)
    sync_all(journal)
    expected = [0, 1, 1, 1, 4, *[5] * 40]
    assert [journal.term_at(index) for index in range(45)] == expected
    assert journal.term_at(45) is None
    journal.close()
    again = open_at(tmp_path / "log")
    assert [again.term_at(index) for index in range(45)] == expected
    again.close()


def test_entries_taken_back_are_gone_and_others_take_their_place(tmp_path: Path) -> None:
    for cut in (1, 2, 15, 29, 30):
        directory = tmp_path / f"log{cut}"
        journal = open_at(directory)
        fill(journal, 30)
        sync_all(journal)
        journal.truncate_from(cut)
        assert (journal.last_index, journal.synced_index) == (cut - 1, cut - 1)
        fill(journal, 5, term=2)
        sync_all(journal)
        expected = [
            Entry(index, 1 if index < cut else 2, payload(index, 1 if index < cut else 2))
            for index in range(1, cut + 5)
        ]
        assert read_all(journal) == expected
        journal.close()
        again = open_at(directory)
        assert read_all(again) == expected
        again.close()


def test_taking_back_what_was_never_written_needs_no_file(tmp_path: Path) -> None:
    journal = open_at(tmp_path / "log")
    fill(journal, 3)
    sync_all(journal)
    before = contents(tmp_path / "log")
    fill(journal, 4)
    journal.truncate_from(4)
    journal.truncate_from(9)
    assert contents(tmp_path / "log") == before
    assert journal.last_index == 3
    journal.close()


def test_a_sync_that_ends_after_its_entries_were_replaced_confirms_nothing(tmp_path: Path) -> None:
    files = FragileFiles()
    journal = open_at(tmp_path / "log", files=files)
    fill(journal, 3)
    results: list[int] = []
    syncing = threading.Thread(target=lambda: results.append(journal.sync(10_000)), name="late")
    files.held_thread = "late"
    syncing.start()
    assert files.syncs_waiting.acquire(timeout=10)
    journal.truncate_from(2)
    fill(journal, 2, term=2)
    files.let_sync()
    syncing.join(10)
    assert journal.generation == 1
    assert results == [0]
    assert journal.synced_index == 0
    assert journal.sync(10_000) == 3
    assert [entry.term for entry in read_all(journal)] == [1, 2, 2]
    journal.close()


def test_appending_and_reading_go_on_during_a_sync(tmp_path: Path) -> None:
    files = FragileFiles()
    journal = open_at(tmp_path / "log", files=files)
    fill(journal, 3)
    syncing = threading.Thread(target=lambda: journal.sync(10_000), name="slow")
    files.held_thread = "slow"
    syncing.start()
    assert files.syncs_waiting.acquire(timeout=10)
    fill(journal, 2)
    journal.release(3)
    assert [entry.index for entry in read_all(journal)] == [1, 2, 3, 4, 5]
    files.let_sync()
    syncing.join(10)
    assert journal.synced_index == 3
    journal.close()


def test_compaction_drops_whole_segments_and_keeps_a_bounded_tail(tmp_path: Path) -> None:
    journal = open_at(tmp_path / "log")
    fill(journal, 200)
    sync_all(journal)
    before = journal.bytes
    journal.compact(150)
    assert 1 < journal.first_index <= 151
    assert before > journal.bytes >= LIMITS.tail_bytes
    journal.compact(200)
    assert LIMITS.tail_bytes <= journal.bytes <= LIMITS.tail_bytes + 2 * LIMITS.segment_bytes
    assert journal.bytes == sum(path.stat().st_size for path in (tmp_path / "log").glob("*.log"))
    first = journal.first_index
    assert read_all(journal) == [Entry(index, 1, payload(index)) for index in range(first, 201)]
    assert journal.term_at(first - 1) == 1
    assert journal.term_at(first - 2) is None
    journal.close()
    again = open_at(tmp_path / "log", 200, 1)
    assert again.first_index == first
    assert again.term_at(first - 1) == 1
    again.close()


def test_compaction_waits_for_the_sync(tmp_path: Path) -> None:
    journal = open_at(tmp_path / "log", limits=replace(LIMITS, tail_bytes=1))
    fill(journal, 100)
    journal.compact(100)
    assert journal.first_index == 1
    sync_all(journal)
    journal.compact(100)
    assert journal.first_index > 90
    journal.close()


def test_a_journal_may_begin_behind_a_restored_state(tmp_path: Path) -> None:
    create_journal(SystemFiles(), tmp_path / "log", base_index=500, base_term=7)
    journal = open_at(tmp_path / "log", 500, 7)
    assert (journal.first_index, journal.last_index, journal.last_term, journal.meta.term) == (501, 500, 7, 7)
    fill(journal, 3, term=8)
    sync_all(journal)
    journal.close()
    again = open_at(tmp_path / "log", 501, 8)
    assert [entry.index for entry in read_all(again)] == [501, 502, 503]
    again.close()


def test_a_journal_is_never_made_over_another(tmp_path: Path) -> None:
    journal = open_at(tmp_path / "log")
    fill(journal, 3)
    sync_all(journal)
    journal.close()
    before = contents(tmp_path / "log")
    with pytest.raises(ConfigError, match="holds a log already"):
        create_journal(SystemFiles(), tmp_path / "log", base_index=500, base_term=7)
    assert contents(tmp_path / "log") == before


def test_names_and_vote_are_kept_and_the_incarnation_is_of_the_directory(tmp_path: Path) -> None:
    journal = open_at(tmp_path / "one")
    meta = journal.meta
    journal.save_meta(term=7, vote="node-b", commit_index=3, cluster_id="c1")
    journal.close()
    again = open_at(tmp_path / "one")
    assert (again.meta.term, again.meta.vote, again.meta.commit_index, again.meta.cluster_id) == (7, "node-b", 3, "c1")
    assert (again.meta.node_name, again.meta.incarnation) == (meta.node_name, meta.incarnation)
    again.close()
    other = open_at(tmp_path / "two")
    assert other.meta.incarnation != meta.incarnation
    other.close()
