"""One node as an operator runs it: `manage.py run_scheduler` on free ports, with its own storage."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.blackbox.processes import Process, free_port
from tests.blackbox.rest import Rest

READY_S = 30.0


class NodeProcess:
    """May be started again after an end: storage and ports stay."""

    def __init__(self, directory: Path, pubsub_address: str, environment: Mapping[str, str] | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.storage = directory / "storage"
        self.log = directory / "node.log"
        self.api_port = free_port()
        self.rest = Rest(self.api_port)
        self._environment = {
            "STORAGE_PATH": str(self.storage),
            "CLUSTER_NODE_HOST": "127.0.0.1",
            "CLUSTER_NODE_PORT": str(free_port()),
            "API_PORT": str(self.api_port),
            "PUBSUB_EMULATOR_HOST": pubsub_address,
            **(environment or {}),
        }
        self._process: Process | None = None

    @property
    def process(self) -> Process:
        assert self._process is not None, "the node was not started"
        return self._process

    def start(self) -> float:
        """Start and wait for `/readyz`; how many seconds that took from exec."""
        self._process = Process(["manage.py", "run_scheduler"], log=self.log, environment=self._environment)
        began_s = time.monotonic()
        try:
            self._process.wait_until(self.rest.is_ready, READY_S, "/readyz answers 200")
        except BaseException:
            self.kill()
            raise
        return time.monotonic() - began_s

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        return self.process.terminate()

    def kill(self) -> None:
        """SIGKILL to engine and web at once."""
        self.process.kill()

    def kill_engine(self) -> None:
        """SIGKILL to the engine's process alone; the web side must notice by itself."""
        self.process.signal(signal.SIGKILL)
        self.process.wait_end(10)

    def close(self) -> None:
        """End it however it stands."""
        if self._process is not None:
            self._process.close()

    # ---- what most callers ask -----------------------------------------------------------------------------------

    def channel(self, channel_id: str) -> dict[str, Any]:
        """`GET /channels/{id}`."""
        document: dict[str, Any] = self.rest.get(f"/channels/{channel_id}").ok(200)
        return document

    def stats(self, channel_id: str) -> dict[str, Any]:
        """The channel's counters."""
        stats: dict[str, Any] = self.channel(channel_id)["stats"]
        return stats
