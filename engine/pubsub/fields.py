"""Protobuf's wire format, as far as the relay looks into messages without decoding them.

The relay carries bytes (ARCHITECTURE: what came in goes out byte for byte), so it walks over fields and cuts slices
instead of parsing and re-serialising, which would re-order fields and normalise numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
GROUP_START: Final = 3
GROUP_END: Final = 4
FIXED32: Final = 5

VARINT_BYTES_MAX: Final = 10
"""A 64-bit number takes at most ten bytes."""
GROUP_DEPTH_MAX: Final = 100
"""Protobuf's own recursion limit."""


class WireError(ValueError):
    """The bytes are not a protobuf message; the text says where."""


class Field(NamedTuple):
    """One field as it stands on the wire: `data[start:stop]` is all of it, `data[value:stop]` its content."""

    number: int
    kind: int
    start: int
    value: int
    stop: int


def encode_varint(number: int) -> bytes:
    """The shortest encoding of a non-negative number."""
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def varint_size(number: int) -> int:
    """Bytes that `encode_varint` takes for a non-negative number."""
    return (number.bit_length() + 6) // 7 or 1


def read_varint(data: bytes, offset: int, limit: int) -> tuple[int, int]:
    """The number at `offset` and the offset behind it; longer encodings than necessary are legal."""
    number = shift = 0
    for position in range(offset, min(limit, offset + VARINT_BYTES_MAX)):
        byte = data[position]
        number |= (byte & 127) << shift
        if byte < 128:
            return number & 0xFFFF_FFFF_FFFF_FFFF, position + 1
        shift += 7
    raise WireError(f"a number at byte {offset} does not end")


def read_fields(data: bytes, offset: int, limit: int) -> Iterator[Field]:
    """Every field of the message in `data[offset:limit]`, in order; raises WireError where it is cut or senseless."""
    while offset < limit:
        start = offset
        tag, value = read_varint(data, start, limit)
        number, kind = tag >> 3, tag & 7
        if number == 0 or tag > 0xFFFF_FFFF:
            raise WireError(f"no field has the tag {tag} at byte {start}")
        if kind == BYTES:
            size, value = read_varint(data, value, limit)
            offset = value + size
        else:
            offset = _skip(data, number, kind, value, limit)
        if offset > limit:
            raise WireError(f"field {number} at byte {start} is longer than the message")
        yield Field(number, kind, start, value, offset)


def _skip(data: bytes, number: int, kind: int, offset: int, limit: int) -> int:
    """The offset behind a field that is not length-delimited."""
    if kind == VARINT:
        return read_varint(data, offset, limit)[1]
    if kind == FIXED64:
        return offset + 8
    if kind == FIXED32:
        return offset + 4
    if kind == GROUP_START:
        return _skip_group(data, number, offset, limit)
    raise WireError(f"field {number} has the unknown kind {kind}")


def _skip_group(data: bytes, number: int, offset: int, limit: int) -> int:
    """The offset behind a (deprecated, still legal) group, which may nest."""
    open_groups = [number]
    while open_groups:
        if len(open_groups) > GROUP_DEPTH_MAX:
            raise WireError("groups nest too deeply")
        tag, offset = read_varint(data, offset, limit)
        inner, kind = tag >> 3, tag & 7
        if inner == 0 or tag > 0xFFFF_FFFF:
            raise WireError(f"no field has the tag {tag} at byte {offset}")
        if kind == GROUP_START:
            open_groups.append(inner)
        elif kind == GROUP_END:
            if open_groups.pop() != inner:
                raise WireError(f"group {inner} ends but is not open")
        elif kind == BYTES:
            size, offset = read_varint(data, offset, limit)
            offset += size
        else:
            offset = _skip(data, inner, kind, offset, limit)
        if offset > limit:
            raise WireError(f"group {number} is longer than the message")
    return offset
