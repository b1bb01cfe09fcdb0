"""Reading a stored PubsubMessage: the few fields that people look at, straight from its protobuf bytes.

The web never loads Google's libraries, and a message is kept byte for byte: this reader only looks. Fields of
google.pubsub.v1.PubsubMessage: 1 data, 2 attributes (a map entry of 1 key and 2 value), 5 ordering key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VARINT_BYTES_MAX: Final = 10


class PayloadError(ValueError):
    """The bytes are no protobuf message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """What a message carries."""

    data: bytes = b""
    attributes: dict[str, str] = field(default_factory=dict)


def read_payload(payload: bytes) -> Payload:
    """Data and attributes of a PubsubMessage; PayloadError for anything else."""
    data = b""
    attributes = {}
    for number, value in _fields(memoryview(payload)):
        if number == 1:
            data = bytes(value)
        elif number == 2:
            entry = {inner: _text(content) for inner, content in _fields(value)}
            attributes[entry.get(1, "")] = entry.get(2, "")
    return Payload(data=data, attributes=attributes)


def _text(value: memoryview) -> str:
    return bytes(value).decode("utf-8", "replace")


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Number and content of each length-delimited field, in order; others are skipped."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        kind = tag & 7
        if kind == _BYTES:
            length, place = _varint(message, place)
            if place + length > len(message):
                raise PayloadError("a field ends behind the message")
            yield tag >> 3, message[place : place + length]
            place += length
        elif kind == _VARINT:
            _, place = _varint(message, place)
        elif kind in (_FIXED64, _FIXED32):
            place += 8 if kind == _FIXED64 else 4
        else:
            raise PayloadError(f"wire type {kind} at byte {place}")


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(_VARINT_BYTES_MAX):
        if place >= len(message):
            raise PayloadError("a number ends behind the message")
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << (7 * shift)
        if not byte & 0x80:
            return value, place
    raise PayloadError("a number of more than ten bytes")
