"""The wire format of the hot path: requests split and responses joined without building a Python object per message.

A client's PubsubMessage is kept as the bytes it came in. Its publish time and message id are appended (in protobuf
the last value of a field wins), and a response is a concatenation of headers, ack ids and those bytes. The splitting
is done by protobuf's C parser through wire-compatible descriptors that declare a sub-message as `bytes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from engine.emulator import limits
from engine.emulator.message import Message, PublishBatch

Pb = Any
"""A protobuf message or its class; the generated ones have no types."""

ACK_ID_BYTES = 23
"""8 hexadecimal digits of the server's run, 12 of the group, 3 decimal ones of the place in it."""

PLACES = [b"%03d" % place for place in range(limits.RESPONSE_MESSAGES_MAX)]

_FIELD = descriptor_pb2.FieldDescriptorProto
_STRING, _BYTES, _INT32, _INT64 = _FIELD.TYPE_STRING, _FIELD.TYPE_BYTES, _FIELD.TYPE_INT32, _FIELD.TYPE_INT64

_LAYOUTS: dict[str, list[tuple[str, int, Any, bool]]] = {
    "Publish": [("topic", 1, _STRING, False), ("messages", 2, _BYTES, True)],
    "Acknowledge": [("subscription", 1, _STRING, False), ("ack_ids", 2, _BYTES, True)],
    "ModifyAckDeadline": [
        ("subscription", 1, _STRING, False),
        ("ack_deadline_seconds", 3, _INT32, False),
        ("ack_ids", 4, _BYTES, True),
    ],
    "StreamingPull": [
        ("subscription", 1, _STRING, False),
        ("ack_ids", 2, _BYTES, True),
        ("modify_deadline_seconds", 3, _INT32, True),
        ("modify_deadline_ack_ids", 4, _BYTES, True),
        ("stream_ack_deadline_seconds", 5, _INT32, False),
        ("client_id", 6, _STRING, False),
        ("max_outstanding_messages", 7, _INT64, False),
        ("max_outstanding_bytes", 8, _INT64, False),
        ("protocol_version", 10, _INT64, False),
    ],
    "First": [("value", 1, _BYTES, False)],
    "RareFields": [
        ("message_id", 3, _STRING, False),
        ("publish_time", 4, _BYTES, False),
        ("ordering_key", 5, _STRING, False),
    ],
}


def _split_classes() -> dict[str, Pb]:
    """Message classes for the layouts above, in a pool of their own."""
    package = "engine.emulator.split"
    file = descriptor_pb2.FileDescriptorProto(name="engine/emulator/split.proto", package=package, syntax="proto3")
    for name, fields in _LAYOUTS.items():
        message = file.message_type.add(name=name)
        for field_name, number, kind, repeated in fields:
            label = _FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL
            message.field.add(name=field_name, number=number, type=kind, label=label)
    rare = file.message_type.add(name="RareInPublish").field.add(name="messages", number=2, type=_FIELD.TYPE_MESSAGE)
    rare.label, rare.type_name = _FIELD.LABEL_REPEATED, f".{package}.RareFields"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = [message.name for message in file.message_type]
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in names}


_CLASSES = _split_classes()
SplitPublish: Pb = _CLASSES["Publish"]
SplitAcknowledge: Pb = _CLASSES["Acknowledge"]
SplitModifyAckDeadline: Pb = _CLASSES["ModifyAckDeadline"]
SplitStreamingPull: Pb = _CLASSES["StreamingPull"]
RareInPublish: Pb = _CLASSES["RareInPublish"]
"""A PublishRequest of which only the fields are declared that few messages have."""
SplitFirst: Pb = _CLASSES["First"]


