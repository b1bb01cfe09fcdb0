"""Snapshots and Seek: going back to what was not acked once, or to a time."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

import grpc
from google.pubsub_v1 import types

from engine.emulator import limits
from engine.emulator.broker import Broker
from engine.emulator.clock import NS_PER_S
from engine.emulator.deadletter import PUBSUB_MESSAGE
from engine.emulator.errors import already_exists, failed_precondition, invalid
from engine.emulator.message import Message, size_of
from engine.emulator.names import DELETED_TOPIC, check_name, check_project, project_of
from engine.emulator.receiving import parse
from engine.emulator.resources import apply_mask, check_labels, page, under
from engine.emulator.settings import duration_ns
from engine.emulator.subscription import Subscription
from engine.emulator.topic import Snapshot
from engine.emulator.topic_calls import serialized
from engine.emulator.wire import Pb, pubsub_message

SNAPSHOT: Pb = types.Snapshot.pb()
CREATE: Pb = types.CreateSnapshotRequest.pb()
UPDATE: Pb = types.UpdateSnapshotRequest.pb()
GET: Pb = types.GetSnapshotRequest.pb()
DELETE: Pb = types.DeleteSnapshotRequest.pb()
LIST: Pb = types.ListSnapshotsRequest.pb()
LISTED: Pb = types.ListSnapshotsResponse.pb()
SEEK: Pb = types.SeekRequest.pb()

MUTABLE = frozenset({"expire_time", "labels"})


class SnapshotCalls:
    """Answers by method; every request and response is serialized."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._runtime = broker.runtime
        self._lock = broker.runtime.lock

    def create(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """CreateSnapshot: lives 7 days less the age of the oldest unacked message, at least an hour or not at all."""
        call = parse(CREATE, request)
        with self._lock:
            subscription = self._broker.subscription(call.subscription)
            subscription.require_usable()
            name = call.name or f"projects/{project_of(subscription.name)}/snapshots/auto-{uuid.uuid4()}"
            check_name(name, "snapshots")
            if name in self._broker.snapshots:
                raise already_exists(name)
            check_labels(call.labels)
            topic = self._broker.topics.get(subscription.resource.topic)
            if topic is None:
                raise failed_precondition("The subscription's topic has been deleted: it cannot have a snapshot.")
            unacked = subscription.unacked()
            now_ns = self._runtime.clock.now_ns()
            age_ns = now_ns - unacked[0].batch.publish_ns if unacked else 0
            life_ns = limits.SNAPSHOT_LIFE_S * NS_PER_S - age_ns
            if life_ns < limits.SNAPSHOT_LIFE_S_MIN * NS_PER_S:
                raise failed_precondition(
                    "The snapshot would expire in less than an hour: acknowledge old messages first."
                )
            self._runtime.require_room(len(unacked), size_of(unacked))
            resource = SNAPSHOT(name=name, topic=topic.name, labels=call.labels)
            resource.expire_time.FromNanoseconds(now_ns + life_ns)
            snapshot = Snapshot(self._runtime, resource, unacked)
            self._broker.snapshots[name] = topic.snapshots[name] = snapshot
            return serialized(resource)

    def get(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """GetSnapshot."""
        with self._lock:
            return serialized(self._broker.snapshot(parse(GET, request).snapshot).resource)

    def update(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """UpdateSnapshot: the fields that the mask names."""
        call = parse(UPDATE, request)
        with self._lock:
            snapshot = self._broker.snapshot(call.snapshot.name)
            changed = apply_mask("Snapshot", snapshot.resource, call.snapshot, call.update_mask.paths, MUTABLE)
            check_labels(changed.labels)
            snapshot.resource = changed
            return serialized(changed)

    def delete(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """DeleteSnapshot."""
        with self._lock:
            self._broker.remove_snapshot(self._broker.snapshot(parse(DELETE, request).snapshot))
        return b""

    def list_all(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """ListSnapshots of a project, by name."""
        call = parse(LIST, request)
        prefix = check_project(call.project)
        with self._lock:
            known = self._broker.snapshots
            names, token = page(under(prefix, known), call.page_size, call.page_token)
            resources = [known[name].resource for name in names]
            return serialized(LISTED(snapshots=resources, next_page_token=token))

    def seek(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Seek.

        Published before the time (or acked in the snapshot) becomes acked, the rest that is still kept unacked.
        """
        call = parse(SEEK, request)
        with self._lock:
            subscription = self._broker.subscription(call.subscription)
            subscription.require_usable()
            target = call.WhichOneof("target")
            if target == "time":
                self._seek_time(subscription, duration_ns(call.time))
            elif target == "snapshot":
                self._seek_snapshot(subscription, self._broker.snapshot(call.snapshot))
            else:
                raise invalid("A Seek needs a time or a snapshot.")
        return b""

    def _seek_time(self, subscription: Subscription, time_ns: int) -> None:
        kept = {message.seq: message for message in subscription.everything()}
        topic = self._broker.topics.get(subscription.resource.topic)
        if topic is not None:
            fresh = [message for message in topic.retained if message.seq not in kept]
            kept.update((message.seq, message) for message in _matching(subscription, fresh))
        messages = sorted(kept.values(), key=lambda message: message.seq)
        self._replace(
            subscription,
            [message for message in messages if message.batch.publish_ns >= time_ns],
            [message for message in messages if message.batch.publish_ns < time_ns],
        )

    def _seek_snapshot(self, subscription: Subscription, snapshot: Snapshot) -> None:
        if snapshot.resource.topic != subscription.resource.topic or snapshot.resource.topic == DELETED_TOPIC:
            raise failed_precondition("A subscription seeks only to snapshots of its own topic.")
        unacked = _matching(subscription, snapshot.messages)
        restored = {message.seq for message in unacked}
        others = [message for message in subscription.everything() if message.seq not in restored]
        self._replace(subscription, unacked, sorted(others, key=lambda message: message.seq))

    def _replace(self, subscription: Subscription, unacked: list[Message], acked: list[Message]) -> None:
        subscription.replace(unacked, acked if subscription.settings.retain_acked else [])


def _matching(subscription: Subscription, messages: Iterable[Message]) -> list[Message]:
    """The messages that the subscription's filter lets through."""
    wanted = subscription.settings.filter
    if wanted is None:
        return list(messages)
    return [message for message in messages if wanted(PUBSUB_MESSAGE.FromString(pubsub_message(message)).attributes)]
