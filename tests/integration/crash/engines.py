"""The caller's side of `engine_process`: start an engine, kill it, ask it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from engine.client import Client
from tests.blackbox.processes import ROOT, clean_environment, free_port, wait_for
from tests.blackbox.pubsub import PROJECT

TAIL_BYTES: Final = 4000


class Engines:
    """One engine at a time on one storage, with the channel `default` from the environment."""

    def __init__(self, directory: Path, pubsub_address: str, *, subscription: str, topic: str) -> None:
        self.storage = directory / "storage"
        self.log = directory / "engine.log"
        self._pid = 0
        with self.log.open("ab") as log:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.crash.engine_process"],
                cwd=ROOT,
                env=clean_environment(
                    {
                        "STORAGE_PATH": str(self.storage),
                        "CLUSTER_NODE_HOST": "127.0.0.1",
                        "CLUSTER_NODE_PORT": str(free_port()),
                        "PUBSUB_EMULATOR_HOST": pubsub_address,
                        "PUBSUB_LISTENER_PROJECT_ID": PROJECT,
                        "PUBSUB_LISTENER_SUBSCRIPTION_ID": subscription,
                        "PUBSUB_PUBLISHER_PROJECT_ID": PROJECT,
                        "PUBSUB_PUBLISHER_TOPIC_ID": topic,
                    }
                ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                bufsize=1,
            )

    def start(self) -> None:
        """Fork the next engine; it may still be recovering when this returns."""
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._popen.stdin.write("start\n")
        answer = self._popen.stdout.readline()
        assert answer.startswith("started "), f"no engine: {self.tail()}"
        self._pid = int(answer.split()[1])

    def is_alive(self) -> bool:
        """Whether the engine runs: one that ended by itself is a zombie until the next start."""
        state = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z"

    def kill(self) -> None:
        """SIGKILL; an engine that had failed or ended by itself before is a fault."""
        assert self.is_alive(), f"the engine ended by itself: {self.tail()}"
        assert not self.has_failed(), f"the engine failed: {self.tail()}"
        os.kill(self._pid, signal.SIGKILL)

    def stop(self, timeout_s: float = 30.0) -> None:
        """SIGTERM, and wait for the end."""
        os.kill(self._pid, signal.SIGTERM)
        wait_for(lambda: not self.is_alive(), timeout_s, "the engine ends after SIGTERM")

    def client(self) -> Client:
        """A new client of the engine's control socket."""
        return Client(self.storage)

    def has_failed(self) -> bool:
        """Whether any engine has said that it cannot go on."""
        return b"engine_fatal" in self.log.read_bytes()

    def tail(self) -> str:
        """The end of what the engines wrote."""
        return self.log.read_bytes()[-TAIL_BYTES:].decode(errors="replace")

    def close(self) -> None:
        """End everything; the engine dies with its parent."""
        self._popen.kill()
        self._popen.communicate()
