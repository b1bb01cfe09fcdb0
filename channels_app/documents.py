"""A message as the interface shows it."""

from __future__ import annotations

import base64
from collections.abc import Collection
from typing import Any

from channels_app.models import HeldMessage, QuarantinedMessage
from channels_app.payload import Payload, PayloadError, read_payload
from engine.errors import NotFound
from engine.model import Cluster, message_id
from scheduler_project.times import to_rfc3339


def message_document(
    message: HeldMessage, channel_id: str, cluster: Cluster, *, in_flight: Collection[int], with_data: bool
) -> dict[str, Any]:
    """One message; its body only when asked for."""
    quarantined = message if isinstance(message, QuarantinedMessage) else None
    due_ms: int | None = getattr(message, "due_ms", None)
    document: dict[str, Any] = {
        "id": message_id(cluster, message.seq),
        "channel": channel_id,
        "state": "quarantined" if quarantined else "in_flight" if message.seq in in_flight else "pending",
        "due": to_rfc3339(due_ms),
        "original_due": to_rfc3339(getattr(message, "original_due_ms", due_ms)),
        "accepted_at": to_rfc3339(message.accepted_ms),
        "published_at": to_rfc3339(message.publish_us // 1000) if message.publish_us else None,
        "key": message.key,
        "ordering_key": message.ordering_key or None,
        "size": message.size,
        "attempts": message.attempts,
        "source_message_id": message.source_id or None,
        "reason": quarantined.reason if quarantined else None,
        "reason_code": quarantined.code if quarantined else None,
        "quarantined_at": to_rfc3339(quarantined.quarantined_ms) if quarantined else None,
        "revision": message.revision,
    }
    payload = readable_payload(message)
    document["attributes"] = payload.attributes
    if with_data:
        document["data"] = base64.b64encode(payload.data).decode()
    return document


def readable_payload(message: HeldMessage) -> Payload:
    """What the message carries; nothing where its bytes cannot be read, since a page must still show the others."""
    try:
        return read_payload(bytes(message.payload))
    except PayloadError:
        return Payload()


def seq_of(message_name: str, cluster: Cluster) -> int:
    """The seq in a message id; NotFound when the id is no message of this cluster."""
    prefix = message_id(cluster, 0)[:-1]
    number = message_name.removeprefix(prefix)
    if not message_name.startswith(prefix) or not (number.isascii() and number.isdigit() and len(number) < 19):
        raise NotFound(f"There is no message {message_name!r} in this cluster.", reason="NO_MESSAGE")
    return int(number)
