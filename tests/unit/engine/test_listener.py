"""The listener's back-pressure: how much is taken from the source while the log does not commit."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

from google.pubsub_v1 import types

from engine.clock import SystemClock
from engine.commands import Accepted
from engine.config import FlowLimits, PubSubLimits
from engine.listener import Listener
from engine.metrics import Metrics
from engine.model import Channel, Destination, DestinationConfig, Policy, Source, SourceConfig
from engine.pubsub.source import Source as PubSubSource
from engine.pubsub.wire import parse_response

CHANNEL = Channel(
    uid=1,
    id="c",
    name="c",
    source=Source(config=SourceConfig(project_id="p", subscription_id="s")),
    destination=Destination(config=DestinationConfig(project_id="p", topic_id="t")),
    policy=Policy(),
    created_ms=0,
    updated_ms=0,
)


def response(number: int) -> bytes:
    message = types.PubsubMessage(
        data=b"x" * 600, attributes={"available_at": "1767225600"}, message_id=str(number), publish_time={"seconds": 1}
    )
    received = types.ReceivedMessage(ack_id=f"ack{number}", message=message)
    return bytes(types.StreamingPullResponse.serialize(types.StreamingPullResponse(received_messages=[received])))


def test_while_nothing_commits_no_more_than_a_stream_s_worth_is_held() -> None:
    entries: list[Future[Any]] = []
    acked: list[str] = []

    def submit(entry: bytes) -> Future[Any]:
        entries.append(Future())
        return entries[-1]

    listener = Listener(
        CHANNEL,
        lambda receive: cast(PubSubSource, SimpleNamespace(subscription="s", ack=acked.extend)),
        submit=submit,
        stamp=lambda: 1_767_225_000_000,
        crowded=lambda: False,
        clock=SystemClock(),
        flow=FlowLimits(accepts_in_flight_max=2),
        pubsub=PubSubLimits(stream_window_bytes=1000),
        metrics=Metrics(),
    )
    taken = threading.Semaphore(0)

    def read() -> None:
        for number in range(6):
            listener._receive(parse_response(response(number)))
            taken.release()

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    for _ in range(3):
        assert taken.acquire(timeout=5)
    assert not taken.acquire(timeout=0.2)

    for entry in entries[:2]:
        entry.set_result(Accepted(first_seq=1, pending=1))
    reading.join(5)
    assert not reading.is_alive()
    for entry in entries:  # It grows while the last ones are submitted.
        if not entry.done():
            entry.set_result(Accepted(first_seq=1, pending=1))
    assert acked == [f"ack{number}" for number in range(6)]
