"""Rows of the two large tables as plain tuples (the cheapest thing that holds twelve values), and their checksums.

The constants name positions: `row[rows.DUE_MS]`. The checksum covers every column and the row's seq; it is made once,
when the row is, travels with it, and is checked whenever the engine reads the row back from the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.due import DUE_MIN_MS
from engine.state.checksum import (
    ABSENT,
    Hashes,
    Integers,
    bytes_hash,
    bytes_hashes,
    fold,
    fold_column,
    integers,
    signed,
    text_hash,
    text_hashes,
    unsigned,
)

SLOT_BITS: Final = 20
"""A slot of the due index spans 2^20 ms, about 17.5 minutes."""
LOWEST_SLOT: Final = DUE_MIN_MS >> SLOT_BITS
"""The slot of the earliest time that the grammar of times allows."""

Row = tuple[int, int, bytes, str, int, str, str | None, int, int, int, int, int]
CHANNEL_UID: Final = 0
DUE_MS: Final = 1
PAYLOAD: Final = 2
SOURCE_ID: Final = 3
PUBLISH_US: Final = 4
ORDERING_KEY: Final = 5
KEY: Final = 6
ACCEPTED_MS: Final = 7
ATTEMPTS: Final = 8
REVISION: Final = 9
ORIGINAL_DUE_MS: Final = 10
CRC: Final = 11

QuarantineRow = tuple[int, int | None, bytes, str, int, str, str | None, int, int, str, str, int, int, int]
Q_CHANNEL_UID: Final = 0
Q_DUE_MS: Final = 1
Q_PAYLOAD: Final = 2
Q_SOURCE_ID: Final = 3
Q_PUBLISH_US: Final = 4
Q_ORDERING_KEY: Final = 5
Q_KEY: Final = 6
Q_ACCEPTED_MS: Final = 7
Q_QUARANTINED_MS: Final = 8
Q_CODE: Final = 9
Q_REASON: Final = 10
Q_ATTEMPTS: Final = 11
Q_REVISION: Final = 12
Q_CRC: Final = 13

ROW_BYTES: Final = 400
"""What a row costs in memory beside its payload: tuple, texts, integers, its place in a dict."""

_MESSAGE_SEED: Final = 0x6D657373616765
_QUARANTINE_SEED: Final = 0x71756172616E74
_EMPTY: Final = text_hash("")
_ABSENT_64: Final = np.uint64(ABSENT)
_EMPTY_64: Final = np.uint64(_EMPTY)
_VECTOR_MIN: Final = 12
"""From this many rows on numpy's fixed cost pays."""


def slot_of(due_ms: int) -> int:
    """The slot of the due index that a time falls into."""
    return due_ms >> SLOT_BITS


def slots_of(due_column: Integers) -> set[int]:
    """The slots of some messages, most of which usually share one."""
    slots = due_column >> SLOT_BITS
    low, high = int(slots.min()), int(slots.max())
    return {low} if low == high else set(slots.tolist())


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """New messages of one Accept as columns of equal length; every one gets the same stamp, attempts 0, revision 1."""

    dues_ms: Sequence[int]
    payloads: Sequence[bytes]
    source_ids: Sequence[str]
    publish_us: Sequence[int]
    ordering_keys: Sequence[str] | None
    """None: no message has one."""
    keys: Sequence[str | None] | None
    id_hashes: Hashes
    """Hashes of `source_ids`, made for the duplicate check already."""
    due_column: Integers
    publish_column: Integers
    """`dues_ms` and `publish_us` again."""


