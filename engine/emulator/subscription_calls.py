"""The administrative calls about subscriptions."""

from __future__ import annotations

import uuid

import grpc
from google.pubsub_v1 import types

from engine.emulator import limits
from engine.emulator.broker import Broker
from engine.emulator.errors import already_exists, bad_argument, invalid, unimplemented
from engine.emulator.filters import parse as parse_filter
from engine.emulator.names import check_name, check_project
from engine.emulator.receiving import parse
from engine.emulator.resources import apply_mask, check_duration, check_labels, copy_of, page, under
from engine.emulator.subscription import Subscription
from engine.emulator.topic_calls import serialized
from engine.emulator.wire import Pb

SUBSCRIPTION: Pb = types.Subscription.pb()
UPDATE: Pb = types.UpdateSubscriptionRequest.pb()
GET: Pb = types.GetSubscriptionRequest.pb()
DELETE: Pb = types.DeleteSubscriptionRequest.pb()
LIST: Pb = types.ListSubscriptionsRequest.pb()
LISTED: Pb = types.ListSubscriptionsResponse.pb()
MODIFY_PUSH: Pb = types.ModifyPushConfigRequest.pb()

MUTABLE = frozenset(
    {
        "ack_deadline_seconds",
        "dead_letter_policy",
        "enable_exactly_once_delivery",
        "expiration_policy",
        "labels",
        "message_retention_duration",
        "push_config",
        "retain_acked_messages",
        "retry_policy",
    }
)

_NOT_HERE = {
    "push_config": "push delivery",
    "bigquery_config": "export to BigQuery",
    "cloud_storage_config": "export to Cloud Storage",
    "bigtable_config": "export to Bigtable",
    "message_transforms": "message transforms",
}


def completed(resource: Pb) -> Pb:
    """A Subscription with the service's defaults where it leaves a field open."""
    whole = copy_of(resource)
    if not whole.ack_deadline_seconds:
        whole.ack_deadline_seconds = limits.ACK_DEADLINE_S_DEFAULT
    if not whole.HasField("message_retention_duration"):
        whole.message_retention_duration.seconds = limits.RETENTION_S_DEFAULT
    if not whole.HasField("expiration_policy"):
        whole.expiration_policy.ttl.seconds = limits.EXPIRATION_S_DEFAULT
    if whole.HasField("dead_letter_policy") and not whole.dead_letter_policy.max_delivery_attempts:
        whole.dead_letter_policy.max_delivery_attempts = limits.DELIVERY_ATTEMPTS_DEFAULT
    if whole.HasField("retry_policy"):
        policy = whole.retry_policy
        if not policy.HasField("minimum_backoff"):
            policy.minimum_backoff.seconds = limits.BACKOFF_MIN_S_DEFAULT
        if not policy.HasField("maximum_backoff"):
            policy.maximum_backoff.seconds = limits.BACKOFF_MAX_S_DEFAULT
    return whole


def _refuse_what_is_not_here(resource: Pb) -> None:
    for field, what in _NOT_HERE.items():
        descriptor = resource.DESCRIPTOR.fields_by_name.get(field)
        if descriptor is None:
            continue
        value = getattr(resource, field)
        # An empty push_config means pull.
        if value.ByteSize() > 0 if descriptor.has_presence else bool(value):
            raise unimplemented(f"{what} (the subscription's {field})")


