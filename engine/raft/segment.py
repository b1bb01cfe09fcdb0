"""One file of the log: a header that names its first entry, then records, one behind the other.

The file is named by its first index in 20 digits. It gets that name only after its header is on the disk, and the
segment before it is synced first; so a header that cannot be read is never the trace of a power cut, and neither is a
bad record in any segment but the last.

======  =====  =======================================================================================
offset  bytes  meaning (little endian)
======  =====  =======================================================================================
0       8      ``EVSCHLOG``
8       2      version, 1
10      2      bytes of this header, 64: the first record begins there
12      4      zero
16      16     id of the journal
32      8      index of the first entry
40      8      term of the entry before it, 0 when there was none
48      12     zero
60      4      CRC-32 of the bytes before; it is also the seed of the records' CRCs
======  =====  =======================================================================================
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

from engine.errors import ConfigError, DamagedError
from engine.raft.files import Files
from engine.raft.log import Entry
from engine.raft.record import HEADER_BYTES as RECORD_BYTES
from engine.raft.record import decode_header, index_pattern, is_intact

SUFFIX = ".log"
_MAGIC = b"EVSCHLOG"
_VERSION = 1
_HEADER = struct.Struct("<8sHHI16sQQ12s")
_CRC = struct.Struct("<I")
_HEADER_BYTES = _HEADER.size + _CRC.size
_HEADER_BYTES_MAX = 4096
_POINT_BYTES = 64 * 1024
"""Distance of the remembered offsets: at most this much is skimmed to find an entry."""
_CHUNK_BYTES = 1024 * 1024
"""Read at once while a segment is checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """Where a segment stops being readable."""

    path: Path
    offset: int
    index: int
    """The entry that should be there."""
    what: str


@dataclass(slots=True, kw_only=True)
class Segment:
    """A segment whose header was read, and as much of its records as was checked or written."""

    path: Path
    journal_id: bytes
    first_index: int
    previous_term: int
    seed: int
    end: int
    """Where the next record goes."""
    last_index: int
    points: list[tuple[int, int]] = field(default_factory=list)
    """(index, offset) of some records, ascending."""

    def note(self, index: int, offset: int, size: int) -> None:
        """A record of `size` bytes stands at `offset`."""
        if not self.points or offset - self.points[-1][1] >= _POINT_BYTES:
            self.points.append((index, offset))
        self.end = offset + size
        self.last_index = index


def file_name(first_index: int) -> str:
    """The name of the segment that begins with this entry."""
    return f"{first_index:020d}{SUFFIX}"


def create_segment(
    files: Files, directory: Path, journal_id: bytes, first_index: int, previous_term: int
) -> tuple[Segment, int]:
    """Make an empty segment, synced under its name, replacing one of that name; returns its descriptor too."""
    path = directory / file_name(first_index)
    header = _HEADER.pack(_MAGIC, _VERSION, _HEADER_BYTES, 0, journal_id, first_index, previous_term, b"")
    crc = crc32(header)
    aside = path.with_suffix(".tmp")
    descriptor = files.open(aside, create=True)
    try:
        files.write(descriptor, [header + _CRC.pack(crc)], 0)
        files.sync(descriptor)
        files.rename(aside, path)
        files.sync_directory(directory)
    except BaseException:
        files.close(descriptor)
        raise
    segment = Segment(
        path=path,
        journal_id=journal_id,
        first_index=first_index,
        previous_term=previous_term,
        seed=crc,
        end=_HEADER_BYTES,
        last_index=first_index - 1,
    )
    return segment, descriptor


def read_segment(files: Files, path: Path, first_index: int) -> Segment | Flaw:
    """Read the header of the file that is named for `first_index`. Raises ConfigError for a newer version."""
    descriptor = files.open_to_read(path)
    try:
        head = files.read(descriptor, _HEADER_BYTES_MAX, 0)
    finally:
        files.close(descriptor)

    def flaw(what: str) -> Flaw:
        return Flaw(path=path, offset=0, index=first_index, what=what)

    if len(head) < _HEADER_BYTES:
        return flaw(f"the file has {len(head)} bytes, less than its header")
    magic, version, header_bytes, _zero, journal_id, first, previous_term, _rest = _HEADER.unpack_from(head)
    if magic != _MAGIC or not _HEADER_BYTES <= header_bytes <= len(head):
        return flaw("it does not begin as a segment of the log")
    (crc,) = _CRC.unpack_from(head, header_bytes - _CRC.size)
    if crc != crc32(head[: header_bytes - _CRC.size]):
        return flaw("the checksum of the header is wrong")
    if version > _VERSION:
        raise ConfigError(
            f"{path} was written in format {version} and this program knows format {_VERSION}: it is older than the "
            "one that wrote the log. Nothing was changed; start the newer program again."
        )
    if first != first_index:
        return flaw(f"the header names entry {first} as the first one, the file's name another")
    return Segment(
        path=path,
        journal_id=journal_id,
        first_index=first,
        previous_term=previous_term,
        seed=crc,
        end=header_bytes,
        last_index=first - 1,
    )


