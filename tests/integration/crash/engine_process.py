"""Engines without a web side, made quickly: everything is imported once, and each order forks one engine.

Orders on standard input, one a line: `start` waits for the end of the engine before, forks the next and answers
`started <pid>` at once. The engine runs as the environment says and ends in order on SIGTERM.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading

from engine.config import EngineConfig
from engine.node import Node

PR_SET_PDEATHSIG = 1
POLL_S = 0.05


def main() -> None:
    """Serve orders until standard input closes."""
    config = EngineConfig.from_env(os.environ)
    pid = 0
    for _ in sys.stdin:
        if pid:
            os.waitpid(pid, 0)
        pid = os.fork()
        if pid == 0:
            os._exit(run(config))
        sys.stdout.write(f"started {pid}\n")
        sys.stdout.flush()


def run(config: EngineConfig) -> int:
    """One engine's life; its exit code."""
    # Standard output carries the answers to orders; an engine's log goes to standard error.
    os.dup2(2, 1)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    node = Node(config)
    node.start()
    while not stopping.is_set() and node.fatal is None:
        node.wait(POLL_S)
    node.stop(config.shutdown_grace_s)
    return 1 if node.fatal is not None else 0


if __name__ == "__main__":
    main()
