"""Frames on a connection between members: a header of 8 bytes, a body, and in a session a MAC of 16 bytes.

======  =====  ======================================================================
offset  bytes  meaning (little endian)
======  =====  ======================================================================
0       1      type, `FrameType`
1       1      flags: 1 the first, 2 the last fragment of a message; 0 in other types
2       2      kind of a message, given by the sender; 0 in other types
4       4      bytes of the body
8       ...    body
...     16     in a session: HMAC-SHA256 over number, header and body, cut to 16 bytes
======  =====  ======================================================================

The number counts the frames of one direction from 0 and is not sent: a frame that was repeated, left out, moved or
injected has another number at the receiver and does not pass.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from engine.errors import SchedulerError

FIRST: Final = 1
LAST: Final = 2
MAC_BYTES: Final = 16
KIND_MAX: Final = 0xFFFF
_HEADER: Final = struct.Struct("<BBHI")
HEADER_BYTES: Final = _HEADER.size
_NUMBER: Final = struct.Struct("<Q")

Buffer = bytes | memoryview


class FrameType(IntEnum):
    """What a frame is."""

    HELLO = 1
    CHALLENGE = 2
    PROOF = 3
    WELCOME = 4
    REJECT = 5
    DATA = 6
    PING = 7
    PONG = 8
    BYE = 9


class FrameError(SchedulerError):
    """What came is no frame of ours; the connection it came on cannot be used any more."""


class Frame(NamedTuple):
    """One frame whose MAC, if it has one, is right."""

    type: FrameType
    flags: int
    kind: int
    body: bytes


class Seal:
    """Numbers and signs the frames of one direction of one session, at either end."""

    def __init__(self, key: bytes) -> None:
        self._start = hmac.new(key, digestmod=hashlib.sha256)
        self._number = 0

    def mac(self, parts: Sequence[Buffer]) -> bytes:
        """The MAC of the next frame, whose header and body are `parts`."""
        code = self._start.copy()
        code.update(_NUMBER.pack(self._number))
        for part in parts:
            code.update(part)
        self._number += 1
        return code.digest()[:MAC_BYTES]


def frame_parts(
    seal: Seal | None, frame_type: FrameType, body: Sequence[Buffer] = (), *, flags: int = 0, kind: int = 0
) -> list[Buffer]:
    """One frame as pieces to be written one behind the other; the body is not copied."""
    header = _HEADER.pack(frame_type, flags, kind, sum(map(len, body)))
    parts: list[Buffer] = [header, *body]
    if seal is not None:
        parts.append(seal.mac(parts))
    return parts


class FrameReader:
    """Cuts received bytes into frames.

    Holds at most one unfinished frame besides what was fed last, so its work and its memory stay proportional to
    what was received.
    """

    def __init__(self, body_bytes_max: int) -> None:
        self.body_bytes_max = body_bytes_max
        """A larger length is refused when its header is read, before anything is kept for it."""
        self.seal: Seal | None = None
        """From the moment it is set, every frame needs a MAC."""
        self._buffer = bytearray()
        self._position = 0

    @property
    def held_bytes(self) -> int:
        """Received and not yet returned."""
        return len(self._buffer) - self._position

    def feed(self, data: bytes) -> None:
        """Add what was received; call `next` until it returns None before feeding more."""
        if self._position:
            del self._buffer[: self._position]
            self._position = 0
        self._buffer += data

    def next(self) -> Frame | None:
        """The next whole frame; FrameError when there can be none."""
        if self.held_bytes < HEADER_BYTES:
            return None
        number, flags, kind, length = _HEADER.unpack_from(self._buffer, self._position)
        frame_type = _checked(number, flags, kind)
        if length > self.body_bytes_max:
            raise FrameError(f"a frame of {length} bytes, at most {self.body_bytes_max} are allowed")
        body_at = self._position + HEADER_BYTES
        body_end = body_at + length
        end = body_end + (MAC_BYTES if self.seal else 0)
        if len(self._buffer) < end:
            return None
        with memoryview(self._buffer) as view, view[self._position : body_end] as signed:
            if self.seal and not hmac.compare_digest(self.seal.mac((signed,)), view[body_end:end]):
                raise FrameError("a frame with a wrong MAC: altered, repeated, out of order or not from this session")
            body = bytes(signed[HEADER_BYTES:])
        self._position = end
        return Frame(frame_type, flags, kind, body)


def _checked(number: int, flags: int, kind: int) -> FrameType:
    try:
        frame_type = FrameType(number)
    except ValueError:
        raise FrameError(f"a frame of the unknown type {number}") from None
    if flags & ~(FIRST | LAST) or (frame_type is not FrameType.DATA and (flags or kind)):
        raise FrameError(f"a {frame_type.name} frame with the flags {flags} and the kind {kind}")
    return frame_type
