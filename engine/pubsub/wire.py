"""Messages as bytes: what is cut from a received one, what is added to it, and requests built by concatenation.

Pure functions, no I/O. A payload is a serialised PubsubMessage; nothing here decodes one to encode it again, so unknown
fields, the order of attributes and doubled keys leave as they came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from engine.config import PubSubLimits
from engine.pubsub import schema
from engine.pubsub.fields import BYTES, WireError, encode_varint, read_fields, read_varint, varint_size
from engine.pubsub.received import Received, parse_response, read_entry

__all__ = [
    "CUT",
    "Outgoing",
    "Received",
    "WireError",
    "attribute_template",
    "build_message",
    "outgoing",
    "parse_publish_response",
    "parse_response",
    "publish_request",
    "read_attributes",
    "request_size",
    "strip_inputs",
    "surely_fits",
]

CUT: Final = frozenset(
    {
        "available_at",
        "scheduler-delay",
        "scheduler-op",
        "scheduler-message-id",
        "scheduler-due",
        "scheduler-released",
        "scheduler-source-message-id",
        "scheduler-channel",
    }
)
"""Names that never leave as they came: the inputs that say when, and the names that the scheduler itself writes."""

_AVAILABLE_AT_ENTRY: Final = b"\x0a\x0cavailable_at\x12"
_CUT_BYTES: Final = frozenset(name.encode() for name in CUT)
_DATA: Final = 1 << 3 | BYTES
_ATTRIBUTE: Final = 2 << 3 | BYTES
_ORDERING_KEY: Final = 5 << 3 | BYTES


class Outgoing(NamedTuple):
    """A payload as it is published."""

    data: bytes
    dropped: int
    """Attributes that should have been added and did not fit: always the last ones of those given."""


def strip_inputs(payload: bytes) -> bytes:
    """Cut every attribute named in `CUT`; everything else stays unchanged to the byte.

    Nothing raises on a payload that is no message (those are quarantined on arrival): it stays as it is or nearly so.
    """
    return _strip(payload)


def outgoing(
    payload: bytes, *, added: Sequence[tuple[str, str]], topic: str = "", limits: PubSubLimits | None = None
) -> Outgoing:
    """Strip a payload and append attributes in the order given, as far as the service's limits allow.

    The limits: 100 attributes a message, 10,000,000 bytes for a request that holds this message and the topic's name
    (512 bytes are set aside for it while `topic` is empty). From the first attribute that does not fit none is added.
    With at least one in `added` the result is a valid message: where all else was cut, there is room for it. A message
    that is too big even bare comes back so; `request_size` tells.
    """
    limits = limits or _LIMITS
    bare = _strip(payload)
    data = bare + _attributes(added)
    if surely_fits(bare, len(data), len(added), limits):
        return Outgoing(data, 0)
    return _append_while_room(bare, added, topic, limits)


def surely_fits(bare: bytes, size: int, added: int, limits: PubSubLimits) -> bool:
    """Whether a stripped payload may have `added` more attributes and then `size` bytes, by a cheap look.

    False means that it has to be counted exactly, as `outgoing` does.
    """
    return (
        size + limits.topic_bytes_max + _OVERHEAD_BYTES <= limits.request_bytes_max
        and _attributes_at_most(bare) + added <= limits.attributes_max
    )


def attribute_template(key: str, size: int) -> bytes:
    """A %-template of one attribute, for a value of `size` bytes."""
    name = key.encode()
    head = b"\x0a%b%b\x12%b" % (_length(len(name)), name, _length(size))
    return (b"\x12%b%b" % (_length(len(head) + size), head)).replace(b"%", b"%%") + b"%b"


def _append_while_room(data: bytes, added: Sequence[tuple[str, str]], topic: str, limits: PubSubLimits) -> Outgoing:
    """The careful way of `outgoing`, near a limit."""
    attributes = [_attribute(key, value) for key, value in added]
    count = _distinct_attributes(data)
    topic_bytes = len(topic.encode()) or limits.topic_bytes_max
    for position, attribute in enumerate(attributes):
        size = _request_size(topic_bytes, len(data) + len(attribute))
        if count + 1 > limits.attributes_max or size > limits.request_bytes_max:
            return Outgoing(data, len(attributes) - position)
        data += attribute
        count += 1
    return Outgoing(data, 0)


def publish_request(topic: str, messages: Sequence[bytes]) -> bytes:
    """A PublishRequest of these payloads."""
    pieces = [b"\x0a", _length(len(name := topic.encode())), name]
    for message in messages:
        pieces += (b"\x12", _length(len(message)), message)
    return b"".join(pieces)


def request_size(topic: str, message: bytes) -> int:
    """Bytes of the PublishRequest that holds this one message."""
    return _request_size(len(topic.encode()), len(message))


def parse_publish_response(data: bytes) -> list[str]:
    """The message ids that the service gave, in the order of the request."""
    return list(schema.PublishResponse.FromString(data).message_ids)


def build_message(data: bytes, attributes: Mapping[str, str], ordering_key: str) -> bytes:
    """A payload from its parts, in the canonical order of fields."""
    pieces = [b"\x0a", _length(len(data)), data] if data else []
    pieces += [_attribute(key, value) for key, value in attributes.items()]
    if ordering_key:
        key = ordering_key.encode()
        pieces += (b"\x2a", _length(len(key)), key)
    return b"".join(pieces)


def read_attributes(payload: bytes) -> dict[str, str]:
    """All attributes of a payload; raises WireError where it cannot be decoded."""
    return dict(
        read_entry(payload[field.value : field.stop])
        for field in read_fields(payload, 0, len(payload))
        if field.number == 2 and field.kind == BYTES
    )


# -- cutting ---------------------------------------------------------------------------------------


def _strip(payload: bytes) -> bytes:
    """The payload without the names in `CUT`: three ways, each for what the one before cannot prove."""
    try:
        start = _attributes_start(payload)
        return _cut_time(payload, start) or _cut_walking(payload, start) or _cut_exactly(payload)
    except (IndexError, WireError):
        return _cut_exactly(payload)


def _attributes_start(payload: bytes) -> int:
    """The offset behind the data, where there is data and it comes first."""
    if not payload or payload[0] != _DATA:
        return 0
    size = payload[1]
    if size < 128:
        return size + 2
    second = payload[2]
    if second < 128:
        return (size & 127 | second << 7) + 3
    size, offset = read_varint(payload, 1, len(payload))
    return offset + size


def _cut_time(payload: bytes, start: int) -> bytes | None:
    """Cut the one name that nearly every message has, if no other can be in it; None if that is not so."""
    name = payload.find(b"available_at", start) - 2
    if name < 2 or not payload.startswith(_AVAILABLE_AT_ENTRY, name):
        return None
    if payload.find(b"available_at", name + 14) >= 0 or payload.find(b"scheduler-", start) >= 0:
        return None
    # A longer attribute may hold the same bytes in its value: walk to see that an attribute really begins here.
    offset = start
    while offset < name - 2:
        if payload[offset] != _ATTRIBUTE or payload[offset + 1] > 127:
            return None
        offset += payload[offset + 1] + 2
    size = payload[offset + 1]
    if offset != name - 2 or payload[offset] != _ATTRIBUTE or size > 127 or payload[name + 15] + 16 != size:
        return None
    return payload[:offset] + payload[name + size :]


def _cut_walking(payload: bytes, start: int) -> bytes | None:
    """Cut by one walk over attributes of the usual form: a short name, a short value and nothing else."""
    offset = start
    end = len(payload)
    cut: list[tuple[int, int]] = []
    while offset < end and payload[offset] == _ATTRIBUTE:
        size = payload[offset + 1]
        value = offset + 4 + payload[offset + 3]
        stop = offset + 2 + size
        if size > 127 or payload[offset + 2] != 10 or payload[value] != 18 or value + 2 + payload[value + 1] != stop:
            return None
        if payload[offset + 4 : value] in _CUT_BYTES:
            cut.append((offset, stop))
        offset = stop
    if offset != end and (payload[offset] != _ORDERING_KEY or offset + 2 + payload[offset + 1] != end):
        return None
    return _without(payload, cut)


def _cut_exactly(payload: bytes) -> bytes:
    """Cut by protobuf's rules, whatever the order of fields and the encoding of lengths."""
    cut: list[tuple[int, int]] = []
    try:
        for field in read_fields(payload, 0, len(payload)):
            if field.number == 2 and field.kind == BYTES:
                name = read_entry(payload[field.value : field.stop])[0]
                if name in CUT:
                    cut.append((field.start, field.stop))
    except WireError:
        return payload
    return _without(payload, cut)


