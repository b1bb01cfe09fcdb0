"""One entry as bytes in a segment: a header of 24 bytes and the payload.

======  =====  ============================================================================
offset  bytes  meaning (little endian)
======  =====  ============================================================================
0       4      CRC-32 over the next 20 bytes and the payload, begun with the segment's seed
4       4      length of the payload
8       8      index
16      8      term
24      ...    payload
======  =====  ============================================================================

The seed is the CRC of the segment's header, so that bytes which another file left on the disk are never taken for an
entry of this one.
"""

from __future__ import annotations

import struct
from zlib import crc32

from engine.raft.log import Entry

HEADER_BYTES = 24
_CRC = struct.Struct("<I")
_FIELDS = struct.Struct("<IQQ")
_HEADER = struct.Struct("<IIQQ")


def encode_header(entry: Entry, seed: int) -> bytes:
    """The 24 bytes that precede the payload."""
    fields = _FIELDS.pack(len(entry.payload), entry.index, entry.term)
    return _CRC.pack(crc32(entry.payload, crc32(fields, seed))) + fields


def decode_header(window: bytes | memoryview, position: int) -> tuple[int, int, int, int]:
    """CRC, length, index and term as they stand there; nothing is checked."""
    crc, length, index, term = _HEADER.unpack_from(window, position)
    return crc, length, index, term


def is_intact(window: memoryview, position: int, crc: int, length: int, seed: int) -> bool:
    """Whether header and payload at `position` are the bytes that were written."""
    body = position + HEADER_BYTES
    fields = window[position + 4 : body]
    return crc32(window[body : body + length], crc32(fields, seed)) == crc


def index_pattern(index: int) -> bytes:
    """How an index looks in a header, 8 bytes after its begin: to find an entry behind a damaged one."""
    return struct.pack("<Q", index)
