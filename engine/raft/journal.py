"""The log of one member on disk: entries are appended in memory, written and synced in groups, and read back.

Who calls what: the owner of the log appends, cuts and compacts; one thread calls `sync` again and again; anyone reads.
Appending never waits for the disk. A sync covers what was written when it began, and the number of cuts seen until
then (the generation): when entries were cut meanwhile it confirms nothing, so a late sync never vouches for entries
that have been replaced.
"""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import structlog

from engine.config import JournalLimits
from engine.errors import ConfigError
from engine.raft.files import DiskFull, Files
from engine.raft.log import Entry
from engine.raft.mark import Mark
from engine.raft.meta import Meta, MetaStore, new_meta
from engine.raft.opening import Survey, survey
from engine.raft.segment import SUFFIX, create_segment
from engine.raft.segments import Segments
from engine.raft.tail import Tail
from engine.raft.terms import Terms

log = structlog.get_logger(__name__)


class Journal:
    """An open journal; `open_journal` makes one."""

    def __init__(
        self,
        *,
        files: Files,
        directory: Path,
        limits: JournalLimits,
        store: MetaStore,
        mark: Mark,
        segments: Segments,
        terms: Terms,
    ) -> None:
        self._files = files
        self._directory = directory
        self._limits = limits
        self._store = store
        self._mark = mark
        self._segments = segments
        self._terms = terms
        self._tail = Tail(terms.last_index + 1)
        self._generation = 0
        self._written_index = terms.last_index
        self._synced_index = terms.last_index
        self._lock = threading.Lock()
        """Guards the fields above; never held while a file is touched."""
        self._file_lock = threading.Lock()
        """Guards segments and mark; taken before `_lock`, and not held during a sync of a group."""
        self._sync_lock = threading.Lock()
        """One sync at a time; taken before the others."""

    @property
    def meta(self) -> Meta:
        """The stored facts: names, term, vote."""
        return self._store.meta

    @property
    def first_index(self) -> int:
        """The oldest entry, `last_index + 1` when there is none."""
        return self._terms.base_index + 1

    @property
    def last_index(self) -> int:
        return self._terms.last_index

    @property
    def last_term(self) -> int:
        """Term of the last entry, also when it is no longer in the log."""
        return self._terms.last_term

    @property
    def synced_index(self) -> int:
        """Everything up to here is on the disk and under the mark."""
        return self._synced_index

    @property
    def generation(self) -> int:
        """How often entries were cut away since opening."""
        return self._generation

    @property
    def bytes(self) -> int:
        """Bytes of all segments; never waits for the disk."""
        return self._segments.bytes

    @property
    def memory_bytes(self) -> int:
        """Bytes of the entries kept in memory."""
        return self._tail.bytes

    def term_at(self, index: int) -> int | None:
        """The entry's term, also for the place right before the first; None outside the log."""
        with self._lock:
            return self._terms.at(index)

    def append(self, entry: Entry) -> None:
        """Add the next entry, in memory; `sync` makes it durable."""
        with self._lock:
            self._terms.append(entry.index, entry.term)
            self._tail.append(entry)
            self._tail.shrink(self._limits.tail_bytes, self._synced_index)

    def entries(self, first: int, last: int, max_bytes: int) -> list[Entry]:
        """Entries from `first` on, at most to `last`: at least one, then as many as `max_bytes` of payload allow.

        Fewer may come where memory and disk, or two segments, meet. Raises LookupError when `first` is not in the log
        (any more), DamagedError when its record on the disk is no longer what was written.
        """
        with self._lock:
            if self._tail.low <= first <= self._tail.high:
                return self._tail.read(first, last, max_bytes)
        with self._file_lock:
            with self._lock:
                if not self.first_index <= first <= self._terms.last_index:
                    raise LookupError(f"entry {first} is not in the log ({self.first_index}..{self._terms.last_index})")
                last = min(last, self._written_index)
            return self._segments.read(first, last, max_bytes)

    def release(self, index: int) -> None:
        """Entries up to `index` will hardly be read again: keep them on the disk only."""
        with self._lock:
            self._tail.shrink(0, min(index, self._synced_index))

    def sync(self, max_bytes: int) -> int:
        """Write a group of up to `max_bytes`, at least one entry, and sync it; returns the synced index.

        Raises DiskFull when there is no room (nothing is lost, repeat it later) and SyncFailed when nothing more may
        be believed. The mark is raised before the synced index, so whoever sees the index may acknowledge it.
        """
        with self._sync_lock:
            with self._file_lock:
                self._segments.close_retired()
                generation = self._generation
                self._write(max_bytes)
                through = self._written_index
                descriptor = self._segments.descriptor
            if through > self._synced_index:
                self._files.sync(descriptor)
                self._confirm(through, generation)
            return self._synced_index

    def _write(self, max_bytes: int) -> None:
        """Write one group; a disk that fills up within it fails the call only when nothing could be written."""
        with self._lock:
            first = self._written_index + 1
            group = self._tail.read(first, self._terms.last_index, max_bytes) if first <= self._terms.last_index else []
            previous_term = self._terms.at(first - 1)
        assert previous_term is not None, "the entry before an unwritten one is in the log, or its base"
        done = 0
        while done < len(group):
            try:
                count = self._segments.write(group[done:], previous_term)
            except DiskFull:
                if done == 0:
                    raise
                return
            done += count
            previous_term = group[done - 1].term
            self._written_index = group[done - 1].index

    def _confirm(self, through: int, generation: int) -> None:
        with self._file_lock:
            if generation != self._generation:
                return
            term = self.term_at(through)
            assert term is not None, "nothing was cut since"
            self._mark.raise_to(through, term)
            with self._lock:
                self._synced_index = through
                self._tail.shrink(self._limits.tail_bytes, through)

    def truncate_from(self, index: int) -> None:
        """Take back the entries from `index` on, because a leader has others there; durable when this returns."""
        assert self.first_index <= index, "what the state may hold is never taken back"
        with self._file_lock:
            if index > self._terms.last_index:
                return
            if self._mark.index >= index:
                term = self.term_at(index - 1)
                assert term is not None, "the entry before is in the log, or its base"
                self._mark.lower_to(index - 1, term)
            with self._lock:
                self._generation += 1
                self._tail.cut_from(index)
                self._terms.cut_from(index)
                self._written_index = min(self._written_index, index - 1)
                self._synced_index = min(self._synced_index, index - 1)
            self._segments.cut_from(index)

    def compact(self, index: int) -> None:
        """Drop whole segments up to `index`, which the state's file holds; the newest `tail_bytes` stay."""
        with self._file_lock:
            gone = self._segments.drop_to(min(index, self._synced_index), self._limits.tail_bytes)
            if not gone:
                return
            with self._lock:
                self._terms.drop_to(max(self._segments.first_index - 1, self._terms.base_index))
        for path in gone:
            self._files.unlink(path)
        self._files.sync_directory(self._directory)
        log.info(
            "Segments of the log were removed: the state holds what was in them.",
            action="log_compacted",
            segments=len(gone),
            first_index=self.first_index,
        )

    def save_meta(self, **changes: object) -> None:
        """Change the stored facts; they are on the disk when this returns."""
        self._store.save(**changes)

    def close(self) -> None:
        """Let go of the files; what is not synced by now may be lost."""
        with self._sync_lock, self._file_lock:
            self._segments.close()
            self._mark.close()


