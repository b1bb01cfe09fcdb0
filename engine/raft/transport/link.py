"""One TCP connection to another node: the handshake, then frames, until it closes. Used by the transport's thread only.

The outbox alone may be filled from other threads.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections import deque
from typing import Protocol

from engine.config import TransportLimits
from engine.raft.transport.admission import RefusedError
from engine.raft.transport.fragments import PART_HEAD_BYTES, Outbox, Reassembly
from engine.raft.transport.frames import Buffer, Frame, FrameError, FrameReader, FrameType, Seal, frame_parts
from engine.raft.transport.handshake import Acceptor, Initiator, Session, rejected, rejection
from engine.raft.transport.transport import Identity, Reason

_PIECES_MAX = 64
"""Pieces of one sendmsg, far below the system's IOV_MAX of 1024."""
_PING = struct.Struct("<Q")
_HANDSHAKE_READ_BYTES = 4096
_SESSION_READ_BYTES = 256 * 1024


class LinkOwner(Protocol):
    """What a link reports to."""

    def link_opened(self, link: Link) -> None:
        """The handshake is done. RefusedError closes the link again, and tells the other end why."""
        ...

    def link_message(self, link: Link, kind: int, payload: bytes) -> None:
        """A whole message came."""
        ...

    def link_alive(self, link: Link) -> None:
        """A superseded link has answered."""
        ...

    def link_leaving(self, link: Link) -> None:
        """It takes no more messages, and closes when everything that waits has been sent."""
        ...

    def link_closed(self, link: Link, reason: str, refused: RefusedError | None) -> None:
        """Called once; `refused` when one of the ends did not want the other."""
        ...

    def link_interest(self, link: Link) -> None:
        """`wants_write` has changed."""
        ...