def check(resource: Pb, broker: Broker) -> None:
    """Refuse a completed Subscription that the service would refuse, or that asks for what is not here."""
    _refuse_what_is_not_here(resource)
    seconds = resource.ack_deadline_seconds
    if not limits.ACK_DEADLINE_S_MIN <= seconds <= limits.ACK_DEADLINE_S_MAX:
        raise invalid(
            f"Invalid ack deadline given: {seconds} (ack deadlines must be between {limits.ACK_DEADLINE_S_MIN} and "
            f"{limits.ACK_DEADLINE_S_MAX} seconds)."
        )
    check_labels(resource.labels)
    check_duration(
        "message_retention_duration",
        resource.message_retention_duration,
        limits.RETENTION_S_MIN,
        limits.RETENTION_S_MAX,
    )
    if resource.expiration_policy.HasField("ttl"):
        check_duration(
            "expiration_policy.ttl", resource.expiration_policy.ttl, limits.EXPIRATION_S_MIN, 10 * 366 * 86_400
        )
    if resource.HasField("retry_policy"):
        policy = resource.retry_policy
        check_duration("retry_policy.minimum_backoff", policy.minimum_backoff, 0, limits.BACKOFF_S_MAX)
        check_duration("retry_policy.maximum_backoff", policy.maximum_backoff, 0, limits.BACKOFF_S_MAX)
    if resource.HasField("dead_letter_policy"):
        policy = resource.dead_letter_policy
        attempts = policy.max_delivery_attempts
        if not limits.DELIVERY_ATTEMPTS_MIN <= attempts <= limits.DELIVERY_ATTEMPTS_MAX:
            raise bad_argument("dead_letter_policy.max_delivery_attempts")
        if not policy.dead_letter_topic:
            raise bad_argument("dead_letter_policy.dead_letter_topic")
        broker.topic(policy.dead_letter_topic)
    if resource.filter:
        parse_filter(resource.filter)


class SubscriptionCalls:
    """Answers by method; every request and response is serialized."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lock = broker.runtime.lock

    def create(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """CreateSubscription: it sees what is published from now on. Without a name it gets a random one."""
        return serialized(self.create_resource(parse(SUBSCRIPTION, request)))

    def create_resource(self, resource: Pb) -> Pb:
        """Create the subscription that `resource` describes; returns it as completed."""
        resource = completed(resource)
        broker = self._broker
        with self._lock:
            topic = broker.topic(resource.topic)
            if not resource.name:
                project = "/".join(topic.name.split("/")[:2])
                resource.name = f"{project}/subscriptions/auto-{uuid.uuid4()}"
            check_name(resource.name, "subscriptions")
            if resource.name in broker.subscriptions:
                raise already_exists(resource.name)
            check(resource, broker)
            resource.detached = False
            resource.ClearField("topic_message_retention_duration")
            if topic.resource.HasField("message_retention_duration"):
                resource.topic_message_retention_duration.CopyFrom(topic.resource.message_retention_duration)
            subscription = Subscription(broker.runtime, resource, broker.dead_letter)
            broker.subscriptions[resource.name] = subscription
            topic.subscriptions[resource.name] = subscription
        return resource

    def get(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """GetSubscription."""
        with self._lock:
            return serialized(self._broker.subscription(parse(GET, request).subscription).resource)

    def update(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """UpdateSubscription: the fields that the mask names."""
        call = parse(UPDATE, request)
        with self._lock:
            subscription = self._broker.subscription(call.subscription.name)
            changed = completed(
                apply_mask(
                    "Subscription",
                    subscription.resource,
                    call.subscription,
                    call.update_mask.paths,
                    MUTABLE,
                )
            )
            check(changed, self._broker)
            subscription.configure(changed)
            return serialized(changed)

    def delete(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """DeleteSubscription: its backlog is dropped, its receivers end with NOT_FOUND."""
        with self._lock:
            self._broker.remove_subscription(self._broker.subscription(parse(DELETE, request).subscription))
        return b""

    def list_all(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """ListSubscriptions of a project, by name."""
        call = parse(LIST, request)
        prefix = check_project(call.project)
        with self._lock:
            known = self._broker.subscriptions
            names, token = page(under(prefix, known), call.page_size, call.page_token)
            resources = [known[name].resource for name in names]
            return serialized(LISTED(subscriptions=resources, next_page_token=token))

    def modify_push_config(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """ModifyPushConfig: an empty one keeps a pull subscription as it is; a real one is refused."""
        call = parse(MODIFY_PUSH, request)
        with self._lock:
            self._broker.subscription(call.subscription)
        if call.push_config.ByteSize() > 0:
            raise unimplemented("push delivery (ModifyPushConfig)")
        return b""
