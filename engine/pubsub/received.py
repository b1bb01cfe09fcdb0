"""A StreamingPull (or Pull) response as columns: what the listener needs, without decoding the messages.

Two ways give the same answer, which the property tests hold them to. `_parse_columns` splits a whole response of
well-formed messages in C, below 2 µs a message. Whatever it cannot prove to be well-formed goes through
`_parse_exactly`, which walks field by field by protobuf's rules and names what is wrong with a message.
"""

from __future__ import annotations

import hashlib
import os
from typing import Final, NamedTuple, TypeVar

from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp

from engine.pubsub import schema
from engine.pubsub.fields import BYTES, VARINT, Field, WireError, encode_varint, read_fields, read_varint

AVAILABLE_AT: Final = "available_at"
INPUT_PREFIX: Final = "scheduler-"

_INPUT_PREFIX_BYTES: Final = INPUT_PREFIX.encode()
_T = TypeVar("_T")


class Received(NamedTuple):
    """Received messages as columns of equal length, in the order of the response."""

    ack_ids: list[str]
    message_ids: list[str]
    """The service's id; for a message without a readable one a digest that is the same at each delivery."""
    publish_us: list[int]
    """Publish time in microseconds since the epoch; 0 where it cannot be read."""
    ordering_keys: list[str]
    """Empty where there is none."""
    available_at: list[str | None]
    """Value of the attribute `available_at`."""
    inputs: list[dict[str, str] | None]
    """All attributes whose name starts with `scheduler-`; None when there are none."""
    payloads: list[bytes]
    """The PubsubMessage without message id and publish time, otherwise byte for byte as it came."""
    delivery_attempts: list[int]
    """0 without a dead-letter policy."""
    faults: dict[int, str]
    """By position: why this message cannot be read and must be quarantined. Nearly always empty."""


class _Irregular(Exception):
    """The response is not of the form that columns can be proved for."""


def parse_response(data: bytes) -> Received:
    """Split a response into columns.

    A message that cannot be read is reported in `faults` and never raises; a response that is not even a list of
    received messages with ack ids raises WireError, since nothing in it could be acknowledged.
    """
    try:
        return _parse_columns(data)
    except (_Irregular, DecodeError, UnicodeDecodeError):
        return _parse_exactly(data)


# -- a whole response at once ----------------------------------------------------------------------

