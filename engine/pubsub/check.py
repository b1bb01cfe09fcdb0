"""Tries one side of a channel and says in words what fails, without taking or sending a message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
from google.iam.v1 import iam_policy_pb2  # type: ignore[import-untyped]
from google.pubsub_v1.types import GetSubscriptionRequest, GetTopicRequest, Subscription

from engine.config import PubSubLimits
from engine.model import DestinationConfig, SourceConfig
from engine.pubsub.connection import Connection, Connections, routing
from engine.pubsub.errors import Failure, FailureKind, classify


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What a test of one side found."""

    resource: str
    ok: bool
    detail: str
    """A sentence: what works, or what fails and what to do."""
    failure: Failure | None = None
    hints: tuple[str, ...] = ()
    """Things that work and may surprise."""


def check_source(config: SourceConfig, connections: Connections, limits: PubSubLimits) -> Check:
    """Try to read the subscription, and whether it can be pulled from."""

    def look(connection: Connection) -> Check:
        request = GetSubscriptionRequest.serialize(GetSubscriptionRequest(subscription=config.subscription))
        data = _call(connection, "google.pubsub.v1.Subscriber/GetSubscription", "subscription", config.subscription)(
            request, timeout=limits.check_timeout_s
        )
        return _judge_subscription(config.subscription, Subscription.deserialize(data))

    return _check(
        config.subscription, lambda: connections.subscriber(config), look, "pubsub.subscriptions.consume", limits
    )


def check_destination(config: DestinationConfig, connections: Connections, limits: PubSubLimits) -> Check:
    """Try to read the topic, and whether it may be published to."""

    def look(connection: Connection) -> Check:
        request = GetTopicRequest.serialize(GetTopicRequest(topic=config.topic))
        _call(connection, "google.pubsub.v1.Publisher/GetTopic", "topic", config.topic)(
            request, timeout=limits.check_timeout_s
        )
        return Check(resource=config.topic, ok=True, detail=f"{config.topic} is there.")

    return _check(config.topic, lambda: connections.publisher(config), look, "pubsub.topics.publish", limits)


def _check(
    resource: str,
    connect: Callable[[], Connection],
    look: Callable[[Connection], Check],
    permission: str,
    limits: PubSubLimits,
) -> Check:
    """Connect, look, and explain what went wrong."""
    try:
        connection = connect()
    except Exception as error:
        return _failed(resource, classify(error, resource))
    try:
        return look(connection)
    except Exception as error:
        failure = classify(error, resource)
        # Reading a resource needs another permission than using it: an account may well have only the latter.
        if failure.code == "PERMISSION_DENIED" and _may(connection, resource, permission, limits):
            return Check(
                resource=resource,
                ok=True,
                detail=f"{resource} may be used.",
                hints=("Its settings may not be read, so they were not checked.",),
            )
        return _failed(resource, failure)
    finally:
        connection.close()


def _judge_subscription(name: str, subscription: Any) -> Check:
    """Whether a subscription of these settings can be pulled from, and what about it may surprise."""
    broken = None
    if subscription.detached:
        broken = f"{name} is detached from its topic: nothing arrives any more. Create a new subscription."
    elif subscription.topic == "_deleted-topic_":
        broken = f"The topic of {name} was deleted: nothing arrives any more. Create topic and subscription anew."
    elif subscription.push_config.push_endpoint or subscription.bigquery_config.table:
        broken = f"{name} is not a pull subscription: the scheduler needs one that it can pull from."
    if broken:
        return _failed(name, Failure(kind=FailureKind.CHANNEL, code="FAILED_PRECONDITION", reason=broken))
    hints = []
    if not subscription.filter:
        hints.append("It has no filter: messages without a time arrive too, and the policy 'missing_time' decides.")
    if subscription.dead_letter_policy.dead_letter_topic:
        hints.append("It has a dead-letter topic: messages that cannot be accepted for long may be moved there.")
    return Check(
        resource=name, ok=True, detail=f"{name} is there and reads from {subscription.topic}.", hints=tuple(hints)
    )


def _may(connection: Connection, resource: str, permission: str, limits: PubSubLimits) -> bool:
    """Ask whether the account has a permission; asking needs none."""
    request = iam_policy_pb2.TestIamPermissionsRequest(resource=resource, permissions=[permission])
    try:
        data = _call(connection, "google.iam.v1.IAMPolicy/TestIamPermissions", "resource", resource)(
            request.SerializeToString(), timeout=limits.check_timeout_s
        )
    except grpc.RpcError:
        # An emulator does not know the question; the first refusal stands and is what the caller reports.
        return False
    return permission in iam_policy_pb2.TestIamPermissionsResponse.FromString(data).permissions


def _call(connection: Connection, method: str, field: str, resource: str) -> Callable[..., bytes]:
    """A call of bytes that carries its routing metadata."""
    stub = connection.channel.unary_unary(f"/{method}", None, None)

    def call(request: bytes, *, timeout: float) -> bytes:
        answer: bytes = stub(request, timeout=timeout, metadata=routing(field, resource))
        return answer

    return call


def _failed(resource: str, failure: Failure) -> Check:
    """A test that failed."""
    return Check(resource=resource, ok=False, detail=failure.reason, failure=failure)
