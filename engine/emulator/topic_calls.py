"""The administrative calls of the Publisher service: topics, and detaching subscriptions."""

from __future__ import annotations

import grpc
from google.pubsub_v1 import types

from engine.emulator import limits
from engine.emulator.broker import TOPIC, Broker
from engine.emulator.errors import already_exists, unimplemented
from engine.emulator.names import check_name, check_project
from engine.emulator.receiving import parse
from engine.emulator.resources import apply_mask, check_duration, check_labels, copy_of, page, under
from engine.emulator.topic import Topic
from engine.emulator.wire import Pb

UPDATE: Pb = types.UpdateTopicRequest.pb()
GET: Pb = types.GetTopicRequest.pb()
DELETE: Pb = types.DeleteTopicRequest.pb()
LIST: Pb = types.ListTopicsRequest.pb()
LISTED: Pb = types.ListTopicsResponse.pb()
LIST_SUBSCRIPTIONS: Pb = types.ListTopicSubscriptionsRequest.pb()
LISTED_SUBSCRIPTIONS: Pb = types.ListTopicSubscriptionsResponse.pb()
LIST_SNAPSHOTS: Pb = types.ListTopicSnapshotsRequest.pb()
LISTED_SNAPSHOTS: Pb = types.ListTopicSnapshotsResponse.pb()
DETACH: Pb = types.DetachSubscriptionRequest.pb()

MUTABLE = frozenset({"labels", "message_retention_duration", "message_storage_policy"})

_NOT_HERE = {
    "schema_settings": "schemas",
    "ingestion_data_source_settings": "ingestion from other sources",
    "message_transforms": "message transforms",
}


def _check(resource: Pb) -> None:
    """Refuse a topic that the service would refuse, or that asks for what is not here."""
    check_name(resource.name, "topics")
    for field, what in _NOT_HERE.items():
        descriptor = resource.DESCRIPTOR.fields_by_name.get(field)
        if descriptor is None:
            continue
        value = getattr(resource, field)
        if resource.HasField(field) if descriptor.has_presence else bool(value):
            raise unimplemented(f"{what} (the topic's {field})")
    if resource.kms_key_name:
        raise unimplemented("customer-managed keys (the topic's kms_key_name)")
    check_labels(resource.labels)
    if resource.HasField("message_retention_duration"):
        check_duration(
            "message_retention_duration",
            resource.message_retention_duration,
            limits.RETENTION_S_MIN,
            limits.RETENTION_S_MAX,
        )


class TopicCalls:
    """Answers by method; every request and response is serialized."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lock = broker.runtime.lock

    def create(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """CreateTopic."""
        return serialized(self.create_resource(parse(TOPIC, request)))

    def create_resource(self, resource: Pb) -> Pb:
        """Create the topic that `resource` describes."""
        _check(resource)
        with self._lock:
            if resource.name in self._broker.topics:
                raise already_exists(resource.name)
            self._broker.topics[resource.name] = Topic(self._broker.runtime, resource)
        return resource

    def get(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """GetTopic."""
        with self._lock:
            return serialized(self._broker.topic(parse(GET, request).topic).resource)

    def update(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """UpdateTopic: the fields that the mask names."""
        call = parse(UPDATE, request)
        with self._lock:
            topic = self._broker.topic(call.topic.name)
            changed = apply_mask("Topic", topic.resource, call.topic, call.update_mask.paths, MUTABLE)
            _check(changed)
            topic.resource = changed
            retention = changed.HasField("message_retention_duration")
            for subscription in topic.subscriptions.values():
                resource = copy_of(subscription.resource)
                resource.ClearField("topic_message_retention_duration")
                if retention:
                    resource.topic_message_retention_duration.CopyFrom(changed.message_retention_duration)
                subscription.configure(resource)
            return serialized(changed)

    def delete(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """DeleteTopic: its subscriptions stay, with the topic `_deleted-topic_`."""
        with self._lock:
            self._broker.remove_topic(self._broker.topic(parse(DELETE, request).topic))
        return b""

    def list_all(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """ListTopics of a project, by name."""
        call = parse(LIST, request)
        prefix = check_project(call.project)
        with self._lock:
            names, token = page(under(prefix, self._broker.topics), call.page_size, call.page_token)
            topics = [self._broker.topics[name].resource for name in names]
            return serialized(LISTED(topics=topics, next_page_token=token))

    def list_subscriptions(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """ListTopicSubscriptions, by name."""
        call = parse(LIST_SUBSCRIPTIONS, request)
        with self._lock:
            attached = self._broker.topic(call.topic).subscriptions
            names, token = page(attached, call.page_size, call.page_token)
        return serialized(LISTED_SUBSCRIPTIONS(subscriptions=names, next_page_token=token))

    def list_snapshots(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """ListTopicSnapshots, by name."""
        call = parse(LIST_SNAPSHOTS, request)
        with self._lock:
            attached = self._broker.topic(call.topic).snapshots
            names, token = page(attached, call.page_size, call.page_token)
        return serialized(LISTED_SNAPSHOTS(snapshots=names, next_page_token=token))

    def detach(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """DetachSubscription: its backlog is dropped, and it receives nothing any more."""
        with self._lock:
            subscription = self._broker.subscription(parse(DETACH, request).subscription)
            topic = self._broker.topics.get(subscription.resource.topic)
            if topic is not None:
                topic.subscriptions.pop(subscription.name, None)
            subscription.end_detached()
        return b""


def serialized(message: Pb) -> bytes:
    """A response as bytes."""
    out: bytes = message.SerializeToString()
    return out
