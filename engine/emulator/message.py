"""A published message as the server holds it.

Its bytes, its number, and what it shares with the rest of its request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishBatch:
    """What all messages of one Publish request have in common."""

    publish_ns: int
    """Publish time in nanoseconds since the epoch."""
    ordering_key: str


class Message(NamedTuple):
    """One message. A tuple, because hundreds of thousands of them are made a second."""

    body: bytes
    """Field 2 of ReceivedMessage, tag and length included: the client's bytes, then publish time and message id."""
    seq: int
    """The message id as a number: unique in the server and growing in publish order."""
    batch: PublishBatch
