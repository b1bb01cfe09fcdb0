"""A process that runs out of file descriptors for a while: the limit holds for all of a process, so it has its own."""

from __future__ import annotations

import resource
import socket
import sys
from pathlib import Path

from structlog.testing import capture_logs

from engine.config import ControlLimits
from engine.control import ControlServer
from engine.frames import PROTOCOL, SocketPath, receive_frame, send_frame


def ping(connection: socket.socket) -> None:
    send_frame(connection, {"v": PROTOCOL, "op": "ping"})
    assert receive_frame(connection, 1000) == {"ok": True}


def connect(path: SocketPath) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(10.0)
    connection.connect(path.address)
    return connection


def main(directory: Path) -> None:
    server = ControlServer(directory, {"ping": lambda: True}, ControlLimits())
    server.start()
    path = SocketPath(directory)
    early = connect(path)
    ping(early)
    late = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    late.settimeout(10.0)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with capture_logs() as lines:
        resource.setrlimit(resource.RLIMIT_NOFILE, (late.fileno() + 1, hard))
        late.connect(path.address)
        while not any(line["action"] == "control_accept_failed" for line in lines):
            ping(early)  # what stands goes on during the shortage
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    ping(late)
    late.close()
    early.close()
    server.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
