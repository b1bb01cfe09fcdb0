"""Publishing to the local Pub/Sub with a raw stub."""

from __future__ import annotations

from typing import Any

import grpc
from google.pubsub_v1.types import pubsub as types


class Publisher:
    """Publishes to topics of one project."""

    def __init__(self, address: str, project: str) -> None:
        self._project = project
        self._channel = grpc.insecure_channel(address)
        self._publish: Any = self._channel.unary_unary(
            "/google.pubsub.v1.Publisher/Publish",
            request_serializer=types.PublishRequest.pb().SerializeToString,
            response_deserializer=types.PublishResponse.pb().FromString,
        )

    def publish(self, topic: str, *messages: tuple[bytes, dict[str, str]], ordering_key: str = "") -> list[str]:
        """One request for all messages; their ids."""
        message = types.PubsubMessage.pb()
        request = types.PublishRequest.pb()(
            topic=f"projects/{self._project}/topics/{topic}",
            messages=[message(data=data, attributes=attrs, ordering_key=ordering_key) for data, attrs in messages],
        )
        return list(self._publish(request, timeout=10).message_ids)

    def close(self) -> None:
        self._channel.close()