class Link:
    """See the module. `now_s` everywhere is the clock's elapsed time."""

    def __init__(
        self,
        connection: socket.socket,
        handshake: Initiator | Acceptor,
        owner: LinkOwner,
        limits: TransportLimits,
        now_s: float,
        *,
        connecting: bool = False,
    ) -> None:
        self.socket = connection
        self.session: Session | None = None
        self.outbox = Outbox(limits)
        self.closed = False
        self.dirty = False
        """It is in the transport's queue of links to be flushed."""
        self.leaving = ""
        """Why this connection is being closed in order; empty while it is not."""
        self.superseded = False
        """An older connection of a name that another process claims too: kept until it answers a ping or does not."""
        self.opened_s = now_s
        """When it began; from the end of the handshake on, when that was."""
        self.heard_s = now_s
        self.asked_s = now_s
        self.connecting = connecting
        self._handshake = handshake
        self._owner = owner
        self._limits = limits
        self._reader = FrameReader(limits.handshake_bytes)
        self._reassembly = Reassembly(limits.message_bytes_max)
        self._seal: Seal | None = None
        self._wire: deque[Buffer] = deque()
        self._wire_bytes = 0
        self._wants_write = connecting
        self._answer: bytes | None = None
        """The body of the newest ping that waits for its pong: many of them need one answer."""
        self._refused: RefusedError | None = None
        self._bye_sent = False
        self._bye_received = False
        self._pings = 0
        self._probe = 0
        if not connecting:
            self._begin()

    @property
    def peer(self) -> Identity:
        """The other end; only after the handshake."""
        assert self.session is not None
        return self.session.peer

    @property
    def connection_id(self) -> str:
        """The same at both ends; only after the handshake."""
        assert self.session is not None
        return self.session.connection_id

    @property
    def wants_write(self) -> bool:
        """Whether the selector is to tell when the socket takes more bytes."""
        return self._wants_write

    @property
    def waiting_bytes(self) -> int:
        """Bytes that the kernel has not taken yet."""
        return self.outbox.backlog_bytes + self._wire_bytes

    def connected(self, now_s: float) -> None:
        """The TCP connection stands: say hello."""
        self.connecting = False
        self.opened_s = self.heard_s = now_s
        self._begin()
        self.flush()

    def readable(self, now_s: float) -> None:
        """Read once and handle every whole frame of it."""
        reading = _SESSION_READ_BYTES if self.session else _HANDSHAKE_READ_BYTES
        try:
            data = self.socket.recv(reading)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(f"the connection broke: {_words(error)}")
            return
        if not data:
            self.close("the other node closed the connection")
            return
        self.heard_s = now_s
        try:
            self._reader.feed(data)
            while not self.closed and (frame := self._reader.next()) is not None:
                self._handle(frame, now_s)
        except FrameError as error:
            self._faulty(str(error))
        except RefusedError as refused:
            self.refuse(refused)
        if self._wire_bytes or self._answer is not None:
            self.flush()

    def flush(self) -> None:
        """Write what the socket takes now, and ask to be told when it takes more."""
        if self.closed or self.connecting:
            return
        try:
            self._fill()
            while self._wire:
                pieces = [self._wire[i] for i in range(min(len(self._wire), _PIECES_MAX))]
                self._written(self.socket.sendmsg(pieces))
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self.close(f"the connection broke: {_words(error)}")
            return
        if self._bye_sent and self._bye_received and not self._wire:
            self.close(self.leaving)
            return
        wants = bool(self._wire) or (self.session is not None and self.outbox.backlog_bytes > 0)
        if wants != self._wants_write:
            self._wants_write = wants
            self._owner.link_interest(self)

    def ping(self, now_s: float) -> None:
        """Ask the other end for a sign of life."""
        self.asked_s = now_s
        self._pings += 1
        self._queue(FrameType.PING, [_PING.pack(self._pings)])
        self.flush()

    def supersede(self, now_s: float) -> None:
        """Another process bears this one's name: take nothing more from it, and find out whether it is alive."""
        self.superseded = True
        self._probe = self._pings + 1
        self.ping(now_s)

    def refuse(self, refused: RefusedError) -> None:
        """Tell the other end why, as far as that is possible without waiting, and close."""
        self._refused = refused
        if not refused.by_peer:
            self._queue(FrameType.REJECT, rejection(refused))
            self.flush()
        self.close(refused.detail)

    def goodbye(self, reason: str) -> None:
        """Take no more messages, send what waits, and close when the other end has done the same."""
        if self.session is None:
            self.close(reason)
        elif not self.leaving:
            self._leave(reason)
            self.flush()

    def close(self, reason: str) -> None:
        """Close now; what still waits is gone, and the owner is told. Repeating it does nothing."""
        if self.closed:
            return
        self.closed = True
        self.outbox.close()
        self._owner.link_closed(self, reason, self._refused)
        self.socket.close()
        self._wire.clear()

    def unproven(self) -> Identity | None:
        """Who the other end says it is, during the handshake."""
        return self._handshake.claimed

    def _begin(self) -> None:
        if isinstance(self._handshake, Initiator):
            self._append(self._handshake.begin())

    def _handle(self, frame: Frame, now_s: float) -> None:
        if self.session is None:
            self._append(self._handshake.receive(frame))
            if self._handshake.session is not None:
                self._open(self._handshake.session, now_s)
        elif frame.type is FrameType.DATA:
            message = self._reassembly.add(frame)
            if message is not None and not self.superseded:
                self._owner.link_message(self, *message)
        elif frame.type is FrameType.PING and len(frame.body) == _PING.size:
            self._answer = frame.body
        elif frame.type is FrameType.PONG:
            self._answered(frame)
        elif frame.type is FrameType.BYE and self._bye_sent:
            self.close(self.leaving)
        elif frame.type is FrameType.BYE:
            self._bye_received = True
            if not self.leaving:
                self._leave(frame.body.decode("utf-8", "replace") or "the other node closed the connection")
            self.flush()
        elif frame.type is FrameType.REJECT:
            raise rejected(frame)
        else:
            raise FrameError(f"a {frame.type.name} frame of {len(frame.body)} bytes inside a session")

    def _leave(self, reason: str) -> None:
        self.leaving = reason
        self.outbox.close()
        self._owner.link_leaving(self)

    def _answered(self, frame: Frame) -> None:
        if len(frame.body) != _PING.size:
            raise FrameError(f"a PONG frame of {len(frame.body)} bytes")
        if self.superseded and _PING.unpack(frame.body)[0] >= self._probe:
            self._owner.link_alive(self)

    def _open(self, session: Session, now_s: float) -> None:
        self.session = session
        self.opened_s = now_s
        self._seal = Seal(session.send_key)
        self._reader.seal = Seal(session.receive_key)
        self._reader.body_bytes_max = self._limits.fragment_bytes + PART_HEAD_BYTES
        self._owner.link_opened(self)

    def _faulty(self, detail: str) -> None:
        if self.session is None:
            refused = RefusedError(Reason.BAD_HANDSHAKE, detail, claimed=self.unproven())
            self.refuse(refused)
        else:
            self.close(f"protocol error: {detail}")

    def _queue(self, frame_type: FrameType, body: list[Buffer] | None = None) -> None:
        self._append(frame_parts(self._seal, frame_type, body or []))

    def _append(self, parts: list[Buffer]) -> None:
        for part in parts:
            if len(part):
                self._wire.append(part)
                self._wire_bytes += len(part)

    def _fill(self) -> None:
        """Turn messages into frames, in order; few at a time, so that an urgent one passes all but these."""
        if self.session is None:
            return
        if self._answer is not None:
            self._queue(FrameType.PONG, [self._answer])
            self._answer = None
        while self._wire_bytes < self._limits.gather_bytes:
            parts = self.outbox.next_frame(self._seal)
            if parts is None:
                break
            self._append(parts)
        if self.leaving and not self._bye_sent and not self.outbox.backlog_bytes:
            self._bye_sent = True
            self._queue(FrameType.BYE, [self.leaving.encode()])

    def _written(self, count: int) -> None:
        self._wire_bytes -= count
        while count:
            piece = self._wire.popleft()
            if len(piece) > count:
                self._wire.appendleft(memoryview(piece)[count:])
                return
            count -= len(piece)


def _words(error: OSError) -> str:
    if error.errno == errno.ETIMEDOUT:
        return "what was sent was not confirmed in time"
    return error.strerror or str(error)