def create_journal(files: Files, directory: Path, *, base_index: int = 0, base_term: int = 0) -> None:
    """Make an empty journal whose first entry will be `base_index + 1`: a first start, or a restored state.

    A crash on the way leaves what the next attempt replaces: the meta file comes last. Raises ConfigError when there is
    a log already.
    """
    if survey(files, directory, 0, 0) is not None:
        raise ConfigError(f"{directory} holds a log already. Choose an empty directory, or move the log elsewhere.")
    files.make_directory(directory)
    for name in files.names(directory):
        if name.endswith(SUFFIX):
            files.unlink(directory / name)
    meta = new_meta()
    _segment, descriptor = create_segment(files, directory, bytes.fromhex(meta.journal_id), base_index + 1, base_term)
    files.close(descriptor)
    MetaStore.create(files, directory, msgspec.structs.replace(meta, term=base_term, commit_index=base_index))
    files.sync_directory(directory)


def open_journal(
    files: Files, directory: Path, limits: JournalLimits, *, applied_index: int, applied_term: int
) -> Journal:
    """Open the journal of a state that has applied up to `applied_index`; the first start makes it.

    Raises DamagedError and ConfigError with nothing changed, StorageError when the disk refuses.
    """
    found = survey(files, directory, applied_index, applied_term)
    if found is None:
        create_journal(files, directory)
        found = survey(files, directory, applied_index, applied_term)
        assert found is not None, "it was just made"
    _tell(found, directory)
    found.store.repair()
    for name in files.names(directory):
        if name.endswith(".tmp"):
            files.unlink(directory / name)
    segments = Segments(files, directory, bytes.fromhex(found.store.meta.journal_id), limits.segment_bytes)
    found.mark.open()
    if found.restart:
        segments.begin(found.terms.last_index + 1, found.terms.last_term)
    else:
        segments.open(found.segments, found.mark.index)
    for path in found.dropped:
        files.unlink(path)
    files.sync_directory(directory)
    found.mark.raise_to(found.terms.last_index, found.terms.last_term)
    return Journal(
        files=files,
        directory=directory,
        limits=limits,
        store=found.store,
        mark=found.mark,
        segments=segments,
        terms=found.terms,
    )


def _tell(found: Survey, directory: Path) -> None:
    """Say what was left behind, and why nothing is missing."""
    if found.prefix_flaw is not None:
        log.warning(
            "A damaged part of the log was left behind; the state holds everything that was in it.",
            action="log_prefix_dropped",
            file=str(found.prefix_flaw.path),
            offset=found.prefix_flaw.offset,
            index=found.prefix_flaw.index,
            cause=found.prefix_flaw.what,
        )
    if found.torn is not None:
        log.warning(
            "The end of the log was torn when this node last stopped and was cut; nothing of it had been confirmed.",
            action="log_tail_cut",
            file=str(found.torn.path),
            offset=found.torn.offset,
            cut_bytes=found.torn_bytes,
            index=found.torn.index,
            cause=found.torn.what,
        )
    log.info(
        "The log is open.",
        action="log_opened",
        directory=str(directory),
        first_index=found.terms.base_index + 1,
        last_index=found.terms.last_index,
        mark=found.mark.index,
    )
