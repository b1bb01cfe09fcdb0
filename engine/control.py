"""The control socket: answers the calls of `engine.client` for this node, on a Unix socket below STORAGE_PATH.

Only this user can connect (the socket's mode is 0600 in a directory of ours). Each connection has a thread; their
number is bounded, and one that sends nonsense is closed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import structlog

from engine.config import ControlLimits
from engine.errors import InvalidCommand, RequestError, Unavailable
from engine.frames import PROTOCOL, SOCKET_NAME, FrameError, SocketPath, pack_error, receive_frame, send_frame

log = structlog.get_logger(__name__)

Operation = Callable[..., Any]


class ControlServer:
    """Serves a table of operations until it is stopped."""

    def __init__(self, directory: Path, operations: Mapping[str, Operation], limits: ControlLimits) -> None:
        self._directory = directory
        self._operations = operations
        self._limits = limits
        self._listening: socket.socket | None = None
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._accept, name="control", daemon=True)

    def start(self) -> None:
        """Bind and answer; a socket left by an earlier process is replaced (the node holds the storage lock)."""
        (self._directory / SOCKET_NAME).unlink(missing_ok=True)
        path = SocketPath(self._directory)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            mask = os.umask(0o177)
            try:
                listening.bind(path.address)
            finally:
                os.umask(mask)
        finally:
            path.close()
        listening.listen(self._limits.connections_max)
        self._listening = listening
        self._thread.start()

    def stop(self) -> None:
        """Close the socket and every connection."""
        with self._lock:
            self._stopped.set()
            connections = list(self._connections)
        if self._listening is not None:
            # Closing alone does not wake a thread in accept().
            with contextlib.suppress(OSError):
                self._listening.shutdown(socket.SHUT_RDWR)
            self._listening.close()
        for connection in connections:
            with contextlib.suppress(OSError):  # the other end may have closed it first
                connection.shutdown(socket.SHUT_RDWR)
        (self._directory / SOCKET_NAME).unlink(missing_ok=True)
        if self._thread.is_alive():
            self._thread.join()

    def _accept(self) -> None:
        assert self._listening is not None
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError as error:
                if self._stopped.is_set():
                    return
                # No descriptors, most likely: who connects waits until there are some again.
                log.warning("Control calls cannot be accepted.", action="control_accept_failed", reason=str(error))
                self._stopped.wait(self._limits.accept_pause_s)
                continue
            with self._lock:
                if self._stopped.is_set() or len(self._connections) >= self._limits.connections_max:
                    connection.close()
                    continue
                self._connections.add(connection)
            try:
                threading.Thread(target=self._serve, args=(connection,), name="control-call", daemon=True).start()
            except RuntimeError as error:
                log.warning("A control call got no thread.", action="control_thread_failed", reason=str(error))
                self._close(connection)

    def _serve(self, connection: socket.socket) -> None:
        try:
            while (request := receive_frame(connection, self._limits.frame_bytes_max)) is not None:
                send_frame(connection, self._answer(request))
        except (OSError, FrameError) as error:
            if not self._stopped.is_set():
                log.info("A control connection ended early.", action="control_closed", reason=str(error))
        finally:
            self._close(connection)

    def _close(self, connection: socket.socket) -> None:
        connection.close()
        with self._lock:
            self._connections.discard(connection)

    def _answer(self, request: Any) -> dict[str, Any]:
        try:
            return {"ok": self._call(request)}
        except RequestError as error:
            return {"error": pack_error(error)}
        except Exception as error:
            # A fault of ours must reach the caller as an error, and must not cost the others their connection.
            log.exception("A control call failed.", action="control_failed", operation=str(request)[:200])
            return {"error": pack_error(Unavailable(f"the call failed: {error!r}", reason="INTERNAL"))}

    def _call(self, request: Any) -> Any:
        if not isinstance(request, dict) or request.get("v") != PROTOCOL:
            raise InvalidCommand(f"this node speaks version {PROTOCOL} of the control protocol")
        operation = self._operations.get(request.get("op", ""))
        if operation is None:
            raise InvalidCommand(f"unknown operation {request.get('op')!r}")
        return operation(**request.get("args", {}))
