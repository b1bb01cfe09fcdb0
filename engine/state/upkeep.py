"""Work on the file between boundaries: emptying the write-ahead file, giving free pages back to the disk."""

from __future__ import annotations

import sqlite3
import time
from typing import Final

from engine.state.store import Store, TryAgain, translate

_VACUUM_STEP_PAGES: Final = 250


def tidy(store: Store) -> None:
    """One slice of upkeep; what a reader or a full disk holds up is left for the next time."""
    limits, writer = store.limits, store.writer
    try:
        wal = store.path.with_name(store.path.name + "-wal")
        if wal.exists() and wal.stat().st_size > limits.wal_bytes:
            writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        free = writer.execute("PRAGMA freelist_count").fetchall()[0][0] - limits.vacuum_kept_pages
        free = min(free, limits.vacuum_pages)
        if free > 0:
            _vacuum(writer, free)
    except sqlite3.Error as error:
        translated = translate(store.path, error)
        if not isinstance(translated, TryAgain):
            raise translated from error


def _vacuum(writer: sqlite3.Connection, pages: int) -> None:
    """Give pages back without a sync of its own: the next boundary's covers it."""
    writer.execute("PRAGMA synchronous = NORMAL")
    try:
        for _ in range(0, pages, _VACUUM_STEP_PAGES):
            writer.execute(f"PRAGMA incremental_vacuum({_VACUUM_STEP_PAGES})").fetchall()
            time.sleep(0)
    finally:
        writer.execute("PRAGMA synchronous = FULL")
