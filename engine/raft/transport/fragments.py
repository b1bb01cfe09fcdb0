"""Messages as frames: a bounded queue that cuts large ones into fragments, and their reassembly.

A message that fits into one fragment is one DATA frame with both flags and the payload as its body. A larger one is a
row of DATA frames; the body of each begins with the transfer's number (u32), in the first one followed by the length
of the whole payload (u32).

Two lanes: messages are sent in the order in which they were queued; *urgent* ones, each at most one fragment, pass all
others, also between the fragments of a large one.
"""

from __future__ import annotations

import struct
import threading
from collections import deque
from typing import Final

from engine.config import TransportLimits
from engine.errors import LimitExceeded
from engine.raft.transport.frames import FIRST, KIND_MAX, LAST, Buffer, Frame, FrameError, FrameType, Seal, frame_parts

_FIRST_PART: Final = struct.Struct("<II")
_LATER_PART: Final = struct.Struct("<I")
PART_HEAD_BYTES: Final = _FIRST_PART.size
MESSAGE_COST_BYTES: Final = 64
"""What a message counts in a queue besides its payload, so that empty ones are bounded too."""


def checked_message(kind: int, payload: bytes, urgent: bool, limits: TransportLimits) -> None:
    """Refuse what can never be sent: ValueError for a kind that is no u16, LimitExceeded for too many bytes."""
    if not 0 <= kind <= KIND_MAX:
        raise ValueError(f"kind {kind} is no number from 0 to {KIND_MAX}")
    bytes_max = limits.fragment_bytes if urgent else limits.message_bytes_max
    if len(payload) > bytes_max:
        what = "an urgent message" if urgent else "a message"
        raise LimitExceeded(f"{what} of {len(payload)} bytes to another node, at most {bytes_max} are allowed")


class Outbox:
    """What waits to be sent on one connection. `push` may be called from any thread, `next_frame` from one."""

    def __init__(self, limits: TransportLimits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._ordinary: deque[tuple[int, bytes]] = deque()
        self._urgent: deque[tuple[int, bytes]] = deque()
        self._ordinary_bytes = 0
        self._urgent_bytes = 0
        self._sent_bytes = 0
        self._transfer = 0
        self._closed = False

    @property
    def backlog_bytes(self) -> int:
        """Bytes that wait in both lanes."""
        return self._ordinary_bytes + self._urgent_bytes

    @property
    def writable(self) -> bool:
        """Whether an ordinary message would be taken now."""
        return not self._closed and self._ordinary_bytes < self._limits.queue_bytes

    def close(self) -> None:
        """Take nothing more; what waits can still be sent."""
        with self._lock:
            self._closed = True

    def push(self, kind: int, payload: bytes, urgent: bool) -> bool:
        """Queue one message; False when its lane is full. A lane exceeds its limit by one message at most."""
        cost = len(payload) + MESSAGE_COST_BYTES
        with self._lock:
            if urgent:
                if self._closed or self._urgent_bytes >= self._limits.urgent_bytes:
                    return False
                self._urgent.append((kind, payload))
                self._urgent_bytes += cost
            else:
                if not self.writable:
                    return False
                self._ordinary.append((kind, payload))
                self._ordinary_bytes += cost
        return True

    def next_frame(self, seal: Seal | None) -> list[Buffer] | None:
        """The pieces of the frame that goes next, None when nothing waits."""
        with self._lock:
            if self._urgent:
                kind, payload = self._urgent.popleft()
                self._urgent_bytes -= len(payload) + MESSAGE_COST_BYTES
                return frame_parts(seal, FrameType.DATA, (payload,), flags=FIRST | LAST, kind=kind)
            if not self._ordinary:
                return None
            kind, payload = self._ordinary[0]
            if len(payload) <= self._limits.fragment_bytes:
                self._finish(payload)
                return frame_parts(seal, FrameType.DATA, (payload,), flags=FIRST | LAST, kind=kind)
            return self._next_fragment(seal, kind, payload)

    def _next_fragment(self, seal: Seal | None, kind: int, payload: bytes) -> list[Buffer]:
        start, end = self._sent_bytes, min(self._sent_bytes + self._limits.fragment_bytes, len(payload))
        flags = LAST if end == len(payload) else 0
        if start:
            head = _LATER_PART.pack(self._transfer)
        else:
            self._transfer = (self._transfer + 1) & 0xFFFFFFFF
            head = _FIRST_PART.pack(self._transfer, len(payload))
            flags |= FIRST
        self._sent_bytes = end
        if flags & LAST:
            self._finish(payload)
        return frame_parts(seal, FrameType.DATA, (head, memoryview(payload)[start:end]), flags=flags, kind=kind)

    def _finish(self, payload: bytes) -> None:
        self._ordinary.popleft()
        self._ordinary_bytes -= len(payload) + MESSAGE_COST_BYTES
        self._sent_bytes = 0


class Reassembly:
    """Puts the fragments of one connection together again; at most one message is unfinished at a time."""

    def __init__(self, message_bytes_max: int) -> None:
        self._bytes_max = message_bytes_max
        self._transfer = -1
        self._kind = 0
        self._total_bytes = 0
        self._parts: list[memoryview] = []
        self._held_bytes = 0

    def add(self, frame: Frame) -> tuple[int, bytes] | None:
        """(kind, payload) when this DATA frame completes a message; FrameError for one that does not fit."""
        if frame.flags == FIRST | LAST:
            return frame.kind, frame.body
        if frame.flags & FIRST:
            self._begin(frame)
        else:
            self._go_on(frame)
        if self._held_bytes > self._total_bytes:
            raise FrameError(f"fragments of more than the {self._total_bytes} bytes that the first one announced")
        if not frame.flags & LAST:
            return None
        if self._held_bytes < self._total_bytes:
            raise FrameError(f"a message ends after {self._held_bytes} of {self._total_bytes} bytes")
        payload = b"".join(self._parts)
        self._transfer = -1
        self._parts = []
        self._held_bytes = 0
        return self._kind, payload

    def _begin(self, frame: Frame) -> None:
        if self._transfer >= 0:
            raise FrameError("a message begins inside another one")
        if len(frame.body) <= _FIRST_PART.size:
            raise FrameError("a first fragment without content")
        transfer, total_bytes = _FIRST_PART.unpack_from(frame.body)
        if total_bytes > self._bytes_max:
            raise FrameError(f"a message of {total_bytes} bytes, at most {self._bytes_max} are allowed")
        self._transfer, self._total_bytes, self._kind = transfer, total_bytes, frame.kind
        self._keep(frame.body, _FIRST_PART.size)

    def _go_on(self, frame: Frame) -> None:
        if len(frame.body) <= _LATER_PART.size:
            raise FrameError("a fragment without content")
        (transfer,) = _LATER_PART.unpack_from(frame.body)
        if transfer != self._transfer or frame.kind != self._kind:
            raise FrameError(f"a fragment of transfer {transfer} while {self._transfer} is going on")
        self._keep(frame.body, _LATER_PART.size)

    def _keep(self, body: bytes, offset: int) -> None:
        self._parts.append(memoryview(body)[offset:])
        self._held_bytes += len(body) - offset
