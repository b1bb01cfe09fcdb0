"""The web side as a child process: executed, leashed, started again with back-off when it dies.

It is never forked from this process, whose threads and locks must not be copied. It must be started from a thread
that lives as long as the node does (the main one): the kernel's parent-death signal follows the starting thread.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import structlog

from scheduler_project.env import NODE_PID
from scheduler_project.limits import LIMITS, WebLimits

log = structlog.get_logger(__name__)
_ROOT: Final = Path(__file__).resolve().parent.parent
_COMMAND: Final = (
    sys.executable,
    "-m",
    "gunicorn",
    "-c",
    "python:scheduler_project.gunicorn",
    "scheduler_project.wsgi",
)


class WebChild:
    """gunicorn below this process."""

    def __init__(self, environ: Mapping[str, str], limits: WebLimits = LIMITS) -> None:
        self._environ = {**environ, NODE_PID: str(os.getpid())}
        self._limits = limits
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0
        self._start_at_s: float | None = None
        self._failures = 0

    @property
    def pid(self) -> int | None:
        """The child's process id while one runs."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Execute gunicorn."""
        self._start_at_s = None
        self._started_s = time.monotonic()
        # Inherited descriptors would keep the storage lock and the cluster's port alive behind a dead node.
        self._process = subprocess.Popen(  # noqa: S603
            _COMMAND, cwd=_ROOT, env=self._environ, stdin=subprocess.DEVNULL, close_fds=True
        )
        log.info("The web side starts.", action="web_started", pid=self._process.pid)

    def look(self) -> bool:
        """Notice a death, start again when it is time; False when it has died too often in a row."""
        now_s = time.monotonic()
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return True
            self._process = None
            healthy = now_s - self._started_s >= self._limits.web_healthy_s
            self._failures = 1 if healthy else self._failures + 1
            if self._failures >= self._limits.web_failures_max:
                log.critical("The web side keeps dying.", action="web_failed", exit_code=code, failures=self._failures)
                return False
            delay_s = min(self._limits.web_backoff_min_s * 2 ** (self._failures - 1), self._limits.web_backoff_max_s)
            self._start_at_s = now_s + delay_s
            log.error("The web side died.", action="web_died", exit_code=code, restart_in_s=delay_s)
        elif self._start_at_s is not None and now_s >= self._start_at_s:
            self.start()
        return True

    def stop(self, grace_s: float) -> None:
        """Let it finish its requests for `grace_s`, then end it; with 0 at once."""
        process, self._process, self._start_at_s = self._process, None, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM if grace_s > 0 else signal.SIGKILL)
        try:
            process.wait(grace_s or None)
        except subprocess.TimeoutExpired:
            log.warning("The web side did not finish in time.", action="web_killed", grace_s=grace_s)
            process.kill()
            process.wait()

    def reap_orphans(self) -> None:
        """As process 1 of a container: collect what was left to us, so that no zombie stays."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None or ended.si_pid == self.pid:
                return
            os.waitpid(ended.si_pid, 0)