def accepted_crcs(uid: int, accepted_ms: int, first_seq: int, columns: Columns) -> list[int]:
    """Checksums of new messages with consecutive seqs."""
    n = len(columns.dues_ms)
    head = _head(uid, accepted_ms, 0, 1)
    if n < _VECTOR_MIN:
        okeys = columns.ordering_keys or ("",) * n
        keys = columns.keys or (None,) * n
        return [
            signed(_tail(head, first_seq + i, due, due, publish, bytes_hash(payload), id_hash, okey, key))
            for i, (due, publish, payload, id_hash, okey, key) in enumerate(
                zip(columns.dues_ms, columns.publish_us, columns.payloads, columns.id_hashes.tolist(), okeys, keys,
                    strict=True)
            )
        ]  # fmt: skip
    h = np.full(n, head, dtype=np.uint64)
    dues = unsigned(columns.due_column)
    fold_column(h, np.arange(first_seq, first_seq + n, dtype=np.uint64))
    fold_column(h, dues)
    fold_column(h, dues)
    fold_column(h, unsigned(columns.publish_column))
    fold_column(h, bytes_hashes(columns.payloads))
    fold_column(h, columns.id_hashes)
    fold_column(h, _EMPTY_64 if columns.ordering_keys is None else text_hashes(columns.ordering_keys))
    fold_column(h, _ABSENT_64 if columns.keys is None else _optional_hashes(columns.keys))
    crcs: list[int] = h.view(np.int64).tolist()
    return crcs


def message_crc(seq: int, row: Sequence[object]) -> int:
    """Checksum of one message row (its own `CRC` column, if there, is not looked at)."""
    uid, due, payload, source_id, publish, okey, key, accepted, attempts, revision, original = row[:CRC]
    head = _head(uid, accepted, attempts, revision)  # type: ignore[arg-type]
    id_hash = text_hash(source_id)  # type: ignore[arg-type]
    payload_hash = bytes_hash(payload)  # type: ignore[arg-type]
    return signed(_tail(head, seq, due, original, publish, payload_hash, id_hash, okey, key))  # type: ignore[arg-type]


def message_crcs(seqs: Sequence[int], rows: Sequence[Row]) -> list[int]:
    """Checksums of any message rows, for checking what was read."""
    if len(rows) < _VECTOR_MIN:
        return [message_crc(seq, row) for seq, row in zip(seqs, rows, strict=True)]
    uid, due, payload, source_id, publish, okey, key, accepted, attempts, revision, original, _ = zip(
        *rows, strict=True
    )
    h = np.full(len(rows), _MESSAGE_SEED, dtype=np.uint64)
    for column in (uid, accepted, attempts, revision, seqs, due, original, publish):
        fold_column(h, unsigned(integers(column)))
    fold_column(h, bytes_hashes(payload))
    fold_column(h, text_hashes(source_id))
    fold_column(h, text_hashes(okey) if any(okey) else _EMPTY_64)
    fold_column(h, _optional_hashes(key) if any(k is not None for k in key) else _ABSENT_64)
    crcs: list[int] = h.view(np.int64).tolist()
    return crcs


def quarantine_crc(seq: int, row: Sequence[object]) -> int:
    """Checksum of one quarantine row (its own `Q_CRC` column, if there, is not looked at)."""
    h = fold(_QUARANTINE_SEED, seq)
    for value in row[:Q_CRC]:
        if isinstance(value, int):
            h = fold(fold(h, 1), value)
        elif isinstance(value, bytes):
            h = fold(fold(h, 2), bytes_hash(value))
        else:
            assert value is None or isinstance(value, str)
            h = fold(fold(h, 3), text_hash(value))
    return signed(h)


def _head(uid: int, accepted_ms: int, attempts: int, revision: int) -> int:
    return fold(fold(fold(fold(_MESSAGE_SEED, uid), accepted_ms), attempts), revision)


def _tail(
    h: int, seq: int, due: int, original: int, publish: int, payload: int, source_id: int, okey: str, key: str | None
) -> int:
    h = fold(fold(fold(fold(h, seq), due), original), publish)
    h = fold(fold(h, payload), source_id)
    h = fold(h, text_hash(okey) if okey else _EMPTY)
    return fold(h, ABSENT if key is None else text_hash(key))


def _optional_hashes(texts: Sequence[str | None]) -> Hashes:
    return np.array([text_hash(text) for text in texts], dtype=np.uint64)