_MARK: Final = os.urandom(8).hex()
_MARK_BYTES: Final = _MARK.encode()
_MARK_ATTEMPT: Final = 2**31 - 1


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited field."""
    return encode_varint(number << 3 | BYTES) + encode_varint(len(content)) + content


# Between two concatenated messages stands one marker per field. If exactly n - 1 markers come back, each in its place,
# then every message had exactly one value of its own: nothing slid from one message to its neighbour.
_BETWEEN_RECEIVED: Final = _field(1, _MARK_BYTES) + _field(2, _MARK_BYTES) + b"\x18" + encode_varint(_MARK_ATTEMPT)
_BETWEEN_MESSAGES: Final = _field(3, _MARK_BYTES) + _field(4, _MARK_BYTES) + _field(5, _MARK_BYTES)
_MARK_ENTRY: Final = _field(1, _MARK_BYTES) + _field(2, b"")
_BETWEEN_HEADS: Final = _field(2, _MARK_ENTRY)
_BETWEEN_PAIRS: Final = _field(1, _MARK_BYTES) + _field(2, _MARK_BYTES)
_BETWEEN_ENTRIES: Final = b"\x78\x01"  # field 15 of schema.EntryParts: true
_AVAILABLE_AT_BYTES: Final = AVAILABLE_AT.encode()
_AVAILABLE_AT_ENTRY: Final = _field(1, _AVAILABLE_AT_BYTES) + b"\x12"


def _parse_columns(data: bytes) -> Received:
    """Split in C; raises where it cannot be sure that the result is exact."""
    received = list(schema.Response.FromString(data).received)
    count = len(received)
    columns = schema.ReceivedColumns.FromString(_BETWEEN_RECEIVED.join(received))
    ack_ids = _one_each(list(columns.ack_id), count, _MARK)
    _joined(ack_ids)
    messages = _one_each(list(columns.message), count, _MARK_BYTES)
    attempts = [0] * count  # Without a dead-letter policy nothing but markers is there.
    if len(columns.attempt) != max(count - 1, 0):
        attempts = _one_each(list(columns.attempt), count, _MARK_ATTEMPT)

    parts = schema.MessageColumns.FromString(_BETWEEN_MESSAGES.join(messages))
    message_ids = _one_each(list(parts.message_id), count, _MARK)
    times = _one_each(list(parts.publish_time), count, _MARK_BYTES)
    ordering_keys = [""] * count
    if len(parts.ordering_key) != max(count - 1, 0):
        ordering_keys = _one_or_none(list(parts.ordering_key), count)
        _joined(ordering_keys)
    if not (_joined(message_ids).isascii() and all(message_ids)):
        raise _Irregular

    heads, payloads = _cut_tails(messages, message_ids, times, ordering_keys)
    available_at, inputs = _read_inputs(heads)
    known: dict[bytes, int] = {}  # One Publish request gives all its messages the same time.
    publish_us = [known.get(t) or known.setdefault(t, _microseconds(t)) for t in times]
    return Received(
        ack_ids, message_ids, publish_us, ordering_keys, available_at, inputs, payloads, attempts, faults={}
    )


def _one_each(values: list[_T], count: int, mark: _T) -> list[_T]:
    """The values of `count` messages, if each message has exactly one."""
    if len(values) != max(2 * count - 1, 0) or values[1::2].count(mark) != max(count - 1, 0):
        raise _Irregular
    return values[::2]


def _joined(values: list[str]) -> str:
    """All of a column; the parser gives bytes in place of a text that is not UTF-8, which this finds."""
    try:
        return "".join(values)
    except TypeError:
        raise _Irregular from None


def _one_or_none(values: list[str], count: int) -> list[str]:
    """The values of `count` messages, if each message has at most one; "" for those without."""
    found = [""]
    filled = False
    for value in values:
        if value == _MARK:
            found.append("")
            filled = False
        elif filled:
            raise _Irregular
        else:
            found[-1] = value
            filled = True
    if len(found) != count:
        raise _Irregular
    return found


def _cut_tails(
    messages: list[bytes], message_ids: list[str], times: list[bytes], ordering_keys: list[str]
) -> tuple[list[bytes], list[bytes]]:
    """Split each message before its message id: (heads, payloads).

    The service writes fields by number, so message id, publish time and ordering key come last; that the heads have
    none of them (`_read_inputs`) and that the sizes add up proves it for each message.
    """
    if max(map(len, message_ids), default=0) > 127 or max(map(len, times), default=0) > 127:
        raise _Irregular
    if not any(ordering_keys):
        cut = [m[: len(m) - len(i) - len(t) - 4] for m, i, t in zip(messages, message_ids, times, strict=True)]
        return cut, cut
    heads, payloads = [], []
    for message, message_id, time, ordering_key in zip(messages, message_ids, times, ordering_keys, strict=True):
        key_field = _field(5, ordering_key.encode()) if ordering_key else b""
        head = message[: len(message) - len(message_id) - len(time) - len(key_field) - 4]
        heads.append(head)
        payloads.append(head + key_field)
    return heads, payloads


def _read_inputs(heads: list[bytes]) -> tuple[list[str | None], list[dict[str, str] | None]]:
    """The columns `available_at` and `inputs` of messages without message id, publish time and ordering key."""
    columns = schema.HeadColumns.FromString(_BETWEEN_HEADS.join(heads))
    entries = list(columns.attributes)
    if columns.message_id or columns.publish_time or columns.ordering_key:
        raise _Irregular
    if entries.count(_MARK_ENTRY) != max(len(heads) - 1, 0):
        raise _Irregular
    if not heads:
        return [], []
    entries.append(_MARK_ENTRY)
    joined = _BETWEEN_ENTRIES.join(entries)
    if joined.isascii() and _INPUT_PREFIX_BYTES not in joined:
        pairs = schema.EntryParts.FromString(joined)
        if len(pairs.key) == len(pairs.value) == len(entries) == len(pairs.mark) + 1:
            available_at = _times_alone(entries, mentions=joined.count(_AVAILABLE_AT_BYTES))
            if len(available_at) == len(heads):
                return available_at, [None] * len(heads)
    return _times_and_others(entries)


def _times_alone(entries: list[bytes], mentions: int) -> list[str | None]:
    """`available_at` of each message, a marker ending each; all text is ASCII. Empty if it cannot be told this way.

    When every mention of the name is an entry of the usual form (name, then value, then nothing), no entry of another
    form can have that name.
    """
    available_at: list[str | None] = []
    current: str | None = None
    for entry in entries:
        if entry.startswith(_AVAILABLE_AT_ENTRY):
            if entry[15] + 16 != len(entry):
                return []
            current = entry[16:].decode()
            mentions -= 1
        elif entry == _MARK_ENTRY:
            available_at.append(current)
            current = None
    return [] if mentions else available_at


def _times_and_others(entries: list[bytes]) -> tuple[list[str | None], list[dict[str, str] | None]]:
    """`available_at` and the attributes whose name starts with `scheduler-`, whatever else there is."""
    columns = schema.EntryColumns.FromString(_BETWEEN_PAIRS.join(entries))
    keys = _one_each(list(columns.key), len(entries), _MARK)
    values = _one_each(list(columns.value), len(entries), _MARK)
    _joined(keys)
    _joined(values)
    available_at: list[str | None] = []
    inputs: list[dict[str, str] | None] = []
    current: str | None = None
    others: dict[str, str] = {}
    for key, value in zip(keys, values, strict=True):
        if key == AVAILABLE_AT:
            current = value
        elif key == _MARK:
            available_at.append(current)
            inputs.append(others or None)
            current, others = None, {}
        elif key.startswith(INPUT_PREFIX):
            others[key] = value
    return available_at, inputs


def _microseconds(time: bytes) -> int:
    """A google.protobuf.Timestamp in microseconds since the epoch, rounded down."""
    timestamp = Timestamp.FromString(time)
    return int(timestamp.seconds) * 1_000_000 + int(timestamp.nanos) // 1000


# -- field by field --------------------------------------------------------------------------------


def _parse_exactly(data: bytes) -> Received:
    """Walk over the response by protobuf's rules: the last value of a field counts, sub-messages merge."""
    received = Received([], [], [], [], [], [], [], [], {})
    for field in read_fields(data, 0, len(data)):
        if field.number != 1 or field.kind != BYTES:
            continue
        ack_id, message, attempt = "", b"", 0
        for part in read_fields(data, field.value, field.stop):
            if (part.number, part.kind) == (1, BYTES):
                ack_id = _text(data[part.value : part.stop], "an ack id")
            elif (part.number, part.kind) == (2, BYTES):
                message += data[part.value : part.stop]
            elif (part.number, part.kind) == (3, VARINT):
                attempt = _signed(read_varint(data, part.value, part.stop)[0], 32)
        received.ack_ids.append(ack_id)
        received.delivery_attempts.append(attempt)
        _append_message(received, message)
    return received


