"""Message classes of our own that are wire-compatible with Pub/Sub's, made for splitting rather than for meaning.

A sub-message field may be declared as `bytes`: the wire is the same, and the parser (C) splits it off without looking
inside. A singular field may be declared as repeated: concatenated messages then parse into columns. With these two,
a response of hundreds of messages becomes a handful of lists without a Python step per message.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE: Final = "scheduler.wire"
_INT32: Final = descriptor_pb2.FieldDescriptorProto.TYPE_INT32
_BOOL: Final = descriptor_pb2.FieldDescriptorProto.TYPE_BOOL
_BYTES: Final = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
_STRING: Final = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
_OPTIONAL: Final = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
_REPEATED: Final = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED

_REPEATED_MESSAGES: Final[dict[str, tuple[tuple[str, int, Any], ...]]] = {
    "Response": (("received", 1, _BYTES),),
    "ReceivedColumns": (("ack_id", 1, _STRING), ("message", 2, _BYTES), ("attempt", 3, _INT32)),
    "MessageColumns": (("message_id", 3, _STRING), ("publish_time", 4, _BYTES), ("ordering_key", 5, _STRING)),
    "HeadColumns": (
        ("attributes", 2, _BYTES),
        ("message_id", 3, _BYTES),
        ("publish_time", 4, _BYTES),
        ("ordering_key", 5, _BYTES),
    ),
    "EntryColumns": (("key", 1, _STRING), ("value", 2, _STRING)),
    "EntryParts": (("key", 1, _BYTES), ("value", 2, _BYTES), ("mark", 15, _BOOL)),
    "PublishResponse": (("message_ids", 1, _STRING),),
}
_SINGULAR_MESSAGES: Final[dict[str, tuple[tuple[str, int, Any, Any], ...]]] = {
    "AcknowledgeRequest": (("subscription", 1, _STRING, _OPTIONAL), ("ack_ids", 2, _STRING, _REPEATED)),
    "ModifyAckDeadlineRequest": (
        ("subscription", 1, _STRING, _OPTIONAL),
        ("ack_deadline_seconds", 3, _INT32, _OPTIONAL),
        ("ack_ids", 4, _STRING, _REPEATED),
    ),
    "StreamingPullRequest": (
        ("subscription", 1, _STRING, _OPTIONAL),
        ("stream_ack_deadline_seconds", 5, _INT32, _OPTIONAL),
        ("client_id", 6, _STRING, _OPTIONAL),
        ("max_outstanding_messages", 7, descriptor_pb2.FieldDescriptorProto.TYPE_INT64, _OPTIONAL),
        ("max_outstanding_bytes", 8, descriptor_pb2.FieldDescriptorProto.TYPE_INT64, _OPTIONAL),
    ),
}


def _build() -> dict[str, Any]:
    """Register the messages in a pool of their own, so that Google's generated classes never meet them."""
    # proto2: strings are checked when read, so one bad message does not spoil the parse of a whole response.
    file = descriptor_pb2.FileDescriptorProto(name="scheduler_wire.proto", package=_PACKAGE, syntax="proto2")
    for name, columns in _REPEATED_MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind in columns:
            message.field.add(name=field, number=number, type=kind, label=_REPEATED)
    for name, fields in _SINGULAR_MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind, label in fields:
            message.field.add(name=field, number=number, type=kind, label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = (*_REPEATED_MESSAGES, *_SINGULAR_MESSAGES)
    return {n: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{n}")) for n in names}


_CLASSES: Final = _build()

Response: Final[Any] = _CLASSES["Response"]
"""StreamingPullResponse or PullResponse: only the received messages, each as bytes."""
ReceivedColumns: Final[Any] = _CLASSES["ReceivedColumns"]
"""Concatenated ReceivedMessages."""
MessageColumns: Final[Any] = _CLASSES["MessageColumns"]
"""Concatenated PubsubMessages: what the service added, and the ordering key."""
HeadColumns: Final[Any] = _CLASSES["HeadColumns"]
"""Concatenated PubsubMessages: all but the data."""
EntryColumns: Final[Any] = _CLASSES["EntryColumns"]
"""Concatenated attribute entries."""
EntryParts: Final[Any] = _CLASSES["EntryParts"]
"""The same as bytes, to be counted only, with a mark that no real entry has."""
PublishResponse: Final[Any] = _CLASSES["PublishResponse"]
AcknowledgeRequest: Final[Any] = _CLASSES["AcknowledgeRequest"]
ModifyAckDeadlineRequest: Final[Any] = _CLASSES["ModifyAckDeadlineRequest"]
StreamingPullRequest: Final[Any] = _CLASSES["StreamingPullRequest"]
