"""Pub/Sub spoken with raw stubs: the service's own protocol, nothing of the relay's code."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import grpc
from google.pubsub_v1.types import pubsub as types

from tests.blackbox.processes import wait_for

PROJECT: Final = "blackbox"
OPTIONS: Final = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Channels of one process would share a connection, and one's big message would delay the other's small one.
    ("grpc.use_local_subchannel_pool", 1),
]
CALL_S: Final = 30.0

PubsubMessage: Any = types.PubsubMessage.pb()
PublishRequest: Any = types.PublishRequest.pb()
StreamingPullRequest: Any = types.StreamingPullRequest.pb()
AcknowledgeRequest: Any = types.AcknowledgeRequest.pb()

_ANSWERS: Final[dict[str, Any]] = {
    "Publisher/CreateTopic": (types.Topic, types.Topic),
    "Publisher/DeleteTopic": (types.DeleteTopicRequest, None),
    "Publisher/Publish": (types.PublishRequest, types.PublishResponse),
    "Subscriber/CreateSubscription": (types.Subscription, types.Subscription),
    "Subscriber/DeleteSubscription": (types.DeleteSubscriptionRequest, None),
    "Subscriber/Acknowledge": (types.AcknowledgeRequest, None),
    "Subscriber/Seek": (types.SeekRequest, types.SeekResponse),
}


def topic_path(topic: str) -> str:
    return f"projects/{PROJECT}/topics/{topic}"


def subscription_path(subscription: str) -> str:
    return f"projects/{PROJECT}/subscriptions/{subscription}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A message as a consumer got it."""

    data: bytes
    attributes: Mapping[str, str]
    ordering_key: str
    publish_us: int
    """Set by the broker."""
    arrived_us: int
    """This machine's clock when the response was read."""


def message(data: bytes = b"", ordering_key: str = "", **attributes: str) -> Any:
    """A PubsubMessage; attributes that are no identifiers come through `with_attributes`."""
    return with_attributes(attributes, data, ordering_key)


def with_attributes(attributes: Mapping[str, str], data: bytes = b"", ordering_key: str = "") -> Any:
    """A PubsubMessage with any attributes."""
    return PubsubMessage(data=data, attributes=dict(attributes), ordering_key=ordering_key)


