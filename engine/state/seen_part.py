"""One row of `seen`: the source messages that one boundary added to one listening minute of a channel.

`hashes` holds the key hashes in the order of acceptance and, behind them, the checksum of `ids`, so that a start reads
and checks the hashes without touching the ids. `ids` holds publish times, lengths and the ids themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from xxhash import xxh3_64_intdigest

from engine.state.checksum import Hashes, Integers, bytes_hash, fold, signed, text_hash
from engine.state.generation import SourceKey

_SEED: Final = 0x7365656E
_HASH_BYTES: Final = 8


def pack(keys: Sequence[SourceKey], hashes: Hashes) -> tuple[bytes, bytes]:
    """The two blobs of these keys."""
    texts = [source_id.encode() for source_id, _ in keys]
    ids = b"".join(
        (
            np.array([publish_us for _, publish_us in keys], dtype="<i8").tobytes(),
            np.fromiter(map(len, texts), dtype="<u4", count=len(texts)).tobytes(),
            *texts,
        )
    )
    return hashes.astype("<u8").tobytes() + xxh3_64_intdigest(ids).to_bytes(_HASH_BYTES, "little"), ids


def part_crc(uid: int, minute: int, part: int, subscription: str, count: int, hashes: bytes) -> int:
    """Checksum of the row; of the ids by the one that `hashes` ends with."""
    h = fold(fold(fold(fold(_SEED, uid), minute), part), text_hash(subscription))
    return signed(fold(fold(h, count), bytes_hash(hashes)))


def unpack_hashes(hashes: bytes) -> Hashes:
    """The key hashes of the blob, in the order of acceptance."""
    return np.frombuffer(hashes[:-_HASH_BYTES], dtype="<u8").astype(np.uint64)


def ids_match(hashes: bytes, ids: bytes) -> bool:
    """Whether the ids are those that the row was written with."""
    return xxh3_64_intdigest(ids) == int.from_bytes(hashes[-_HASH_BYTES:], "little")


@dataclass(frozen=True, slots=True)
class PartIds:
    """The ids of one part, opened for looking at single ones."""

    publish_us: Integers
    ends: Integers
    texts: memoryview

    @classmethod
    def open(cls, ids: bytes, count: int) -> PartIds:
        """Take the blob apart without copying the ids."""
        publish_us = np.frombuffer(ids, dtype="<i8", count=count).astype(np.int64)
        lengths = np.frombuffer(ids, dtype="<u4", count=count, offset=8 * count)
        return cls(publish_us, np.cumsum(lengths, dtype=np.int64), memoryview(ids)[12 * count :])

    def key(self, position: int) -> SourceKey:
        """The key at a position."""
        start = int(self.ends[position - 1]) if position else 0
        return bytes(self.texts[start : int(self.ends[position])]).decode(), int(self.publish_us[position])
