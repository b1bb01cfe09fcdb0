"""A published message as the server holds it: its bytes, its number, and what it shares with its request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishBatch:
    """What all messages of one Publish request have in common."""

    publish_ns: int
    """Publish time in nanoseconds since the epoch."""
    ordering_key: str
    tail: bytes
    """The fields that the server adds to each message: publish time, and message id but for its last three digits."""


class Message(NamedTuple):
    """One message. A tuple, because hundreds of thousands of them are made a second."""

    raw: bytes
    """The client's PubsubMessage as it came, without message id and publish time."""
    seq: int
    """The message id as a number: unique in the server and growing in publish order."""
    place: bytes
    """The last three digits of the message id."""
    batch: PublishBatch


_raw = itemgetter(0)


def size_of(messages: Iterable[Message]) -> int:
    """Bytes of all `messages` together, as the client sent them."""
    return sum(map(len, map(_raw, messages)))
