"""The limits of a Publish request: checked before anything is kept, and for the whole request, as the service does.

Most requests pass by a short cut, taken by C code for all messages at once: when what follows the data is small, no
limit on attributes can be broken. Everything else is looked at field by field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError
from google.pubsub_v1 import types

from engine.emulator import limits
from engine.emulator.errors import Refused, bad_argument, failed_precondition, invalid, too_large, too_small
from engine.emulator.wire import Pb, RareInPublish, SplitPublish, varint

PUBLISH_REQUEST: Pb = types.PublishRequest.pb()

_DATA_TAG = 0x0A
_UNUSUAL = (b"\x0a\x00", b"goog")
"""An empty first field (an attribute's key), the reserved prefix: absent from the bytes, absent from the message."""

_SURELY_SMALL = 256
_SMALL_IF_ASCII = 500
"""Bytes of attributes within which no limit can be broken.

Up to 256 there is no room for a longer key. Up to 500 there is none for 101 attributes, and a key over 127 bytes would
need a length that is no ASCII.
"""

_EMPTY = (
    "One or more messages in the publish request is empty. Each message must contain either non-empty data, or "
    "at least one attribute."
)
_MIXED_KEYS = (
    "In a single publish request, all messages must have no ordering key or they must all have the same ordering key. "
    "[code=539b]"
)


class _DataEnds(dict[bytes, int]):
    """Where the leading data field ends, by the first three bytes of a message; KeyError when they do not tell."""

    def __missing__(self, prefix: bytes) -> int:
        if len(prefix) < 3 or prefix[0] != _DATA_TAG or prefix[1] == 0:
            raise KeyError(prefix)
        if prefix[1] < 0x80:
            end = 2 + prefix[1]
        elif prefix[2] < 0x80:
            end = 3 + (prefix[1] & 0x7F | prefix[2] << 7)
        else:
            raise KeyError(prefix)
        if len(self) < limits.CACHED_LENGTHS_MAX:
            self[prefix] = end
        return end


_DATA_ENDS = _DataEnds()


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishCall:
    """A Publish request that keeps all limits."""

    topic: str
    raws: Sequence[bytes]
    """The messages as they came, without a client's message id or publish time."""
    ordering_key: str
    parsed: Sequence[Pb]
    """The same messages, parsed; their attributes are looked at only where a filter needs them."""

    def attributes(self, index: int) -> Mapping[str, str]:
        """Attributes of one message."""
        attributes: Mapping[str, str] = self.parsed[index].attributes
        return attributes


def read_publish(request: bytes) -> PublishCall:
    """Parse and check a PublishRequest; refuses it as the service would."""
    try:
        parsed = PUBLISH_REQUEST.FromString(request)
        split = SplitPublish.FromString(request)
    except DecodeError as error:
        raise invalid(f"The PublishRequest cannot be parsed: {error}") from error
    raws: list[bytes] = list(split.messages)
    if not raws:
        raise too_small("message_count", 0, 1)
    if len(raws) > limits.PUBLISH_MESSAGES_MAX:
        raise too_large("message_count", len(raws), limits.PUBLISH_MESSAGES_MAX)
    if len(request) > limits.PUBLISH_BYTES_MAX:
        raise too_large("request_size", len(request), limits.PUBLISH_BYTES_MAX)
    ordering_key = _common_ordering_key(request, len(raws))
    if ordering_key is None or not _is_plain(raws):
        raws, ordering_key = _check_each(raws, parsed.messages)
    return PublishCall(topic=split.topic, raws=raws, ordering_key=ordering_key, parsed=parsed.messages)


def _common_ordering_key(request: bytes, count: int) -> str | None:
    """The ordering key, perhaps empty, of all `count` messages; None when they differ or have fields of the server's.

    With everything else discarded, equal messages serialize to one message's bytes again and again.
    """
    rare = RareInPublish.FromString(request)
    rare.DiscardUnknownFields()
    key: str = rare.messages[0].ordering_key
    fields = b"\x2a" + varint(len(key.encode())) + key.encode() if key else b""
    if len(fields) > _SURELY_SMALL or rare.SerializeToString() != (b"\x12" + varint(len(fields)) + fields) * count:
        return None
    return key


def _is_plain(raws: Sequence[bytes]) -> bool:
    """Whether the bytes alone prove that every message has data, and few small attributes or none."""
    ends = _DATA_ENDS
    try:
        rests = [raw[ends[raw[:3]] :] for raw in raws]
    except KeyError:
        return False
    together = b"".join(rests)
    longest = max(map(len, rests))
    if longest > _SURELY_SMALL and not (longest <= _SMALL_IF_ASCII and together.isascii()):
        return False
    return not any(mark in together for mark in _UNUSUAL)


def _check_each(raws: Sequence[bytes], parsed: Sequence[Pb]) -> tuple[list[bytes], str]:
    """Check field by field; returns the messages without the fields that the server sets, and the ordering key."""
    kept: list[bytes] = []
    ordering_key: str = parsed[0].ordering_key
    if len(ordering_key.encode()) > limits.ORDERING_KEY_BYTES_MAX:
        raise too_large("ordering_key_size", len(ordering_key.encode()), limits.ORDERING_KEY_BYTES_MAX)
    for raw, message in zip(raws, parsed, strict=True):
        attributes = message.attributes
        if not attributes and not message.data:
            raise invalid(_EMPTY)
        if message.ordering_key != ordering_key:
            raise failed_precondition(_MIXED_KEYS)
        if attributes:
            _check_attributes(attributes)
        if message.message_id or message.HasField("publish_time"):
            bare = type(message)()
            bare.CopyFrom(message)
            bare.ClearField("message_id")
            bare.ClearField("publish_time")
            kept.append(bare.SerializeToString())
        else:
            kept.append(raw)
    return kept, ordering_key


def _check_attributes(attributes: Mapping[str, str]) -> None:
    if len(attributes) > limits.ATTRIBUTES_MAX:
        raise too_large("attribute_count", len(attributes), limits.ATTRIBUTES_MAX)
    for key, value in attributes.items():
        if not key:
            raise bad_argument("attribute_key")
        if len(key) * 4 > limits.ATTRIBUTE_KEY_BYTES_MAX and len(key.encode()) > limits.ATTRIBUTE_KEY_BYTES_MAX:
            raise too_large("attribute_key_size", len(key.encode()), limits.ATTRIBUTE_KEY_BYTES_MAX)
        if len(value) * 4 > limits.ATTRIBUTE_VALUE_BYTES_MAX and len(value.encode()) > limits.ATTRIBUTE_VALUE_BYTES_MAX:
            raise too_large("attribute_value_size", len(value.encode()), limits.ATTRIBUTE_VALUE_BYTES_MAX)
        if key.startswith("goog") and not key.startswith("googclient_"):
            raise _reserved(key)


def _reserved(key: str) -> Refused:
    """Names that begin with goog are Google's; the client libraries' own googclient_ pass."""
    return invalid(f"The attribute key {key!r} is reserved: keys must not start with 'goog'.")