def _without(payload: bytes, cut: list[tuple[int, int]]) -> bytes:
    """The payload without these ranges, given in order."""
    pieces = []
    offset = 0
    for start, stop in cut:
        pieces.append(payload[offset:start])
        offset = stop
    pieces.append(payload[offset:])
    return b"".join(pieces)


def _attributes_at_most(payload: bytes) -> int:
    """A number of attributes that the payload surely does not exceed, without a walk over them."""
    start = 0
    if len(payload) > _SMALL_BYTES:  # where the data alone would make the number too large
        try:
            start = _attributes_start(payload)
        except (IndexError, WireError):
            start = 0
    # Each has at least its tag, which begins with one of two bytes.
    return payload.count(_ATTRIBUTE, start) + payload.count(_ATTRIBUTE | 128, start)


def _distinct_attributes(data: bytes) -> int:
    """How many attributes the service will see: of doubled names only one."""
    try:
        return len(read_attributes(data))
    except WireError:
        return 0


# -- lengths ---------------------------------------------------------------------------------------

_LIMITS: Final = PubSubLimits()
_LENGTHS: Final = tuple(encode_varint(size) for size in range(1 << 14))
_SMALL_BYTES: Final = 2048
_OVERHEAD_BYTES: Final = 16
"""Tags and lengths of a topic and one message, at most."""