def _append_message(received: Received, message: bytes) -> None:
    """Append what can be read of one message, and the first thing that is wrong with it."""
    faults: list[str] = []
    parts = _MessageParts()
    try:
        for field in read_fields(message, 0, len(message)):
            parts.take(message, field, faults)
    except WireError as error:
        faults.insert(0, f"The message cannot be decoded: {error}.")
        parts = _MessageParts()
        parts.kept.append(message)
    try:
        publish_us = _microseconds(parts.time)
    except DecodeError:
        publish_us = 0
        faults.append("The message's publish time cannot be decoded.")
    if not parts.message_id:
        parts.message_id = f"unreadable-{hashlib.sha256(message).hexdigest()[:32]}"
        faults.append("The message has no message id.")
    if faults:
        received.faults[len(received.payloads)] = faults[0]
    inputs = {key: value for key, value in parts.attributes.items() if key.startswith(INPUT_PREFIX)}
    received.message_ids.append(parts.message_id)
    received.publish_us.append(publish_us)
    received.ordering_keys.append(parts.ordering_key)
    received.available_at.append(parts.attributes.get(AVAILABLE_AT))
    received.inputs.append(inputs or None)
    received.payloads.append(b"".join(parts.kept))


class _MessageParts:
    """What has been read of one PubsubMessage so far."""

    __slots__ = ("attributes", "kept", "message_id", "ordering_key", "time")

    def __init__(self) -> None:
        self.message_id = ""
        self.time = b""
        self.ordering_key = ""
        self.attributes: dict[str, str] = {}
        self.kept: list[bytes] = []

    def take(self, message: bytes, field: Field, faults: list[str]) -> None:
        """Take one field; text that cannot be decoded is a fault, and the bytes are kept all the same."""
        content = message[field.value : field.stop]
        known = field.number if field.kind == BYTES else 0
        if known == 4:
            self.time += content
            return
        try:
            if known == 3:
                self.message_id = _text(content, "the message id")
                return
            self.kept.append(message[field.start : field.stop])
            if known == 5:
                self.ordering_key = _text(content, "the ordering key")
            elif known == 2:
                key, value = read_entry(content)
                self.attributes[key] = value
        except WireError as error:
            faults.append(f"The message cannot be decoded: {error}.")


def read_entry(content: bytes) -> tuple[str, str]:
    """Key and value of one attribute entry; raises WireError where they are not text."""
    key = value = b""
    for field in read_fields(content, 0, len(content)):
        if field.kind == BYTES and field.number == 1:
            key = content[field.value : field.stop]
        elif field.kind == BYTES and field.number == 2:
            value = content[field.value : field.stop]
    name = _text(key, "an attribute's name")
    return name, _text(value, f"the attribute {name!r}")


def _text(content: bytes, what: str) -> str:
    """UTF-8 as text."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise WireError(f"{what} is not UTF-8") from None


def _signed(number: int, bits: int) -> int:
    """A varint as the two's complement number that protobuf takes it for."""
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number
