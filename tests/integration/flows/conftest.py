"""One engine in this process, with a clock that stands still until a test moves it, beside the local Pub/Sub."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.pubsub_v1 import types

from engine.client import Client
from engine.clock import ManualClock
from engine.config import EngineConfig, Limits
from engine.emulator import Emulator
from engine.node import Node

PROJECT = "demo"
DEADLINE_S = 15.0


def until(holds: Callable[[], Any], what: str) -> Any:
    """The first truthy answer of `holds`; fails when there is none in time."""
    deadline_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline_s:
        answer = holds()
        if answer:
            return answer
        time.sleep(0.005)
    raise AssertionError(f"not within {DEADLINE_S} s: {what}")


class Stand:
    """A node with the channel `default` (topic `in-topic` to topic `out-topic`) and both ends in the test's hands."""

    def __init__(self, directory: Path, now_ms: int = 1_767_225_600_000) -> None:
        self.emulator = Emulator()
        self.emulator.start()
        for name in ("in", "out"):
            self.emulator.create_topic(PROJECT, f"{name}-topic")
            self.emulator.create_subscription(
                PROJECT, f"{name}-sub", f"{name}-topic", enable_message_ordering=name == "out"
            )
        self.directory = directory
        self.limits = Limits()
        self.clock = ManualClock(now_ms)
        self.client = Client(directory)
        self._channel = grpc.insecure_channel(self.emulator.address)
        self.arrived: list[types.PubsubMessage] = []
        self.node = self._start()

    def _start(self) -> Node:
        config = EngineConfig(
            storage_path=self.directory,
            emulator_host=self.emulator.address,
            limits=self.limits,
            default_channel={
                "id": "default",
                "source": {"config": {"project_id": PROJECT, "subscription_id": "in-sub"}},
                "destination": {"config": {"project_id": PROJECT, "topic_id": "out-topic"}},
            },
        )
        node = Node(config, clock=self.clock)
        node.start()
        until(lambda: any(c["id"] == "default" for c in self.client.channels()), "the channel is there")
        return node

    def while_time_passes(self, call: Callable[[], Any]) -> None:
        """Make a call that waits by the clock for something, and let the clock run meanwhile."""
        calling = threading.Thread(target=call)
        calling.start()
        while calling.is_alive():
            calling.join(0.05)
            self.clock.advance(0.05)

    def stop(self) -> None:
        """Stop the node; it waits by the clock for what does not answer."""
        self.while_time_passes(lambda: self.node.stop(5))

    def restart(self, limits: Limits | None = None) -> None:
        self.stop()
        self.limits = limits or Limits()
        self.node = self._start()

    def close(self) -> None:
        self.stop()
        self.client.close()
        self._channel.close()
        self.emulator.stop()

    # ---- both ends ---------------------------------------------------------------------------------------------------

    def publish(self, *messages: tuple[bytes, dict[str, str]], ordering_key: str = "") -> None:
        request = types.PublishRequest(
            topic=f"projects/{PROJECT}/topics/in-topic",
            messages=[
                types.PubsubMessage(data=data, attributes=attributes, ordering_key=ordering_key)
                for data, attributes in messages
            ],
        )
        self._call("Publisher/Publish", request, types.PublishResponse)

    def publish_in(self, *seconds: float, ordering_key: str = "") -> None:
        """One message for each number, due so many seconds from now, with its position as body."""
        now_s = self.clock.now_ms() / 1000
        messages = [(str(i).encode(), {"available_at": f"{now_s + s:.3f}"}) for i, s in enumerate(seconds)]
        self.publish(*messages, ordering_key=ordering_key)

    def receive(self) -> list[types.PubsubMessage]:
        """Everything that has arrived at the destination until now, in order."""
        subscription = f"projects/{PROJECT}/subscriptions/out-sub"
        request = types.PullRequest(subscription=subscription, max_messages=1000, return_immediately=True)
        response = self._call("Subscriber/Pull", request, types.PullResponse)
        if response.received_messages:
            ids = [received.ack_id for received in response.received_messages]
            acknowledge = types.AcknowledgeRequest(subscription=subscription, ack_ids=ids)
            self._call("Subscriber/Acknowledge", acknowledge, None)
            self.arrived += [received.message for received in response.received_messages]
        return self.arrived

    def bodies(self) -> list[bytes]:
        return [message.data for message in self.receive()]

    def _call(self, method: str, request: Any, response: Any) -> Any:
        call = self._channel.unary_unary(
            f"/google.pubsub.v1.{method}",
            request_serializer=type(request).serialize,
            response_deserializer=response.deserialize if response is not None else None,
        )
        return call(request, timeout=10)

    # ---- what the node says ------------------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        stats: dict[str, Any] = self.client.channel("default")["stats"]
        return stats

    def accepted(self, count: int) -> None:
        """Wait until so many messages are safe."""
        until(lambda: self.stats()["accepted"] + self.stats()["duplicates"] >= count, f"{count} accepted")

    def at_rest(self) -> None:
        """Wait until the releaser waits for its clock again: what it had to do now is done."""
        until(lambda: self.stats()["in_flight"] == 0, "nothing in flight")

    def metric(self, name: str) -> float:
        for line in self.client.metrics().decode().splitlines():
            if line.startswith(f"event_scheduler_{name}"):
                return float(line.rsplit(" ", 1)[1])
        raise AssertionError(f"no metric {name}")


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    stand = Stand(tmp_path / "storage")
    yield stand
    stand.close()
