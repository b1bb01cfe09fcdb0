"""All segments of one log, oldest first: writing behind the last one, reading, cutting at either end.

Not safe for threads: the journal calls it under its file lock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

from engine.raft.files import Files
from engine.raft.log import Entry
from engine.raft.record import HEADER_BYTES as RECORD_BYTES
from engine.raft.record import encode_header
from engine.raft.segment import Segment, create_segment, locate, read_records

_COPY_BYTES = 1024 * 1024


class Segments:
    """The open segments of one directory."""

    def __init__(self, files: Files, directory: Path, journal_id: bytes, segment_bytes: int) -> None:
        self._files = files
        self._directory = directory
        self._journal_id = journal_id
        self._segment_bytes = segment_bytes
        self._segments: list[Segment] = []
        self._descriptor: int | None = None
        self._retired: list[int] = []

    @property
    def descriptor(self) -> int:
        """Of the segment that is being written: what a sync is for."""
        assert self._descriptor is not None, "the segments are open"
        return self._descriptor

    @property
    def bytes(self) -> int:
        """Bytes of all segments; may be asked from any thread."""
        return sum(segment.end for segment in tuple(self._segments))

    @property
    def first_index(self) -> int:
        """First entry of the oldest segment."""
        return self._segments[0].first_index

    def open(self, segments: Sequence[Segment], confirmed_index: int) -> None:
        """Go on with what was found; all of it is on the disk when this returns.

        What had not been confirmed is written again before the sync: if the last sync before this start failed, the
        kernel may hold those pages as clean although they never reached the disk, and a sync alone would not tell.
        """
        self._segments = list(segments)
        last = segments[-1]
        self._descriptor = self._files.open(last.path)
        self._files.truncate(self._descriptor, last.end)
        lowest = last.points[0][0] if last.points else last.last_index + 1
        offset = locate(self._files, last, min(max(confirmed_index + 1, lowest), last.last_index + 1))
        while offset < last.end:
            part = self._files.read(self._descriptor, min(_COPY_BYTES, last.end - offset), offset)
            self._files.write(self._descriptor, [part], offset)
            offset += len(part)
        self._files.sync(self._descriptor)

    def begin(self, first_index: int, previous_term: int) -> None:
        """Start a new last segment; the one before is synced first, so that only the last can be torn."""
        if self._descriptor is not None:
            self._files.sync(self._descriptor)
        segment, descriptor = create_segment(self._files, self._directory, self._journal_id, first_index, previous_term)
        if self._descriptor is not None:
            self._retired.append(self._descriptor)
        self._descriptor = descriptor
        self._segments.append(segment)

    def write(self, entries: Sequence[Entry], previous_term: int) -> int:
        """Write as many of the entries as the last segment takes, at least one; returns how many.

        `previous_term` is the term of the entry before the first of them. After an error nothing counts as written,
        and the same call may be repeated.
        """
        if self._segments[-1].end >= self._segment_bytes:
            self.begin(entries[0].index, previous_term)
        segment = self._segments[-1]
        room = self._segment_bytes - segment.end
        buffers: list[bytes] = []
        for entry in entries:
            size = RECORD_BYTES + len(entry.payload)
            if buffers and room < size:
                break
            room -= size
            buffers.append(encode_header(entry, segment.seed))
            buffers.append(entry.payload)
        self._files.write(self.descriptor, buffers, segment.end)
        count = len(buffers) // 2
        for entry in entries[:count]:
            segment.note(entry.index, segment.end, RECORD_BYTES + len(entry.payload))
        return count

    def read(self, first: int, last: int, max_bytes: int) -> list[Entry]:
        """Entries from `first` on within one segment; the caller asks again for the rest."""
        return read_records(self._files, self._segments[self._position(first)], first, last, max_bytes)

    def cut_from(self, index: int) -> None:
        """Remove the entries from `index` on, newest file first, each step synced."""
        while len(self._segments) > 1 and self._segments[-1].first_index >= index:
            gone = self._segments.pop()
            self._retire()
            self._files.unlink(gone.path)
            self._files.sync_directory(self._directory)
        segment = self._segments[-1]
        if self._descriptor is None:
            self._descriptor = self._files.open(segment.path)
        if segment.last_index >= index:
            segment.end = locate(self._files, segment, index)
            segment.last_index = index - 1
            segment.points = [point for point in segment.points if point[0] < index]
            self._files.truncate(self._descriptor, segment.end)
            self._files.sync(self._descriptor)

    def drop_to(self, index: int, keep_bytes: int) -> list[Path]:
        """Forget whole segments with nothing above `index`, while the ones after them hold `keep_bytes`.

        Returns their files, oldest first: to be removed in this order.
        """
        gone: list[Path] = []
        left = self.bytes
        while len(self._segments) > 1 and self._segments[0].last_index <= index:
            left -= self._segments[0].end
            if left < keep_bytes:
                break
            gone.append(self._segments.pop(0).path)
        return gone

    def close_retired(self) -> None:
        """Close what is no longer written; to be called by whoever syncs, so that no sync uses a closed one."""
        while self._retired:
            self._files.close(self._retired.pop())

    def close(self) -> None:
        """Let go of all files."""
        self._retire()
        self.close_retired()

    def _retire(self) -> None:
        if self._descriptor is not None:
            self._retired.append(self._descriptor)
            self._descriptor = None

    def _position(self, index: int) -> int:
        return bisect_right(self._segments, index, key=lambda segment: segment.first_index) - 1
