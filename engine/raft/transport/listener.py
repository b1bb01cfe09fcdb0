"""The listening side: sockets on every address of the bind host, accepting without ever giving up."""

from __future__ import annotations

import errno
import socket
from typing import Final

import structlog

from engine.config import TransportLimits
from engine.errors import ConfigError
from engine.raft.transport.address import SocketAddress, look_up

log = structlog.get_logger(__name__)

_ACCEPTS_PER_TURN: Final = 64
_GONE: Final = (errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.EINTR)
"""Errors of one incoming connection, not of the listening socket (accept(2))."""


class Listener:
    """Opens the cluster port and takes connections from it."""

    def __init__(self, host: str, port: int, limits: TransportLimits) -> None:
        """Bind and listen; port 0 takes a free one. ConfigError when no address can be bound."""
        self._limits = limits
        self.paused_until_s = 0.0
        """Accepting rests until then: without free descriptors the ready socket would be reported without end."""
        self.sockets = _open(host, port)
        self.port: int = self.sockets[0].getsockname()[1]

    def accept(self, listening: socket.socket, now_s: float) -> list[socket.socket]:
        """The connections that wait, bounded in number; after an error like EMFILE it rests and goes on later."""
        taken: list[socket.socket] = []
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                connection, _ = listening.accept()
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno in _GONE:
                    continue
                self.paused_until_s = now_s + self._limits.accept_pause_s
                log.warning(
                    "The cluster port cannot accept connections at the moment; it goes on trying.",
                    action="transport_accept_failed",
                    error=error.strerror,
                    port=self.port,
                )
                break
            taken.append(connection)
        return taken

    def close(self) -> None:
        """Stop listening."""
        for listening in self.sockets:
            listening.close()


def _open(host: str, port: int) -> list[socket.socket]:
    where = f"{host or 'all addresses'}, port {port}"
    try:
        addresses = look_up(host, port, passive=True)
    except OSError as error:
        raise ConfigError(f"CLUSTER_BIND_HOST={host!r} cannot be resolved: {error.strerror}") from error
    opened: list[socket.socket] = []
    failure: OSError | None = None
    for target in addresses:
        try:
            opened.append(_listen(target, opened[0].getsockname()[1] if opened else port))
        except OSError as error:
            failure = error
            if error.errno == errno.EADDRINUSE:
                break
    if not opened or (failure is not None and failure.errno == errno.EADDRINUSE):
        for listening in opened:
            listening.close()
        reason = failure.strerror if failure else "it has no address"
        raise ConfigError(f"CLUSTER_NODE_PORT: cannot listen on {where}: {reason}")
    return opened


def _listen(target: SocketAddress, port: int) -> socket.socket:
    listening = socket.socket(target.family, socket.SOCK_STREAM)
    try:
        if target.family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((target.address[0], port, *target.address[2:]))
        listening.listen(socket.SOMAXCONN)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening
