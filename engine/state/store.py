"""The file state.db: opening it, knowing it for what it is, and the connections to it.

One connection writes (the flusher's), one belongs to the apply thread, a few are shared by all other readers. Queries
that return many rows are written so that SQLite makes one row of them: the sqlite3 module gives up the GIL at every
row, and beside a busy thread each row then costs up to a switch interval (measured: 0.3 s for 500 rows, 8 ms as one).
"""

from __future__ import annotations

import sqlite3
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from engine.config import StateLimits
from engine.errors import ConfigError, DamagedError, StorageError
from engine.state.schema import APPLICATION_ID, FORMAT, TABLES

_MAGIC: Final = b"SQLite format 3\0"
_HEADER_BYTES: Final = 100
_SQLITE_DAMAGED: Final = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_SQLITE_PASSING: Final = ("SQLITE_FULL", "SQLITE_BUSY", "SQLITE_LOCKED")


class TryAgain(StorageError):
    """The disk is full or another process holds the file: the same write may succeed later."""


def translate(path: Path, error: sqlite3.Error) -> DamagedError | StorageError:
    """SQLite's error as one of ours: damage, or a disk that refused."""
    name = getattr(error, "sqlite_errorname", None) or ""
    if name.startswith(_SQLITE_DAMAGED):
        return DamagedError(
            f"{path} is damaged ({error}); the file is kept: move it away to let this node rebuild its state from the"
            " other nodes, or restore a back-up"
        )
    kind = TryAgain if name.startswith(_SQLITE_PASSING) else StorageError
    return kind(f"{path}: {error} ({name or type(error).__name__})")


class Store:
    """The open file with its connections. `close` ends them all."""

    def __init__(self, path: Path, limits: StateLimits) -> None:
        self.path = path
        self.limits = limits
        _check_header(path)
        try:
            self.writer = _connect(path, limits.cache_kib, limits)
            try:
                self.created = _prepare(path, self.writer)
                self.apply_reader = _connect_reader(path, limits)
            except BaseException:
                self.writer.close()
                raise
        except sqlite3.Error as error:
            raise translate(path, error) from error
        self._idle: list[sqlite3.Connection] = []
        self._room = threading.Semaphore(limits.readers_max)

    @contextmanager
    def reader(self) -> Iterator[sqlite3.Connection]:
        """Borrow a read connection; waits while all are in use."""
        with self._room:
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = _connect_reader(self.path, self.limits)
            try:
                yield connection
            except sqlite3.Error as error:
                raise translate(self.path, error) from error
            finally:
                self._idle.append(connection)

    def one(self, connection: sqlite3.Connection, sql: str, parameters: tuple[Any, ...] | list[Any] = ()) -> Any:
        """The one row of a query, read to the end so that its read transaction is over."""
        try:
            rows = connection.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            raise translate(self.path, error) from error
        return rows[0] if rows else None

    def all(
        self, connection: sqlite3.Connection, sql: str, parameters: tuple[Any, ...] | list[Any] = ()
    ) -> list[tuple[Any, ...]]:
        """All rows of a query that has few."""
        try:
            return connection.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            raise translate(self.path, error) from error

    def close(self) -> None:
        """Close all connections; SQLite then empties the write-ahead file into the database."""
        while self._idle:
            self._idle.pop().close()
        self.apply_reader.close()
        self.writer.close()


def _connect(path: Path, cache_kib: int, limits: StateLimits) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=limits.busy_timeout_s, isolation_level=None, check_same_thread=False, cached_statements=64
    )
    connection.execute(f"PRAGMA cache_size = -{cache_kib}")
    connection.execute("PRAGMA temp_store = MEMORY")
    return connection


def _connect_reader(path: Path, limits: StateLimits) -> sqlite3.Connection:
    connection = _connect(path, limits.reader_cache_kib, limits)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _check_header(path: Path) -> None:
    """Refuse a foreign, newer or cut file by its first 100 bytes, before SQLite may touch anything."""
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except FileNotFoundError:
        return
    if not header or path.with_name(path.name + "-journal").exists():
        return  # Being created: SQLite finishes or undoes it.
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        raise DamagedError(f"{path} is not a SQLite database; the file is kept: move it away or restore a back-up")
    page_bytes = struct.unpack_from(">H", header, 16)[0]
    page_bytes = 65536 if page_bytes == 1 else page_bytes
    pages, format_number, application = (struct.unpack_from(">I", header, offset)[0] for offset in (28, 60, 68))
    if application != APPLICATION_ID:
        raise DamagedError(f"{path} is a SQLite database of another program; the file is kept: move it away")
    if format_number > FORMAT:
        raise ConfigError(
            f"{path} was written by a newer version (format {format_number}, this version reads up to {FORMAT});"
            " start that version, or a newer one; nothing was changed"
        )
    wal = path.with_name(path.name + "-wal")
    if path.stat().st_size < pages * page_bytes and not (wal.exists() and wal.stat().st_size):
        raise DamagedError(
            f"{path} is cut short ({path.stat().st_size} bytes of {pages * page_bytes}); the file is kept: move it"
            " away to let this node rebuild its state from the other nodes, or restore a back-up"
        )


def _prepare(path: Path, writer: sqlite3.Connection) -> bool:
    """Make the tables in an empty file, else check that they are ours; say whether they were made."""
    created = not writer.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    if created:
        # In one rollback-journal transaction, so that the header says whose file it is as soon as there is one.
        writer.execute("PRAGMA auto_vacuum = INCREMENTAL")
        writer.execute("PRAGMA synchronous = FULL")
        writer.execute("BEGIN IMMEDIATE")
        writer.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        writer.execute(f"PRAGMA user_version = {FORMAT}")
        for statement in TABLES:
            writer.execute(statement)
        writer.execute("COMMIT")
    mode = writer.execute("PRAGMA journal_mode = WAL").fetchall()[0][0]
    if mode != "wal":
        raise StorageError(f"{path}: SQLite refuses a write-ahead file here (journal mode {mode})")
    writer.execute("PRAGMA wal_autocheckpoint = 0")
    writer.execute("PRAGMA synchronous = FULL")
    return created
