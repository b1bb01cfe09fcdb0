"""A TCP proxy between two nodes that records, alters, withholds and repeats what passes."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

Alter = Callable[[bool, bytes], bytes]
"""`alter(from the dialling end, bytes)` → the bytes that are passed on."""


class Proxy:
    """Forwards every connection to `target` until it is told otherwise."""

    def __init__(self, target: str, alter: Alter = lambda from_dialler, data: data) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self.alter = alter
        self.recorded = {True: bytearray(), False: bytearray()}
        self._flowing = threading.Event()
        self._flowing.set()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._closed = False
        self._start(self._accept)

    def freeze(self) -> None:
        """Pass nothing on any more, and keep the connections open."""
        self._flowing.clear()

    def thaw(self) -> None:
        """Pass on what was withheld."""
        self._flowing.set()

    def inject(self, to_target: bool, data: bytes) -> None:
        """Put bytes into the newest connection."""
        self._sockets[-1 if to_target else -2].sendall(data)

    def close(self) -> None:
        self._closed = True
        self.thaw()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        for connection in (self._listening, *self._sockets):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join(5)
        for connection in (self._listening, *self._sockets):
            connection.close()

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closed:
            try:
                dialler, _ = self._listening.accept()
                target = socket.create_connection(self._target)
            except OSError:
                continue
            self._sockets += [dialler, target]
            self._start(lambda dialler=dialler, target=target: self._pump(dialler, target, True))  # type: ignore[misc]
            self._start(lambda dialler=dialler, target=target: self._pump(target, dialler, False))  # type: ignore[misc]

    def _pump(self, source: socket.socket, sink: socket.socket, from_dialler: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._flowing.wait()
                self.recorded[from_dialler] += data
                sink.sendall(self.alter(from_dialler, data))
        with contextlib.suppress(OSError):
            self._flowing.wait()
            sink.shutdown(socket.SHUT_WR)
