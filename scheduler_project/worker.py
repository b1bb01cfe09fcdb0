"""gunicorn's threaded worker, changed so that slow clients never make a healthy node look dead.

Two changes: a new connection waits for its first byte in the event loop instead of in a thread, and a request for a
probe is served by threads of its own. Over HTTPS a probe cannot be told apart before the handshake and shares the
other threads.
"""

from __future__ import annotations

import errno
import socket
import ssl
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from selectors import EVENT_READ
from typing import Any, Final

from gunicorn.workers.gthread import TConn, ThreadWorker

from scheduler_project.limits import LIMITS

_PROBES: Final = (b"GET /livez", b"GET /readyz", b"HEAD /livez", b"HEAD /readyz")
_PEEK_BYTES: Final = max(map(len, _PROBES))
_STOP_LINGER_S: Final = 0.5
"""How long a stopping worker keeps idle connections, for a request that is on its way."""


class ProbeFirstWorker(ThreadWorker):
    """Serves probes whatever the other threads are busy with."""

    def init_process(self) -> None:
        self._probe_pool = ThreadPoolExecutor(LIMITS.probe_threads, "probe")
        super().init_process()  # type: ignore[no-untyped-call]

    def accept(self, listener: socket.socket) -> None:
        """Take a connection and wait for its first byte in the loop."""
        try:
            connection, address = listener.accept()
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.ECONNABORTED, errno.EWOULDBLOCK):
                raise
            return
        self.nr_conns += 1
        waiting = TConn(self.cfg, connection, address, listener.getsockname())  # type: ignore[no-untyped-call]
        waiting.timeout = time.monotonic() + self.cfg.keepalive
        self.pending_conns.append(waiting)
        assert self.poller is not None
        self.poller.register(connection, EVENT_READ, partial(self.on_pending_socket_readable, waiting))

    def enqueue_req(self, conn: Any) -> None:
        """Hand a readable connection to the threads that serve its kind."""
        assert self.tpool is not None
        pool = self._probe_pool if _is_probe(conn.sock) else self.tpool
        future = pool.submit(self.handle, conn)
        defer: Callable[..., None] = self.method_queue.defer
        future.add_done_callback(lambda done: defer(self.finish_request, conn, done))

    def _cap_keepalive(self, deadline: float) -> None:
        deadline = min(deadline, time.monotonic() + _STOP_LINGER_S)
        super()._cap_keepalive(deadline)  # type: ignore[no-untyped-call]
        for conn in self.pending_conns:
            conn.timeout = min(conn.timeout, deadline)


def _is_probe(connection: socket.socket) -> bool:
    if isinstance(connection, ssl.SSLSocket):
        return False
    try:
        head = connection.recv(_PEEK_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except OSError:
        return False
    return head.startswith(_PROBES)