def _length(size: int) -> bytes:
    """A length prefix; those of up to two bytes come from a table."""
    return _LENGTHS[size] if size < 1 << 14 else encode_varint(size)


def _attributes(added: Sequence[tuple[str, str]]) -> bytes:
    """Attributes as fields, built as text and encoded at once where all of it is short and ASCII."""
    pieces: list[str] = []
    for key, value in added:
        head = _attribute_head(key, len(value))
        if not head:
            break
        pieces += (head, value)
    else:
        text = "".join(pieces)
        if text.isascii():
            return text.encode()
    return b"".join([_attribute(key, value) for key, value in added])


@lru_cache(maxsize=4096)
def _attribute_head(key: str, size: int) -> str:
    """What stands before an ASCII value of this size; "" where the lengths do not fit one byte each."""
    name, entry_size = len(key.encode()), len(key.encode()) + size + 4
    return f"\x12{chr(entry_size)}\x0a{chr(name)}{key}\x12{chr(size)}" if entry_size < 128 else ""


def _attribute(key: str, value: str) -> bytes:
    """One attribute as a field."""
    name, content = key.encode(), value.encode()
    entry = b"\x0a%b%b\x12%b%b" % (_length(len(name)), name, _length(len(content)), content)
    return b"\x12%b%b" % (_length(len(entry)), entry)


def _request_size(topic_bytes: int, message_bytes: int) -> int:
    """Bytes of a PublishRequest with one message."""
    return 2 + varint_size(topic_bytes) + topic_bytes + varint_size(message_bytes) + message_bytes
