"""Child processes as the tests and the benchmark run them: output in a file, a start that is waited for, a sure end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
"""The checkout: where `manage.py` is."""

POLL_S: Final = 0.01
TAIL_BYTES: Final = 4000

_OURS: Final = ("API_", "CLUSTER_", "PUBSUB_", "LISTENER_", "PUBLISHER_", "ADMIN_", "DEMO_", "UNSAFE_", "LOG_")
_OURS_WHOLE: Final = {
    "STORAGE_PATH",
    "SECRET_KEY",
    "ALLOWED_HOSTS",
    "CSRF_TRUSTED_ORIGINS",
    "TRUSTED_PROXIES",
    "KEY_FILES_DIR",
    "DATABASE_URL",
    "SHUTDOWN_GRACE_SECONDS",
    "DJANGO_SETTINGS_MODULE",
}


class ProcessFailed(AssertionError):
    """A process did not do what it was started for; the message ends with the tail of its output."""


def free_port() -> int:
    """A port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(condition: Callable[[], bool], timeout_s: float, what: str | Callable[[], str]) -> None:
    """Poll until `condition` holds; AssertionError saying what was waited for when it does not in time."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not within {timeout_s} s: {what if isinstance(what, str) else what()}")
        time.sleep(POLL_S)


def clean_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This process's environment without any variable that a node reads, and with `extra`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_OURS) and k not in _OURS_WHOLE}
    # Compiling every module at each start is not what an operator's node does.
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**kept, "PYTHONUNBUFFERED": "1", **extra}


class Process:
    """One child in a session of its own, so that ending it ends everything below it."""

    def __init__(self, arguments: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.log = log
        self._log_from = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=ROOT,
                env=clean_environment(environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.started_s = time.monotonic()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative = ended by that signal."""
        return self._popen.poll()

    def output(self) -> str:
        """Everything this process has written so far."""
        with self.log.open("rb") as file:
            file.seek(self._log_from)
            return file.read().decode(errors="replace")

    def wait_line(self, prefix: str, timeout_s: float) -> str:
        """The rest of the first output line that begins with `prefix`."""

        def find() -> str | None:
            return next((line for line in self.output().splitlines() if line.startswith(prefix)), None)

        self.wait_until(lambda: find() is not None, timeout_s, f"a line beginning with {prefix!r}")
        return (find() or "").removeprefix(prefix).strip()

    def wait_until(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Poll until `condition` holds; ProcessFailed when the process ends first or time runs out."""
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            if self.exit_code is not None:
                raise self.failure(f"ended with {self.exit_code} before {what}")
            if time.monotonic() > deadline_s:
                raise self.failure(f"not within {timeout_s} s: {what}")
            time.sleep(POLL_S)

    def failure(self, sentence: str) -> ProcessFailed:
        """The error to raise about this process."""
        return ProcessFailed(f"{' '.join(map(str, self._popen.args[1:]))}: {sentence}\n{self.output()[-TAIL_BYTES:]}")  # type: ignore[index]

    def signal(self, number: int) -> None:
        """Send a signal to the process alone."""
        self._popen.send_signal(number)

    def wait_end(self, timeout_s: float) -> int:
        """The exit code, once it has ended."""
        try:
            return self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise self.failure(f"still running after {timeout_s} s") from None

    def kill(self) -> None:
        """SIGKILL to the whole session, and wait."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait(10)

    def terminate(self, timeout_s: float = 30.0) -> int:
        """SIGTERM to the process alone, and its exit code; what outlives the time is killed and reported."""
        if self.exit_code is None:
            self._popen.send_signal(signal.SIGTERM)
        try:
            return self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            failure = self.failure(f"still running {timeout_s} s after SIGTERM")
            self.kill()
            raise failure from None

    def close(self) -> None:
        """End it however it stands; never raises because it is gone."""
        self.kill()


def descendants(pid: int) -> list[int]:
    """Every living process below `pid`, by /proc."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found: list[int] = []
    queue = [pid]
    while queue:
        children = parents.get(queue.pop(), [])
        found += children
        queue += children
    return found


def start_broker(log: Path) -> tuple[Process, str]:
    """The local Pub/Sub in a process of its own, and its `host:port`."""
    process = Process(["-m", "engine.emulator", "--host-port", "127.0.0.1:0"], log=log)
    try:
        return process, process.wait_line("listening on ", 30)
    except BaseException:
        process.close()
        raise


def close_all(processes: Iterable[Process]) -> None:
    """End them all, the last started first."""
    for process in reversed(list(processes)):
        process.close()
