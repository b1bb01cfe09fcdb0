"""The registry of topics, subscriptions and snapshots, and the way of a message from Publish to the subscriptions."""

from __future__ import annotations

from google.pubsub_v1 import types

from engine.emulator import limits
from engine.emulator.clock import Clock
from engine.emulator.deadletter import dead_letter_message
from engine.emulator.errors import not_found
from engine.emulator.message import Message
from engine.emulator.names import DELETED_TOPIC, check_name
from engine.emulator.publishing import PublishCall, read_publish
from engine.emulator.resources import copy_of
from engine.emulator.runtime import Runtime
from engine.emulator.subscription import Subscription
from engine.emulator.topic import Snapshot, Topic
from engine.emulator.wire import Pb, batch_of, messages_of, publish_response

TOPIC: Pb = types.Topic.pb()

COUNTED = (
    "acked",
    "dead_lettered",
    "delivered",
    "dropped_by_retention",
    "expired",
    "extended",
    "nacked",
    "published",
    "streams_opened",
    "unknown_ack_ids",
)
"""Totals that are there from the start; the calls of each method appear with the first, as calls.METHOD."""


class Broker:
    """All resources. Public methods take the server's lock themselves unless they say otherwise."""

    def __init__(
        self, clock: Clock, *, project_autocreate: bool = False, backlog_bytes_max: int = limits.BACKLOG_BYTES_MAX
    ) -> None:
        self.runtime = Runtime(clock, backlog_bytes_max=backlog_bytes_max)
        self.topics: dict[str, Topic] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.snapshots: dict[str, Snapshot] = {}
        self._autocreate = project_autocreate

    # Look-ups, with the lock held

    def topic(self, name: str) -> Topic:
        """The topic `name`; refuses a bad name, and an unknown one unless topics are made on first use."""
        topic = self.topics.get(name)
        if topic is not None:
            return topic
        check_name(name, "topics")
        if not self._autocreate:
            raise not_found(name)
        topic = self.topics[name] = Topic(self.runtime, TOPIC(name=name))
        return topic

    def subscription(self, name: str) -> Subscription:
        """The subscription `name`; refuses a bad or unknown name."""
        subscription = self.subscriptions.get(name)
        if subscription is None:
            check_name(name, "subscriptions")
            raise not_found(name)
        return subscription

    def snapshot(self, name: str) -> Snapshot:
        """The snapshot `name`; refuses a bad or unknown name."""
        snapshot = self.snapshots.get(name)
        if snapshot is None:
            check_name(name, "snapshots")
            raise not_found(name)
        return snapshot

    # Messages

    def publish(self, request: bytes) -> bytes:
        """Answer a PublishRequest: all of it is kept, or nothing."""
        call = read_publish(request)
        with self.runtime.lock:
            topic = self.topic(call.topic)
            return self._publish(topic, call, len(request))

    def _publish(self, topic: Topic, call: PublishCall, size: int) -> bytes:
        runtime = self.runtime
        count = len(call.raws)
        fan_out = topic.fan_out
        runtime.require_room(count * fan_out, size * fan_out)
        number = runtime.next_batch()
        runtime.counters["published"] += count
        if fan_out:
            batch = batch_of(number, runtime.clock.now_ns(), call.ordering_key)
            topic.accept(messages_of(call.raws, number, batch), call.attributes)
        return publish_response(number, count)

    def dead_letter(self, source: Subscription, message: Message, deliveries: int) -> bool:
        """Publish `message` to its subscription's dead-letter topic.

        False when that topic is gone or there is no room.
        """
        topic = self.topics.get(source.settings.dead_letter_topic)
        if topic is None:
            return False
        copy = dead_letter_message(source.name, message, deliveries)
        call = PublishCall(
            topic=topic.name,
            raws=[copy.SerializeToString()],
            ordering_key=copy.ordering_key,
            parsed=[copy],
        )
        self._publish(topic, call, 0)
        return True

    # Removal, with the lock held

    def remove_topic(self, topic: Topic) -> None:
        """Delete a topic; what is attached to it stays, marked."""
        del self.topics[topic.name]
        orphans: list[Subscription | Snapshot] = [*topic.subscriptions.values(), *topic.snapshots.values()]
        for orphan in orphans:
            orphan.resource = copy_of(orphan.resource)
            orphan.resource.topic = DELETED_TOPIC
        topic.end()

    def remove_subscription(self, subscription: Subscription) -> None:
        """Delete a subscription and end its receivers."""
        del self.subscriptions[subscription.name]
        topic = self.topics.get(subscription.resource.topic)
        if topic is not None:
            topic.subscriptions.pop(subscription.name, None)
        subscription.end_deleted()

    def remove_snapshot(self, snapshot: Snapshot) -> None:
        """Delete a snapshot."""
        del self.snapshots[snapshot.name]
        topic = self.topics.get(snapshot.resource.topic)
        if topic is not None:
            topic.snapshots.pop(snapshot.name, None)
        snapshot.end()

    # Time

    def advance(self) -> int | None:
        """Let everything happen that is due by the clock; returns when the next thing is, if one is known."""
        with self.runtime.lock:
            now_ns = self.runtime.clock.now_ns()
            for subscription in list(self.subscriptions.values()):
                subscription.advance(now_ns)
                if subscription.is_expired(now_ns):
                    self.remove_subscription(subscription)
            for topic in self.topics.values():
                topic.advance(now_ns)
            for snapshot in list(self.snapshots.values()):
                if snapshot.expire_ns <= now_ns:
                    self.remove_snapshot(snapshot)
            due = [subscription.next_due_ns() for subscription in self.subscriptions.values()]
            return min((time for time in due if time is not None), default=None)

    def counters(self) -> dict[str, int]:
        """Totals since the start, and what is held now."""
        with self.runtime.lock:
            totals = dict.fromkeys(COUNTED, 0) | self.runtime.counters
            subscriptions = self.subscriptions.values()
            totals["held_bytes"] = self.runtime.held_bytes
            totals["backlog"] = sum(len(subscription.backlog) for subscription in subscriptions)
            totals["outstanding"] = sum(len(subscription.leases) for subscription in subscriptions)
            totals["streams_open"] = sum(len(subscription.consumers) for subscription in subscriptions)
            return totals
