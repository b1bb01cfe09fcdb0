"""The copy of a message that goes to a dead-letter topic: the original's content and four attributes about its past."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from google.pubsub_v1 import types

from engine.emulator.message import Message
from engine.emulator.names import id_of, project_of
from engine.emulator.wire import Pb, pubsub_message

PUBSUB_MESSAGE: Pb = types.PubsubMessage.pb()

PREFIX = "CloudPubSubDeadLetter"


def rfc3339(time_ns: int) -> str:
    """UTC with microseconds, whatever the size of the number."""
    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_ns // 1_000)
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")


def dead_letter_message(subscription: str, message: Message, deliveries: int) -> Pb:
    """The PubsubMessage to publish for `message`, given up by `subscription` after `deliveries` deliveries."""
    copy = PUBSUB_MESSAGE.FromString(pubsub_message(message))
    copy.ClearField("message_id")
    copy.ClearField("publish_time")
    copy.attributes[f"{PREFIX}SourceDeliveryCount"] = str(deliveries)
    copy.attributes[f"{PREFIX}SourceSubscription"] = id_of(subscription)
    copy.attributes[f"{PREFIX}SourceSubscriptionProject"] = project_of(subscription)
    copy.attributes[f"{PREFIX}SourceTopicPublishTime"] = rfc3339(message.batch.publish_ns)
    return copy