class PubSub:
    """Administration, publishing and consuming at one address."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._channel = grpc.insecure_channel(address, options=OPTIONS)
        self._calls: dict[str, Callable[..., Any]] = {}
        for name, (request, answer) in _ANSWERS.items():
            self._calls[name] = self._channel.unary_unary(
                f"/google.pubsub.v1.{name}",
                request_serializer=request.pb().SerializeToString,
                response_deserializer=answer.pb().FromString if answer else bytes,
            )

    def close(self) -> None:
        self._channel.close()

    def _call(self, name: str, request: Any) -> Any:
        return self._calls[name](request, timeout=CALL_S)

    def create_topic(self, topic: str) -> None:
        self._call("Publisher/CreateTopic", types.Topic.pb()(name=topic_path(topic)))

    def delete_topic(self, topic: str) -> None:
        self._call("Publisher/DeleteTopic", types.DeleteTopicRequest.pb()(topic=topic_path(topic)))

    def create_subscription(self, subscription: str, topic: str, *, only: str = "", ordering: bool = False) -> None:
        """`only` is the filter."""
        request = types.Subscription.pb()(
            name=subscription_path(subscription),
            topic=topic_path(topic),
            ack_deadline_seconds=10,
            filter=only,
            enable_message_ordering=ordering,
            retain_acked_messages=True,
        )
        self._call("Subscriber/CreateSubscription", request)

    def delete_subscription(self, subscription: str) -> None:
        request = types.DeleteSubscriptionRequest.pb()(subscription=subscription_path(subscription))
        self._call("Subscriber/DeleteSubscription", request)

    def publish(self, topic: str, messages: Sequence[Any]) -> list[str]:
        """One Publish request for all of `messages`; their ids."""
        answer = self._call("Publisher/Publish", PublishRequest(topic=topic_path(topic), messages=messages))
        return list(answer.message_ids)

    def deliver_again(self, subscription: str) -> None:
        """Make everything undelivered again, what was acked included; the subscription must retain that."""
        request = types.SeekRequest.pb()(subscription=subscription_path(subscription))
        request.time.FromSeconds(int(time.time()) - 300)
        self._call("Subscriber/Seek", request)

    def collect(self, subscription: str) -> Collector:
        """A consumer that runs until it is closed."""
        return Collector(self.address, subscription)


class Collector:
    """Receives and acks everything of one subscription in a thread of its own; a stream that ends is opened again."""

    def __init__(self, address: str, subscription: str) -> None:
        self._subscription = subscription_path(subscription)
        self._channel = grpc.insecure_channel(address, options=OPTIONS)
        self._pull = self._channel.stream_stream(
            "/google.pubsub.v1.Subscriber/StreamingPull",
            request_serializer=StreamingPullRequest.SerializeToString,
            response_deserializer=types.StreamingPullResponse.pb().FromString,
        )
        self._ack = self._channel.unary_unary(
            "/google.pubsub.v1.Subscriber/Acknowledge",
            request_serializer=AcknowledgeRequest.SerializeToString,
            response_deserializer=bytes,
        )
        self._arrivals: list[Arrival] = []
        self._stopping = threading.Event()
        self._stream: Any = None
        self._thread = threading.Thread(target=self._run, name=f"collect-{subscription}", daemon=True)
        self._thread.start()

    @property
    def arrivals(self) -> list[Arrival]:
        """What has come so far, in order of arrival."""
        return self._arrivals[:]

    def __len__(self) -> int:
        return len(self._arrivals)

    def wait(self, count: int, timeout_s: float) -> list[Arrival]:
        """At least `count` arrivals."""
        wait_for(
            lambda: len(self._arrivals) >= count, timeout_s, lambda: f"{count} arrivals, got {len(self._arrivals)}"
        )
        return self.arrivals

    def wait_data(self, expected: Iterable[bytes], timeout_s: float) -> list[Arrival]:
        """Arrivals until each of `expected` has come at least once."""
        missing = set(expected)
        seen = 0

        def complete() -> bool:
            nonlocal seen
            fresh = self._arrivals[seen:]
            seen += len(fresh)
            missing.difference_update(a.data for a in fresh)
            return not missing

        wait_for(complete, timeout_s, lambda: f"{len(missing)} messages are missing, e.g. {min(missing)[:40]!r}")
        return self.arrivals

    def close(self) -> None:
        self._stopping.set()
        if self._stream is not None:
            self._stream.cancel()
        self._channel.close()
        self._thread.join(10)

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            # A stream always ends with an error: recycled by the broker, or cancelled by `close`.
            with contextlib.suppress(grpc.RpcError, ValueError):
                self._receive()
            self._stopping.wait(0.05)

    def _receive(self) -> None:
        done = threading.Event()

        def requests() -> Iterator[Any]:
            yield StreamingPullRequest(subscription=self._subscription, stream_ack_deadline_seconds=10)
            done.wait()

        try:
            self._stream = self._pull(requests())
            for response in self._stream:
                arrived_us = time.time_ns() // 1000
                ids = []
                fresh = []
                for received in response.received_messages:
                    ids.append(received.ack_id)
                    fresh.append(_arrival(received.message, arrived_us))
                self._arrivals += fresh
                if ids:
                    self._ack(AcknowledgeRequest(subscription=self._subscription, ack_ids=ids), timeout=CALL_S)
        finally:
            done.set()


def _arrival(received: Any, arrived_us: int) -> Arrival:
    return Arrival(
        data=received.data,
        attributes=dict(received.attributes),
        ordering_key=received.ordering_key,
        publish_us=received.publish_time.seconds * 1_000_000 + received.publish_time.nanos // 1000,
        arrived_us=arrived_us,
    )