def varint(value: int) -> bytes:
    """`value` ≥ 0 in protobuf's base-128 form."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ACK_HEADER = b"\x0a" + varint(ACK_ID_BYTES)


class _ReceivedHeaders(dict[int, bytes]):
    """What goes before a PubsubMessage of a given length: field 1 of the response and field 2 of ReceivedMessage in it.

    Made on first use; bounded, longer ones are made each time. The ack id follows: order is free in protobuf.
    """

    def __missing__(self, length: int) -> bytes:
        inner = b"\x12" + varint(length)
        header = b"\x0a" + varint(len(inner) + length + len(_ACK_HEADER) + ACK_ID_BYTES) + inner
        if len(self) < limits.CACHED_LENGTHS_MAX:
            self[length] = header
        return header


_RECEIVED_HEADERS = _ReceivedHeaders()

_new_message = partial(tuple.__new__, Message)


def stamp(publish_ns: int) -> bytes:
    """Field 4 of PubsubMessage. Both parts are written even when 0: a client's own value must not shine through."""
    seconds, nanos = divmod(publish_ns, 1_000_000_000)
    time = b"\x08" + varint(seconds) + b"\x10" + varint(nanos)
    return b"\x22" + varint(len(time)) + time


def batch_of(number: int, publish_ns: int, ordering_key: str) -> PublishBatch:
    """What the messages of Publish request `number` share."""
    digits = b"%014d" % number
    tail = stamp(publish_ns) + b"\x1a" + varint(len(digits) + 3) + digits
    return PublishBatch(publish_ns=publish_ns, ordering_key=ordering_key, tail=tail)


def messages_of(raws: Sequence[bytes], number: int, batch: PublishBatch) -> list[Message]:
    """Number the messages of one request (≤ 1000, so three digits count them)."""
    seqs = range(number * 1_000, number * 1_000 + len(raws))
    return list(map(_new_message, zip(raws, seqs, PLACES, repeat(batch), strict=False)))


def publish_response(batch_number: int, count: int) -> bytes:
    """The PublishResponse: `count` message ids in request order."""
    number = b"%014d" % batch_number
    prefix = b"\x0a" + varint(len(number) + 3) + number
    return prefix + prefix.join(PLACES[:count])


def ack_ids(run: bytes, group_number: int, count: int) -> list[bytes]:
    """Ack ids of one response: unique for every delivery, so that a late call never touches a later delivery."""
    prefix = run + b"%012x" % group_number
    return [prefix + place for place in PLACES[:count]]


def is_ack_id(value: bytes) -> bool:
    """Whether `value` has the form of an ack id of this server."""
    return len(value) == ACK_ID_BYTES and value.isalnum()


def received(messages: Iterable[Message], ids: Iterable[bytes], attempts: Sequence[int] | None) -> bytes:
    """Field 1 of a Pull or StreamingPull response, `received_messages`, with delivery attempts where counted."""
    parts: list[bytes] = []
    headers, ack_header = _RECEIVED_HEADERS, _ACK_HEADER
    last: PublishBatch | None = None
    tail, extra = b"", 0
    for (raw, _, place, batch), ack_id in zip(messages, ids, strict=True):
        if batch is not last:
            last, tail = batch, batch.tail
            extra = len(tail) + len(place)
        parts += (headers[len(raw) + extra], raw, tail, place, ack_header, ack_id)
    if attempts is None:
        return b"".join(parts)
    return b"".join(_with_attempts(parts, attempts))


def _with_attempts(parts: Sequence[bytes], attempts: Iterable[int]) -> Iterator[bytes]:
    """Messages made of `parts`, six each, with their delivery attempts in the place of the header that they outgrow."""
    for start, attempt in zip(range(0, len(parts), 6), attempts, strict=True):
        fields = b"".join((*parts[start + 1 : start + 6], b"\x18", varint(attempt)))
        length = sum(map(len, parts[start + 1 : start + 4]))
        inner = b"\x12" + varint(length)
        yield b"\x0a" + varint(len(inner) + len(fields)) + inner + fields


def pubsub_message(message: Message) -> bytes:
    """The PubsubMessage of a held message, as bytes."""
    return message.raw + message.batch.tail + message.place


def resource_of(request: bytes) -> str:
    """The resource that a request is about: its first field, or, where that is a message, the first field of it."""
    for _ in range(2):
        try:
            request = SplitFirst.FromString(request).value
        except DecodeError:
            return ""
        if request.startswith(b"projects/"):
            return request.decode(errors="replace")
    return ""
