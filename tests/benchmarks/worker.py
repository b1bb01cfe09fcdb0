"""A benchmark process that takes orders: one JSON line in, one JSON line out."""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from tests.blackbox.processes import ROOT, clean_environment

Answer = dict[str, Any]


class WorkerFailed(RuntimeError):
    """A benchmark process ended or reported an error; the message is what it said."""


class Worker:
    """The caller's side."""

    def __init__(self, module: str, address: str) -> None:
        self._module = module
        self._popen = subprocess.Popen(
            [sys.executable, "-m", module, address],
            cwd=ROOT,
            env=clean_environment({}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    @property
    def pid(self) -> int:
        return self._popen.pid

    def ask(self, op: str, timeout_s: float = 60.0, **arguments: Any) -> Answer:
        """Give one order and wait for its answer."""
        self.order(op, **arguments)
        return self.answer(timeout_s)

    def order(self, op: str, **arguments: Any) -> None:
        """Give one order without waiting; `answer` must follow."""
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(json.dumps({"op": op, **arguments}) + "\n")
        except OSError as error:
            raise WorkerFailed(f"{self._module} is gone (exit code {self._popen.poll()})") from error

    def answer(self, timeout_s: float) -> Answer:
        """The answer to the last order."""
        assert self._popen.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._popen.stdout, selectors.EVENT_READ)
            if not selector.select(timeout_s):
                raise WorkerFailed(f"{self._module} did not answer within {timeout_s:.0f} s")
        line = self._popen.stdout.readline()
        if not line:
            raise WorkerFailed(f"{self._module} ended (exit code {self._popen.wait(10)}); its error is above")
        answer: Answer = json.loads(line)
        if "error" in answer:
            raise WorkerFailed(f"{self._module}: {answer['error']}")
        return answer

    def close(self) -> None:
        """End it."""
        self._popen.kill()
        self._popen.communicate()


def serve(orders: dict[str, Callable[..., Answer]]) -> None:
    """The worker's side: answer orders until standard input closes."""
    for line in sys.stdin:
        arguments = json.loads(line)
        try:
            answer = orders[arguments.pop("op")](**arguments)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
