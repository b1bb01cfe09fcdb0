"""A local Pub/Sub, and a source and a sink that speak to it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from engine.clock import Clock, SystemClock
from engine.config import PubSubLimits
from engine.emulator import Emulator
from engine.model import DestinationConfig, SourceConfig
from engine.pubsub import wire
from engine.pubsub.connection import Connections
from engine.pubsub.sink import Sink
from engine.pubsub.source import Source, SourceState
from engine.pubsub.wire import Received

PROJECT = "demo"
WAIT_S = 15.0
# The same behaviour, in a tenth of the time.
QUICK = replace(
    PubSubLimits(),
    backoff_min_s=0.02,
    backoff_max_s=0.3,
    channel_backoff_min_s=0.05,
    channel_backoff_max_s=0.3,
    stream_settled_s=0.5,
    stream_confirm_s=0.05,
    key_file_poll_s=0.1,
    reconnect_backoff_max_s=0.2,
)


def eventually(condition: Callable[[], object], what: str = "") -> None:
    """Wait until `condition` holds; fail when it does not come true in time."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"did not happen within {WAIT_S} s: {what or condition}"
        time.sleep(0.005)


class Listener:
    """Takes what a source brings, and acknowledges it unless told not to."""

    def __init__(self) -> None:
        self.source: Source | None = None
        self.acks = True
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.responses: list[Received] = []
        self.states: list[SourceState] = []

    def take(self, received: Received) -> None:
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        self.responses.append(received)
        self.gate.wait(WAIT_S)
        if self.acks and self.source is not None:
            self.source.ack(received.ack_ids)

    @property
    def payloads(self) -> list[bytes]:
        return [payload for response in self.responses for payload in response.payloads]

    @property
    def ack_ids(self) -> list[str]:
        return [ack_id for response in self.responses for ack_id in response.ack_ids]

    def names(self) -> list[str]:
        return [state.state for state in self.states]


class Bench:
    """Makes sources and sinks on one emulator, and clears them up."""

    def __init__(
        self, address: str | None, key_files_dir=None, limits: PubSubLimits = QUICK, clock: Clock | None = None
    ):
        self.limits = limits
        self.clock = clock or SystemClock()
        self.connections = Connections(address, key_files_dir, limits, self.clock)
        self._open: list[Source | Sink] = []

    def source(self, subscription: str = "worker", **config: str | None) -> tuple[Source, Listener]:
        listener = Listener()
        source = Source(
            SourceConfig(project_id=PROJECT, subscription_id=subscription, **config),
            self.connections,
            self.limits,
            self.clock,
            on_messages=listener.take,
            on_state=listener.states.append,
            rng=random.Random(1),
        )
        listener.source = source
        self._open.append(source)
        source.start()
        return source, listener

    def sink(self, topic: str = "orders", **config: str | None) -> Sink:
        sink = Sink(
            DestinationConfig(project_id=PROJECT, topic_id=topic, **config), self.connections, self.limits, self.clock
        )
        self._open.append(sink)
        return sink

    def close(self) -> None:
        for each in reversed(self._open):
            each.close()
        self.connections.close()


def send(sink: Sink, *messages: bytes, deadline_s: float = 10.0):
    """Publish messages in one request."""
    return sink.publish(wire.publish_request(sink.topic, messages), len(messages), deadline_s)


def message(data: str, key: str = "", **attributes: str) -> bytes:
    return wire.build_message(data.encode(), {"available_at": "5", **attributes}, key)


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator() as running:
        running.create_topic(PROJECT, "orders")
        running.create_subscription(PROJECT, "worker", "orders", ack_deadline_seconds=10, enable_message_ordering=True)
        yield running


@pytest.fixture
def bench(emulator: Emulator) -> Iterator[Bench]:
    made = Bench(emulator.address)
    yield made
    made.close()
