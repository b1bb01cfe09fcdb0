"""The 64-bit mixing that row checksums, duplicate keys and digests are made of, for one value or a whole column.

`fold` maps (h, value) to a new h so that a change of either always changes the result; a row whose single column is
damaged therefore never keeps its checksum. The column form gives bit for bit the same as the scalar one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_digest, xxh3_64_intdigest

MASK: Final = (1 << 64) - 1
SIGN: Final = 1 << 63
_PRIME: Final = 0x9E3779B97F4A7C15
_PRIME_64: Final = np.uint64(_PRIME)
_SHIFT: Final = 32
_SHIFT_64: Final = np.uint64(_SHIFT)

ABSENT: Final = 0
"""Stands for NULL, which no hash of a text gives in practice."""

Hashes = NDArray[np.uint64]
Integers = NDArray[np.int64]

_ENCODER: Final = msgspec.msgpack.Encoder()


def fold(h: int, value: int) -> int:
    """Mix one integer (taken modulo 2^64) into `h`."""
    h = ((h ^ (value & MASK)) * _PRIME) & MASK
    return h ^ (h >> _SHIFT)


def fold_column(h: Hashes, column: Hashes | np.uint64) -> None:
    """Mix a column into an array of hashes, in place."""
    np.bitwise_xor(h, column, out=h)
    np.multiply(h, _PRIME_64, out=h)
    np.bitwise_xor(h, h >> _SHIFT_64, out=h)


def text_hash(text: str | None) -> int:
    """Hash of a text, or ABSENT."""
    return ABSENT if text is None else xxh3_64_intdigest(text.encode())


def bytes_hash(data: bytes) -> int:
    """Hash of bytes."""
    return xxh3_64_intdigest(data)


def text_hashes(texts: Iterable[str]) -> Hashes:
    """Hashes of many texts; joined digests spare a Python integer each."""
    return bytes_hashes(map(str.encode, texts))


def bytes_hashes(values: Iterable[bytes]) -> Hashes:
    """Hashes of many byte strings."""
    return np.frombuffer(b"".join(map(xxh3_64_digest, values)), dtype=">u8").astype(np.uint64)


def integers(values: Sequence[int]) -> Integers:
    """A column of signed integers; raises OverflowError where one does not fit 64 bits."""
    return np.array(values, dtype=np.int64)


def unsigned(column: Integers) -> Hashes:
    """The same bits, unsigned."""
    return column.view(np.uint64)


def signed(h: int) -> int:
    """A hash as SQLite stores it."""
    return h - (1 << 64) if h & SIGN else h


def record_crc(*columns: object) -> int:
    """Checksum of a row of a small table: over its columns as msgpack, signed."""
    return signed(xxh3_64_intdigest(_ENCODER.encode(columns)))
