"""Queries over the two large tables, each shaped so that SQLite returns one row (see `store`)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from engine.errors import DamagedError
from engine.state.checksum import Integers, integers
from engine.state.rows import CRC, QuarantineRow, Row, message_crcs, quarantine_crc
from engine.state.store import Store

_INTEGERS: Final = msgspec.json.Decoder(list[int])
_ROWS: Final = msgspec.json.Decoder(list[tuple[int, int, int, int, str, int, str, str | None, int, int, int, int, int]])
_QUARANTINE_ROWS: Final = msgspec.json.Decoder(
    list[tuple[int, int, int | None, str, int, str, str | None, int, int, int, str, str, int, int, int]]
)


class Head(NamedTuple):
    """What apply needs of a stored row that leaves."""

    channel_uid: int
    revision: int
    size: int
    crc: int


def message_heads(store: Store, connection: sqlite3.Connection, seqs: Sequence[int]) -> dict[int, Head]:
    """Heads of the pending rows among `seqs`."""
    return _heads(store, connection, "messages", seqs)


def quarantine_heads(store: Store, connection: sqlite3.Connection, seqs: Sequence[int]) -> dict[int, Head]:
    """Heads of the quarantined rows among `seqs`."""
    return _heads(store, connection, "quarantine", seqs)


def _heads(store: Store, connection: sqlite3.Connection, table: str, seqs: Sequence[int]) -> dict[int, Head]:
    heads: dict[int, Head] = {}
    for where, parameters in _slices(store, seqs):
        columns = store.one(
            connection,
            "SELECT group_concat(seq), group_concat(channel_uid), group_concat(revision), group_concat(size),"  # noqa: S608
            f" group_concat(crc) FROM {table} WHERE {where}",
            parameters,
        )
        if columns[0] is not None:
            found, *rest = (_INTEGERS.decode(f"[{column}]") for column in columns)
            heads.update(zip(found, map(Head._make, zip(*rest, strict=True)), strict=True))
    return heads


def fitting(store: Store, connection: sqlite3.Connection, seqs: Sequence[int], bytes_max: int) -> Sequence[int]:
    """The first of `seqs`, at least one, whose payloads are at most `bytes_max` together.

    Sizes lie in front of the payloads: their pages are those that reading the rows touches first.
    """
    total = 0
    for start in range(0, len(seqs), store.limits.read_chunk):
        part = seqs[start : start + store.limits.read_chunk]
        for where, parameters in _slices(store, part):
            (size,) = store.one(connection, f"SELECT total(size) FROM messages WHERE {where}", parameters)  # noqa: S608
            if total + size > bytes_max:
                return seqs[: start + _fitting_of(store, connection, part, bytes_max - total) or 1]
            total += int(size)
    return seqs


def _fitting_of(store: Store, connection: sqlite3.Connection, part: Sequence[int], bytes_max: int) -> int:
    """How many of the first rows of one chunk have at most `bytes_max` of payload."""
    heads = message_heads(store, connection, part)
    for position, seq in enumerate(part):
        bytes_max -= heads[seq].size if seq in heads else 0
        if bytes_max < 0:
            return position
    return len(part)


def messages(store: Store, connection: sqlite3.Connection, seqs: Sequence[int]) -> dict[int, Row]:
    """Pending rows among `seqs`; raises DamagedError for a row that does not match its checksum."""
    rows: dict[int, Row] = {}
    for where, parameters in _slices(store, seqs):
        listed, payloads = store.one(
            connection,
            "SELECT json_group_array(json_array(seq, channel_uid, due_ms, original_due_ms, source_id, publish_us,"  # noqa: S608
            " ordering_key, key, size, accepted_ms, attempts, revision, crc)),"
            f" CAST(group_concat(payload, '') AS BLOB) FROM messages WHERE {where}",
            parameters,
        )
        at = 0
        try:
            decoded = _ROWS.decode(listed)
        except msgspec.MsgspecError as error:
            raise _damaged(store, "messages", seqs, error) from error
        for seq, uid, due, original, source_id, publish, okey, key, size, accepted, attempts, revision, crc in decoded:
            payload = payloads[at : at + size]
            at += size
            rows[seq] = (
                uid, due, payload, source_id, publish, okey, key, accepted, attempts, revision, original, crc,
            )  # fmt: skip
    for seq, row, crc in zip(rows, rows.values(), message_crcs(list(rows), list(rows.values())), strict=True):
        if crc != row[CRC]:
            raise _damaged(store, "messages", [seq], "its checksum does not match")
    return rows


def quarantined(store: Store, connection: sqlite3.Connection, seqs: Sequence[int]) -> dict[int, QuarantineRow]:
    """Quarantined rows among `seqs`; raises DamagedError for a row that does not match its checksum."""
    rows: dict[int, QuarantineRow] = {}
    for where, parameters in _slices(store, seqs):
        listed, payloads = store.one(
            connection,
            "SELECT json_group_array(json_array(seq, channel_uid, due_ms, source_id, publish_us, ordering_key, key,"  # noqa: S608
            " size, accepted_ms, quarantined_ms, code, reason, attempts, revision, crc)),"
            f" CAST(group_concat(payload, '') AS BLOB) FROM quarantine WHERE {where}",
            parameters,
        )
        at = 0
        try:
            decoded = _QUARANTINE_ROWS.decode(listed)
        except msgspec.MsgspecError as error:
            raise _damaged(store, "quarantine", seqs, error) from error
        for (seq, uid, due, source_id, publish, okey, key, size,
             accepted, set_aside, code, reason, attempts, revision, crc) in decoded:  # fmt: skip
            row: QuarantineRow = (
                uid, due, payloads[at : at + size], source_id, publish, okey, key,
                accepted, set_aside, code, reason, attempts, revision, crc,
            )  # fmt: skip
            at += size
            if quarantine_crc(seq, row) != crc:
                raise _damaged(store, "quarantine", [seq], "its checksum does not match")
            rows[seq] = row
    return rows


def slot_keys(
    store: Store, connection: sqlite3.Connection, uid: int, slot: int, after_seq: int
) -> tuple[Integers, Integers] | None:
    """Up to one chunk of (dues, seqs) of a slot behind `after_seq`, ascending by seq; None at the end."""
    dues, seqs = store.one(
        connection,
        "SELECT group_concat(due_ms), group_concat(seq) FROM (SELECT due_ms, seq FROM messages"
        " INDEXED BY messages_due WHERE channel_uid = ? AND slot = ? AND seq > ? ORDER BY seq LIMIT ?)",
        (uid, slot, after_seq, store.limits.window_chunk),
    )
    if seqs is None:
        return None
    return integers(_INTEGERS.decode(f"[{dues}]")), integers(_INTEGERS.decode(f"[{seqs}]"))


def earliest_due(store: Store, connection: sqlite3.Connection, uid: int, slot: int) -> int | None:
    """The earliest stored due time of a slot; one walk over its part of the index, inside SQLite."""
    found = store.one(
        connection,
        "SELECT min(due_ms) FROM messages INDEXED BY messages_due WHERE channel_uid = ? AND slot = ?",
        (uid, slot),
    )
    return None if found is None or found[0] is None else int(found[0])


def next_slot(store: Store, connection: sqlite3.Connection, uid: int, from_slot: int) -> int | None:
    """The lowest stored slot from `from_slot` on."""
    found = store.one(
        connection,
        "SELECT slot FROM messages INDEXED BY messages_due WHERE channel_uid = ? AND slot >= ? ORDER BY slot LIMIT 1",
        (uid, from_slot),
    )
    return None if found is None else int(found[0])


def channel_seqs(store: Store, connection: sqlite3.Connection, uid: int, after_seq: int, limit: int) -> list[int]:
    """The first `limit` stored seqs of a channel behind `after_seq`, pending and quarantined, ascending.

    It walks the channel's part of the due index, which is in the order of slots: the cost is that of the channel's
    pending rows whatever the limit, so callers read far ahead.
    """
    listed = store.one(
        connection,
        "SELECT group_concat(seq) FROM (SELECT seq FROM ("
        " SELECT * FROM (SELECT seq FROM messages INDEXED BY messages_due"
        " WHERE channel_uid = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3)"
        " UNION ALL SELECT * FROM (SELECT seq FROM quarantine INDEXED BY quarantine_channel"
        " WHERE channel_uid = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3)) ORDER BY seq LIMIT ?3)",
        (uid, after_seq, limit),
    )
    found: list[int] = [] if listed[0] is None else _INTEGERS.decode(f"[{listed[0]}]")
    found.sort()
    return found


def highest_seq(store: Store, connection: sqlite3.Connection) -> int:
    """The highest seq in either table, 0 if both are empty."""
    found = store.one(
        connection,
        "SELECT max(coalesce((SELECT max(seq) FROM messages), 0), coalesce((SELECT max(seq) FROM quarantine), 0))",
    )
    return int(found[0])


def _slices(store: Store, seqs: Sequence[int]) -> Iterator[tuple[str, list[int]]]:
    """WHERE clauses of at most one chunk each; a range without gaps is read as one."""
    chunk = store.limits.read_chunk
    for start in range(0, len(seqs), chunk):
        part = list(seqs[start : start + chunk])
        low, high = min(part), max(part)
        if high - low + 1 == len(set(part)):
            yield "seq BETWEEN ? AND ?", [low, high]
        else:
            size = next(size for size in (1, 8, 64, 512, len(part)) if size >= len(part))
            yield f"seq IN ({','.join('?' * size)})", part + part[-1:] * (size - len(part))


def _damaged(store: Store, table: str, seqs: Sequence[int], why: object) -> DamagedError:
    names = ", ".join(map(str, seqs[:3])) + (" …" if len(seqs) > 3 else "")
    return DamagedError(
        f"{store.path}: the row of seq {names} in {table} is damaged ({why}); the file is kept: this node must"
        " rebuild its state from the other nodes, or from a back-up"
    )


def as_arrays(pairs: Sequence[tuple[int, int]]) -> tuple[Integers, Integers]:
    """(due, seq) pairs as two columns."""
    if not pairs:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    table = np.array(pairs, dtype=np.int64)
    return table[:, 0].copy(), table[:, 1].copy()
