"""Frames on the control socket: a length and a msgpack document, with the errors that cross it.

Shared by both ends (`control` serves, `client` calls), so that there is one definition of the protocol. A frame is
``u32 little-endian length · msgpack``; a request is ``{v, op, args}``, an answer ``{ok}`` or ``{error}``.
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path
from typing import Any, Final

import msgspec

from engine import errors
from engine.errors import FieldError, RequestError

PROTOCOL: Final = 1
SOCKET_NAME: Final = "control.sock"
ADDRESS_BYTES_MAX: Final = 107
"""Bytes of a Unix socket's address on Linux (unix(7)), less the closing zero."""
_LENGTH: Final = struct.Struct("<I")

_KINDS: Final[dict[str, type[RequestError]]] = {
    kind.__name__: kind
    for kind in (
        errors.InvalidCommand,
        errors.Unauthenticated,
        errors.Forbidden,
        errors.NotFound,
        errors.Conflict,
        errors.RevisionMismatch,
        errors.LimitExceeded,
        errors.Unavailable,
        errors.NoLeader,
        errors.QueueFull,
        errors.TimedOutBeforeSubmit,
        errors.OutcomeUnknown,
    )
}


class FrameError(errors.SchedulerError):
    """The other end closed in the middle of a frame, or sent what is no frame of ours."""


def send_frame(connection: socket.socket, document: Any) -> None:
    """Send one document."""
    body = msgspec.msgpack.encode(document)
    connection.sendall(_LENGTH.pack(len(body)) + body)


def receive_frame(connection: socket.socket, bytes_max: int) -> Any:
    """The next document, or None when the other end closed between frames."""
    head = _receive(connection, _LENGTH.size)
    if head is None:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > bytes_max:
        raise FrameError(f"a control frame of {length} bytes is over the limit of {bytes_max}")
    body = _receive(connection, length)
    if body is None:
        raise FrameError("the control connection closed inside a frame")
    try:
        return msgspec.msgpack.decode(body)
    except msgspec.DecodeError as error:
        raise FrameError(f"not a control frame: {error}") from error


def _receive(connection: socket.socket, count: int) -> bytes | None:
    """Exactly `count` bytes; None when the connection closed before the first."""
    parts: list[bytes] = []
    missing = count
    while missing:
        part = connection.recv(min(missing, 1 << 20))
        if not part:
            if parts:
                raise FrameError("the control connection closed inside a frame")
            return None
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def pack_error(error: RequestError) -> dict[str, Any]:
    """An error as it crosses the socket."""
    kind = next(name for name, kind in _KINDS.items() if type(error) is kind)
    return {
        "kind": kind,
        "detail": error.detail,
        "code": error.code,
        "errors": [[e.pointer, e.detail] for e in error.errors],
        "retry_after_s": error.retry_after_s,
    }


def unpack_error(document: dict[str, Any]) -> RequestError:
    """The error that the other end raised."""
    kind = _KINDS[document["kind"]]
    if issubclass(kind, errors.Unavailable):
        return kind(document["detail"], reason=document["code"], retry_after_s=document["retry_after_s"] or 1.0)
    faults = tuple(FieldError(pointer, detail) for pointer, detail in document["errors"])
    return kind(document["detail"], reason=document["code"], errors=faults)


class SocketPath:
    """The control socket's address below `directory`, however long that path is.

    A Unix socket's address holds 107 bytes; a longer path goes through a descriptor of the directory in /proc.
    """

    def __init__(self, directory: Path) -> None:
        self._descriptor: int | None = None
        self.address = str(directory.absolute() / SOCKET_NAME)
        """What to bind or connect to."""
        if len(os.fsencode(self.address)) > ADDRESS_BYTES_MAX:
            self._descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self.address = f"/proc/self/fd/{self._descriptor}/{SOCKET_NAME}"

    def close(self) -> None:
        """Give the descriptor back, if there is one."""
        if self._descriptor is not None:
            os.close(self._descriptor)
