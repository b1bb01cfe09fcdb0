"""A Pub/Sub client of raw stubs for tests: every method as a call, streams that collect what they receive."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf import empty_pb2
from google.pubsub_v1 import types

Pb = Any

DEADLINE_S = 10.0
"""How long a test waits for what must come."""


def pb(name: str) -> Pb:
    """The protobuf class of a type of google.pubsub.v1; Empty for what answers nothing."""
    return empty_pb2.Empty if name == "Empty" else getattr(types, name).pb()


METHODS = {
    "CreateTopic": ("Publisher", "Topic", "Topic"),
    "UpdateTopic": ("Publisher", "UpdateTopicRequest", "Topic"),
    "Publish": ("Publisher", "PublishRequest", "PublishResponse"),
    "GetTopic": ("Publisher", "GetTopicRequest", "Topic"),
    "ListTopics": ("Publisher", "ListTopicsRequest", "ListTopicsResponse"),
    "ListTopicSubscriptions": ("Publisher", "ListTopicSubscriptionsRequest", "ListTopicSubscriptionsResponse"),
    "ListTopicSnapshots": ("Publisher", "ListTopicSnapshotsRequest", "ListTopicSnapshotsResponse"),
    "DeleteTopic": ("Publisher", "DeleteTopicRequest", "Empty"),
    "DetachSubscription": ("Publisher", "DetachSubscriptionRequest", "DetachSubscriptionResponse"),
    "CreateSubscription": ("Subscriber", "Subscription", "Subscription"),
    "GetSubscription": ("Subscriber", "GetSubscriptionRequest", "Subscription"),
    "UpdateSubscription": ("Subscriber", "UpdateSubscriptionRequest", "Subscription"),
    "ListSubscriptions": ("Subscriber", "ListSubscriptionsRequest", "ListSubscriptionsResponse"),
    "DeleteSubscription": ("Subscriber", "DeleteSubscriptionRequest", "Empty"),
    "ModifyAckDeadline": ("Subscriber", "ModifyAckDeadlineRequest", "Empty"),
    "Acknowledge": ("Subscriber", "AcknowledgeRequest", "Empty"),
    "Pull": ("Subscriber", "PullRequest", "PullResponse"),
    "ModifyPushConfig": ("Subscriber", "ModifyPushConfigRequest", "Empty"),
    "GetSnapshot": ("Subscriber", "GetSnapshotRequest", "Snapshot"),
    "ListSnapshots": ("Subscriber", "ListSnapshotsRequest", "ListSnapshotsResponse"),
    "CreateSnapshot": ("Subscriber", "CreateSnapshotRequest", "Snapshot"),
    "UpdateSnapshot": ("Subscriber", "UpdateSnapshotRequest", "Snapshot"),
    "DeleteSnapshot": ("Subscriber", "DeleteSnapshotRequest", "Empty"),
    "Seek": ("Subscriber", "SeekRequest", "SeekResponse"),
}


def eventually(condition: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """Wait until `condition` is true and return its value; fails with `what` after the deadline."""
    give_up = time.monotonic() + deadline_s
    while time.monotonic() < give_up:
        value = condition()
        if value:
            return value
        time.sleep(0.005)
    raise AssertionError(f"did not happen within {deadline_s} s: {what}")


def status_of(call: Callable[[], Any]) -> tuple[str, str]:
    """Code and text with which a call is refused; fails when it is not."""
    try:
        call()
    except grpc.RpcError as error:
        return error.code().name, error.details()  # type: ignore[attr-defined]
    raise AssertionError("the call was answered with OK")


class Stream:
    """An open StreamingPull: sends requests, collects messages and responses."""

    def __init__(self, call: Any, subscription: str, **options: Any) -> None:
        self._requests: queue.SimpleQueue[Pb | None] = queue.SimpleQueue()
        self.responses: list[Pb] = []
        self.messages: list[Pb] = []
        self.error: grpc.RpcError | None = None
        self.ended_ok = False
        options.setdefault("stream_ack_deadline_seconds", 10)
        self.send(subscription=subscription, **options)
        self._call = call(iter(self._requests.get, None))
        self._thread = threading.Thread(target=self._collect, daemon=True)
        self._thread.start()

    def send(self, **fields: Any) -> None:
        """Send one request."""
        self._requests.put(pb("StreamingPullRequest")(**fields))

    def _collect(self) -> None:
        try:
            for response in self._call:
                self.responses.append(response)
                self.messages.extend(response.received_messages)
            self.ended_ok = True
        except grpc.RpcError as error:
            self.error = error

    def wait_for(self, count: int, deadline_s: float = DEADLINE_S) -> list[Pb]:
        """All messages received, once there are `count`."""
        eventually(
            lambda: len(self.messages) >= count, f"{count} messages (there are {len(self.messages)})", deadline_s
        )
        return list(self.messages)

    def wait_for_end(self) -> tuple[str, str]:
        """Code and text with which the stream ended."""
        eventually(lambda: self.error or self.ended_ok, "the stream's end")
        assert self.error is not None, "the stream ended with OK"
        return self.error.code().name, self.error.details()  # type: ignore[attr-defined]

    def close(self) -> None:
        """Leave, and wait until that is done."""
        self._requests.put(None)
        self._call.cancel()
        self._thread.join(DEADLINE_S)


class Client:
    """Every method of both services, called with the fields of its request: `client.Publish(topic=…, messages=[…])`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.channel = grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", -1)])
        self._streams: list[Stream] = []
        self._calls = {name: self._unary(name) for name in METHODS}
        self._streaming_pull = self.channel.stream_stream(
            "/google.pubsub.v1.Subscriber/StreamingPull",
            request_serializer=pb("StreamingPullRequest").SerializeToString,
            response_deserializer=pb("StreamingPullResponse").FromString,
        )

    def _unary(self, name: str) -> Callable[..., Pb]:
        service, request, response = METHODS[name]
        call = self.channel.unary_unary(
            f"/google.pubsub.v1.{service}/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=pb(response).FromString,
        )
        return lambda **fields: call(pb(request)(**fields), timeout=DEADLINE_S)

    def __getattr__(self, name: str) -> Callable[..., Pb]:
        try:
            return self._calls[name]
        except KeyError:
            raise AttributeError(name) from None

    def stream(self, subscription: str, **options: Any) -> Stream:
        """Open a StreamingPull."""
        stream = Stream(self._streaming_pull, subscription, **options)
        self._streams.append(stream)
        return stream

    def publish(self, topic: str, *bodies: bytes, ordering_key: str = "", **attributes: str) -> list[str]:
        """Publish one message per body in one request."""
        messages = [pb("PubsubMessage")(data=body, attributes=attributes, ordering_key=ordering_key) for body in bodies]
        return list(self.Publish(topic=topic, messages=messages).message_ids)

    def pull(self, subscription: str, max_messages: int = 1000) -> list[Pb]:
        """What is there now."""
        response = self.Pull(subscription=subscription, max_messages=max_messages, return_immediately=True)
        return list(response.received_messages)

    def pull_until(self, subscription: str, count: int) -> list[Pb]:
        """Pull until `count` messages have come."""
        messages: list[Pb] = []

        def enough() -> bool:
            messages.extend(self.pull(subscription))
            return len(messages) >= count

        eventually(enough, f"{count} messages by Pull")
        return messages

    def ack(self, subscription: str, messages: list[Pb]) -> None:
        """Acknowledge received messages."""
        self.Acknowledge(subscription=subscription, ack_ids=[message.ack_id for message in messages])

    def nack(self, subscription: str, messages: list[Pb]) -> None:
        """Give received messages back."""
        ids = [message.ack_id for message in messages]
        self.ModifyAckDeadline(subscription=subscription, ack_ids=ids, ack_deadline_seconds=0)

    def close(self) -> None:
        """End all streams and the channel."""
        for stream in self._streams:
            stream.close()
        self.channel.close()


def bodies(messages: list[Pb]) -> list[bytes]:
    """The data of received messages."""
    return [message.message.data for message in messages]