def check_records(files: Files, segment: Segment, term: int, terms: list[tuple[int, int]]) -> Flaw | None:
    """Read the records from the segment's end on, move the end along, and say where that stopped, if it did.

    `term` is that of the entry before; (index, term) of each record that has another term than its predecessor is
    added to `terms`.
    """
    descriptor = files.open_to_read(segment.path)
    try:
        return _check(files, descriptor, segment, term, terms)
    finally:
        files.close(descriptor)


def _check(files: Files, descriptor: int, segment: Segment, term: int, terms: list[tuple[int, int]]) -> Flaw | None:
    size = files.size(descriptor)
    base = segment.end
    window = memoryview(b"")
    while segment.end < size:
        index = segment.last_index + 1
        position = segment.end - base
        left = size - segment.end
        if left >= RECORD_BYTES and position + RECORD_BYTES > len(window):
            base, position = segment.end, 0
            window = memoryview(files.read(descriptor, min(_CHUNK_BYTES, left), base))
        if position + RECORD_BYTES > len(window):
            return _flaw(segment, f"the file ends {left} bytes into it")
        crc, length, found, found_term = decode_header(window, position)
        if length > left - RECORD_BYTES:
            return _flaw(segment, f"it claims {length} bytes and the file ends after {left - RECORD_BYTES}")
        if position + RECORD_BYTES + length > len(window):
            base, position = segment.end, 0
            window = memoryview(files.read(descriptor, max(_CHUNK_BYTES, RECORD_BYTES + length), base))
        if not is_intact(window, position, crc, length, segment.seed):
            return _flaw(segment, "its checksum is wrong")
        if found != index or found_term < term:
            return _flaw(segment, f"entry {found} of term {found_term} stands there")
        if found_term != term:
            term = found_term
            terms.append((index, term))
        segment.note(index, segment.end, RECORD_BYTES + length)
    return None


def _flaw(segment: Segment, what: str) -> Flaw:
    return Flaw(path=segment.path, offset=segment.end, index=segment.last_index + 1, what=what)


def find_record(files: Files, segment: Segment, index: int) -> int | None:
    """Offset of the intact record of `index`, wherever it stands: to go on behind a damaged one."""
    descriptor = files.open_to_read(segment.path)
    try:
        content = files.read(descriptor, files.size(descriptor), 0)
    finally:
        files.close(descriptor)
    window = memoryview(content)
    place = content.find(index_pattern(index), segment.end)
    while place >= 0:
        start = place - 8
        if start >= segment.end and start + RECORD_BYTES <= len(content):
            crc, length, _index, _term = decode_header(window, start)
            if length <= len(content) - start - RECORD_BYTES and is_intact(window, start, crc, length, segment.seed):
                return start
        place = content.find(index_pattern(index), place + 1)
    return None


def read_records(files: Files, segment: Segment, first: int, last: int, max_bytes: int) -> list[Entry]:
    """Entries of this segment from `first` to `last`, at least one, then as many as `max_bytes` of payload allow.

    Raises DamagedError when a record is no longer what was written.
    """
    offset = locate(files, segment, first)
    entries: list[Entry] = []
    descriptor = files.open_to_read(segment.path)
    try:
        for index in range(first, min(last, segment.last_index) + 1):
            head = files.read(descriptor, RECORD_BYTES, offset)
            length = decode_header(head, 0)[1] if len(head) == RECORD_BYTES else 0
            if entries and length > max_bytes:
                break
            window = head + files.read(descriptor, min(length, segment.end - offset), offset + RECORD_BYTES)
            entries.append(_decode(segment, window, index, offset))
            max_bytes -= length
            offset += RECORD_BYTES + length
    finally:
        files.close(descriptor)
    return entries


def locate(files: Files, segment: Segment, index: int) -> int:
    """Offset of the record of `index`; the headers from the nearest remembered point on are skimmed."""
    assert segment.first_index <= index <= segment.last_index + 1, "the entry belongs to this segment"
    if index == segment.last_index + 1:
        return segment.end
    at, offset = max(point for point in segment.points if point[0] <= index)
    descriptor = files.open_to_read(segment.path)
    try:
        window = files.read(descriptor, min(_POINT_BYTES * 2, segment.end - offset), offset)
        position = 0
        while at < index:
            if position + RECORD_BYTES > len(window):
                offset += position
                position = 0
                window = files.read(descriptor, _POINT_BYTES, offset)
            if len(window) < RECORD_BYTES:
                raise DamagedError(f"{segment.path} became shorter while it was in use: entry {at} is missing.")
            position += RECORD_BYTES + decode_header(window, position)[1]
            at += 1
        return offset + position
    finally:
        files.close(descriptor)


def _decode(segment: Segment, window: bytes, index: int, offset: int) -> Entry:
    view = memoryview(window)
    intact = len(window) >= RECORD_BYTES
    if intact:
        crc, length, found, term = decode_header(view, 0)
        intact = found == index and len(window) == RECORD_BYTES + length
        intact = intact and is_intact(view, 0, crc, length, segment.seed)
    if not intact:
        raise DamagedError(
            f"{segment.path}: the record of entry {index} at byte {offset} was damaged while the log was in use. "
            "The files were left as they are: check the disk, then restore this node's storage."
        )
    return Entry(index, term, window[RECORD_BYTES:])
