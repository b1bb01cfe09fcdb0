"""The test stand: a broker, a node, a producer and a consumer, each a process, and what they cost."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from engine.emulator.control_client import ControlClient
from tests.benchmarks.proc import Memory, cpu_s, memory
from tests.benchmarks.wire import PROJECT
from tests.benchmarks.worker import Worker
from tests.blackbox.node import NodeProcess
from tests.blackbox.processes import Process, descendants, start_broker, wait_for

CHANNEL: Final = "bench"
SOURCE: Final = "source"
TARGET: Final = "target"
RAW: Final = "raw"

ASK_PERIOD_S: Final = 0.2
"""Asking costs the node a few milliseconds, which should not show in the figures."""

Cpu = dict[str, float]


class Stand:
    """Everything running, channel included; leave its `with` block and everything is gone."""

    def __init__(self, directory: Path, broker: Process, address: str, stack: ExitStack) -> None:
        self.broker = broker
        self.node = NodeProcess(directory / "node", address, {"LOG_LEVEL": "warning"})
        stack.callback(self.node.close)
        self.node.start()
        self.control = stack.enter_context(ControlClient(address))
        self._create_resources()
        self.producer = Worker("tests.benchmarks.producer", address)
        stack.callback(self.producer.close)
        self.consumer = Worker("tests.benchmarks.consumer", address)
        stack.callback(self.consumer.close)
        for name in (TARGET, RAW):
            self.consumer.ask("open", subscription=f"projects/{PROJECT}/subscriptions/{name}")
        self.next_seq = 1
        self._create_channel()

    def take_seqs(self, count: int) -> int:
        """The first of `count` numbers that no other measure uses."""
        first = self.next_seq
        self.next_seq += count
        return first

    def topic(self, name: str) -> str:
        return f"projects/{PROJECT}/topics/{name}"

    def deaths(self) -> str:
        """What to know about a failure: which of the servers is gone, and what it said last."""
        servers = {"the broker": self.broker, "the node": self.node.process}
        return "".join(
            f"\n{name} ended with {server.exit_code}: {server.output()[-2000:]}"
            for name, server in servers.items()
            if server.exit_code is not None
        )

    def engine_pids(self) -> list[int]:
        return [self.node.process.pid]

    def web_pids(self) -> list[int]:
        return descendants(self.node.process.pid)

    def cpu(self) -> Cpu:
        """CPU seconds so far, by role."""
        return {
            "engine": cpu_s(self.engine_pids()),
            "web": cpu_s(self.web_pids()),
            "broker": cpu_s([self.broker.pid]),
            "producer": cpu_s([self.producer.pid]),
            "consumer": cpu_s([self.consumer.pid]),
        }

    def memory(self) -> dict[str, Memory]:
        """Memory of the node's processes."""
        return {"engine": memory(self.engine_pids()), "web": memory(self.web_pids())}

    def stats(self) -> dict[str, Any]:
        """The channel's counters, by REST."""
        return self.node.stats(CHANNEL)

    def wait_pending(self, count: int, timeout_s: float) -> None:
        """Until the node holds `count` messages."""
        deadline_s = time.monotonic() + timeout_s
        while self.stats()["pending"] < count:
            if time.monotonic() > deadline_s:
                raise AssertionError(f"not within {timeout_s:.0f} s: {count} pending, the channel says {self.stats()}")
            time.sleep(ASK_PERIOD_S)

    def _create_resources(self) -> None:
        for name in (SOURCE, TARGET, RAW):
            self.control.create_topic(PROJECT, name)
            self.control.create_subscription(PROJECT, name, name)

    def _create_channel(self) -> None:
        self.node.rest.post(
            "/channels",
            {
                "id": CHANNEL,
                "source": {"driver": "pubsub", "config": {"project_id": PROJECT, "subscription_id": SOURCE}},
                "destination": {"driver": "pubsub", "config": {"project_id": PROJECT, "topic_id": TARGET}},
            },
        ).ok(201)
        wait_for(lambda: self.node.channel(CHANNEL)["state"] == "active", 10, "the channel is active")


@contextmanager
def stand() -> Iterator[Stand]:
    """Start everything; stop it all however the block ends."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="scheduler-bench-")))
        broker, address = start_broker(directory / "broker.log")
        stack.callback(broker.close)
        yield Stand(directory, broker, address, stack)
