"""Short ways to make and read journals."""

from __future__ import annotations

from pathlib import Path

from engine.config import JournalLimits
from engine.raft.files import Files
from engine.raft.journal import Journal, open_journal
from engine.raft.log import Entry
from tests.unit.raft.disk import UnsyncedFiles

LIMITS = JournalLimits(segment_bytes=400, entry_bytes=2000, tail_bytes=700, queue_bytes=100_000, group_bytes=1000)


def open_at(
    directory: Path,
    applied_index: int = 0,
    applied_term: int = 0,
    *,
    files: Files | None = None,
    limits: JournalLimits = LIMITS,
) -> Journal:
    return open_journal(
        files or UnsyncedFiles(), directory, limits, applied_index=applied_index, applied_term=applied_term
    )


def payload(index: int, term: int = 1, size: int = 10) -> bytes:
    """Recognisable: names its place, so that an entry at a wrong one is seen."""
    return b"%d@%d." % (index, term) * (1 + size // 6)


def fill(journal: Journal, count: int, term: int = 1, size: int = 10) -> None:
    """Append entries, not synced."""
    for _ in range(count):
        index = journal.last_index + 1
        journal.append(Entry(index, term, payload(index, term, size)))


def sync_all(journal: Journal) -> None:
    """Sync until nothing is left to sync."""
    while journal.synced_index < journal.last_index:
        journal.sync(LIMITS.group_bytes)


def read_all(journal: Journal) -> list[Entry]:
    """Every entry, by as many reads as it takes."""
    entries: list[Entry] = []
    index = journal.first_index
    while index <= journal.last_index:
        entries += journal.entries(index, journal.last_index, 500)
        index = entries[-1].index + 1
    return entries
