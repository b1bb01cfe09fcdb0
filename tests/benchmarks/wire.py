"""The messages on the wire: built as bytes, and read back through descriptors that decode only what is needed."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PROJECT: Final = "bench"
BODY_BYTES: Final = 250
REQUEST_MESSAGES: Final = 500

_HEAD: Final = struct.Struct("<qq")
"""seq and due in ms at the beginning of each body; random-looking filler would only slow the producer down."""
_FILLER: Final = bytes(range(256))[: BODY_BYTES - _HEAD.size]

_FIELD: Final = descriptor_pb2.FieldDescriptorProto

GRPC_OPTIONS: Final = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]


def _classes() -> tuple[Any, Any]:
    """(Outer, Inner): a response down to ack ids, and down to bodies and publish times."""
    package = "tests.benchmarks"
    file = descriptor_pb2.FileDescriptorProto(name="tests/benchmarks/wire.proto", package=package, syntax="proto3")

    def add(name: str, *fields: tuple[str, int, Any, bool, str]) -> None:
        entry = file.message_type.add(name=name)
        for field_name, number, kind, repeated, type_name in fields:
            label = _FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL
            entry.field.add(name=field_name, number=number, type=kind, label=label, type_name=type_name or None)

    nested = _FIELD.TYPE_MESSAGE
    add("Ids", ("ack_id", 1, _FIELD.TYPE_STRING, False, ""), ("message", 2, _FIELD.TYPE_BYTES, False, ""))
    add("Outer", ("received", 1, nested, True, f".{package}.Ids"))
    add("Time", ("seconds", 1, _FIELD.TYPE_INT64, False, ""), ("nanos", 2, _FIELD.TYPE_INT32, False, ""))
    add("Body", ("data", 1, _FIELD.TYPE_BYTES, False, ""), ("publish_time", 4, nested, False, f".{package}.Time"))
    add("Message", ("message", 2, nested, False, f".{package}.Body"))
    add("Inner", ("received", 1, nested, True, f".{package}.Message"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    outer, inner = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in ("Outer", "Inner")
    )
    return outer, inner


Outer, Inner = _classes()


def varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def field(number: int, content: bytes) -> bytes:
    """A length-delimited field."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def publish_request(topic: str, seqs: Iterable[int], dues_ms: Iterable[int]) -> bytes:
    """A PublishRequest whose messages carry their seq and due in the body, and `available_at`."""
    parts = [field(1, topic.encode())]
    name = field(1, b"available_at")
    for seq, due_ms in zip(seqs, dues_ms, strict=True):
        seconds, rest_ms = divmod(due_ms, 1000)
        value = (f"{seconds}.{rest_ms:03d}" if rest_ms else str(seconds)).encode()
        attribute = field(2, name + field(2, value))
        parts.append(field(2, field(1, _HEAD.pack(seq, due_ms) + _FILLER) + attribute))
    return b"".join(parts)


def acknowledge_request(subscription: str, response: bytes) -> tuple[bytes, int]:
    """An AcknowledgeRequest for everything in a StreamingPullResponse, and how many messages that is."""
    ids = [received.ack_id for received in Outer.FromString(response).received]
    return field(1, subscription.encode()) + b"".join(field(2, ack_id.encode()) for ack_id in ids), len(ids)


def read_bodies(response: bytes) -> list[tuple[int, int, int]]:
    """(seq, due_ms, publish_us) of each message of a StreamingPullResponse; ValueError for a body that was altered."""
    found = []
    for received in Inner.FromString(response).received:
        body = received.message
        if body.data[_HEAD.size :] != _FILLER:
            raise ValueError(f"a body of {len(body.data)} bytes is not as it was published")
        at = body.publish_time
        found.append((*_HEAD.unpack_from(body.data), at.seconds * 1_000_000 + at.nanos // 1000))
    return found


def now_us() -> int:
    return time.time_ns() // 1000
