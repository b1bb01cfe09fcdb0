"""How far this member has said that it synced: the line between a torn tail and damage.

The file has two slots of 64 bytes, at 0 and 4096, written in turn and not synced; a slot that cannot be read is as if
it were absent. So the mark may be too low after a power cut, which only makes opening more lenient, and is never too
high: before entries are taken back, both slots are lowered and synced.

======  =====  =====================================
offset  bytes  meaning (little endian)
======  =====  =====================================
0       8      ``EVSCHMRK``
8       2      version, 1
10      2      bytes of the slot, 64
12      4      zero
16      16     id of the journal
32      8      sequence: the higher of the two counts
40      8      index
48      8      term of that entry
56      4      zero
60      4      CRC-32 of the 60 bytes before
======  =====  =====================================
"""

from __future__ import annotations

import struct
from pathlib import Path
from zlib import crc32

from engine.raft.files import Files

FILE_NAME = "mark"
_MAGIC = b"EVSCHMRK"
_VERSION = 1
_SLOT = struct.Struct("<8sHHI16sQQQI")
_CRC = struct.Struct("<I")
_SLOT_BYTES = _SLOT.size + _CRC.size
_SLOT_OFFSETS = (0, 4096)


class Mark:
    """The mark of one journal, with its file open."""

    def __init__(self, files: Files, directory: Path, journal_id: bytes) -> None:
        self._files = files
        self._path = directory / FILE_NAME
        self._journal_id = journal_id
        self._sequence, self.index, self.term = _read(files, self._path, journal_id) or (0, 0, 0)
        self._descriptor: int | None = None

    def open(self) -> None:
        """Make the file ready for writing, with room for both slots."""
        if self._path.name not in self._files.names(self._path.parent):
            self._files.close(self._files.open(self._path, create=True))
            self._files.sync_directory(self._path.parent)
        self._descriptor = self._files.open(self._path)

    def raise_to(self, index: int, term: int) -> None:
        """Everything up to `index` is synced; to be called before anyone is told so. The mark itself is not synced."""
        if index == self.index and term == self.term:
            return
        self._write_slot(index, term)
        self.index, self.term = index, term

    def lower_to(self, index: int, term: int) -> None:
        """Entries after `index` are about to be taken back: the mark is on the disk when this returns."""
        assert self._descriptor is not None, "the mark is open"
        for _slot in _SLOT_OFFSETS:
            self._write_slot(index, term)
        self._files.sync(self._descriptor)
        self.index, self.term = index, term

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor is not None:
            self._files.close(self._descriptor)
            self._descriptor = None

    def _write_slot(self, index: int, term: int) -> None:
        assert self._descriptor is not None, "the mark is open"
        self._sequence += 1
        slot = _SLOT.pack(_MAGIC, _VERSION, _SLOT_BYTES, 0, self._journal_id, self._sequence, index, term, 0)
        offset = _SLOT_OFFSETS[self._sequence % 2]
        self._files.write(self._descriptor, [slot + _CRC.pack(crc32(slot))], offset)


def _read(files: Files, path: Path, journal_id: bytes) -> tuple[int, int, int] | None:
    """Sequence, index and term of the newer slot that can be read."""
    if path.name not in files.names(path.parent):
        return None
    descriptor = files.open_to_read(path)
    try:
        slots = [files.read(descriptor, _SLOT_BYTES, offset) for offset in _SLOT_OFFSETS]
    finally:
        files.close(descriptor)
    readable = [found for found in (_decode(slot, journal_id) for slot in slots) if found is not None]
    return max(readable, default=None)


def _decode(slot: bytes, journal_id: bytes) -> tuple[int, int, int] | None:
    if len(slot) != _SLOT_BYTES or _CRC.unpack_from(slot, _SLOT.size)[0] != crc32(slot[: _SLOT.size]):
        return None
    magic, version, _size, _zero, owner, sequence, index, term, _end = _SLOT.unpack_from(slot)
    if (magic, version, owner) != (_MAGIC, _VERSION, journal_id):
        return None
    return sequence, index, term
