"""Writing one frozen generation: one transaction that makes the file exactly the state at its index.

The work is a generator that stops after every statement, so that its driver can let other threads run (and tests can
stop at any point). Statements carry many rows, because the sqlite3 module gives up the GIL once for each.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import msgspec
import numpy as np

from engine.config import StateLimits
from engine.model import Channel
from engine.state import seen_part
from engine.state.checksum import record_crc
from engine.state.counters import CountersRow
from engine.state.generation import Generation, Mark, Outcome, SourceKey
from engine.state.rows import PAYLOAD, SLOT_BITS, QuarantineRow, Row
from engine.state.schema import FORMAT
from engine.state.sums import Sums

_ENCODER: Final = msgspec.msgpack.Encoder()
_MESSAGE_COLUMNS: Final = 15
_QUARANTINE_COLUMNS: Final = 16
_VARIABLES_MAX: Final = 30_000
"""SQLite's own bound of parameters in one statement is 32,766."""


class Boundary:
    """One transaction under way. `steps` is driven to its end, else `undo` takes everything back."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        frozen: Generation,
        limits: StateLimits,
        sums: Sums,
        next_part: dict[tuple[int, int], int],
    ) -> None:
        self._connection = connection
        self._frozen = frozen
        self._limits = limits
        self._sums = sums
        self._next_part = next_part
        self.parts: dict[tuple[int, int], int] = {}
        """Numbers of the next rows of `seen`, to be taken over once committed."""

    def steps(self) -> Iterator[None]:
        """Write it all, and commit with a sync at the end."""
        mark = self._frozen.mark
        assert mark is not None, "only a frozen generation is written"
        self._connection.execute("BEGIN IMMEDIATE")
        yield
        yield from self._delete("messages", self._frozen.gone)
        yield from self._delete("quarantine", self._frozen.quarantine_gone)
        yield from self._messages()
        yield from self._quarantine()
        yield from self._seen()
        yield from self._channels()
        yield from self._few()
        yield from self._results()
        self._meta(mark)
        yield
        self._connection.execute("COMMIT")

    def undo(self) -> None:
        """Roll back what was written so far."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    # ---- large tables ------------------------------------------------------------------------------------------------

    def _delete(self, table: str, seqs: set[int]) -> Iterator[None]:
        ordered = sorted(seqs)
        yield
        size = self._limits.read_chunk
        for start in range(0, len(ordered), size):
            part = ordered[start : start + size]
            if part[-1] - part[0] + 1 == len(part):
                self._connection.execute(f"DELETE FROM {table} WHERE seq BETWEEN ? AND ?", (part[0], part[-1]))  # noqa: S608
            else:
                self._connection.execute(f"DELETE FROM {table} WHERE seq IN ({','.join('?' * len(part))})", part)  # noqa: S608
            yield

    def _messages(self) -> Iterator[None]:
        ordered = sorted(self._frozen.messages)
        yield
        rows = self._frozen.messages
        for seqs in self._statements(ordered, rows, PAYLOAD, _MESSAGE_COLUMNS):
            parameters: list[Any] = []
            for seq in seqs:
                row: Row = rows[seq]
                uid, due, payload, source_id, publish, okey, key, accepted, attempts, revision, original, crc = row
                parameters += (
                    seq, uid, due >> SLOT_BITS, due, original, source_id, publish, okey, key, len(payload), accepted,
                    attempts, revision, crc, payload,
                )  # fmt: skip
            self._insert("messages", _MESSAGE_COLUMNS, len(seqs), parameters)
            yield

    def _quarantine(self) -> Iterator[None]:
        rows = self._frozen.quarantine
        for seqs in self._statements(sorted(rows), rows, PAYLOAD, _QUARANTINE_COLUMNS):
            parameters: list[Any] = []
            for seq in seqs:
                row: QuarantineRow = rows[seq]
                (uid, due, payload, source_id, publish, okey, key, accepted, set_aside, code, reason, attempts,
                 revision, crc) = row  # fmt: skip
                parameters += (
                    seq, uid, due, source_id, publish, okey, key, len(payload), accepted, set_aside, code, reason,
                    attempts, revision, crc, payload,
                )  # fmt: skip
            self._insert("quarantine", _QUARANTINE_COLUMNS, len(seqs), parameters)
            yield

    def _statements(self, ordered: Sequence[int], rows: Any, payload: int, columns: int) -> Iterator[list[int]]:
        """Seqs of one INSERT each: bounded in rows and in bytes."""
        rows_max = min(self._limits.transaction_rows, _VARIABLES_MAX // columns)
        taken: list[int] = []
        size_bytes = 0
        for seq in ordered:
            taken.append(seq)
            size_bytes += len(rows[seq][payload])
            if len(taken) >= rows_max or size_bytes >= self._limits.statement_bytes:
                yield taken
                taken, size_bytes = [], 0
        if taken:
            yield taken

    def _insert(self, table: str, columns: int, rows: int, parameters: list[Any]) -> None:
        one = f"({','.join('?' * columns)})"
        self._connection.execute(f"INSERT OR REPLACE INTO {table} VALUES {','.join([one] * rows)}", parameters)  # noqa: S608

    def _seen(self) -> Iterator[None]:
        for uid, row in self._frozen.counters.items():
            self._connection.execute("DELETE FROM seen WHERE channel_uid = ? AND minute < ?", (uid, row.seen_from))
            yield
        for (uid, subscription), minutes in self._frozen.seen.items():
            for minute, recent in minutes.items():
                hashes = np.concatenate(recent.hashes)
                names = iter(recent.keys)
                for start in range(0, len(hashes), self._limits.seen_part_ids):
                    some: list[SourceKey] = list(islice(names, self._limits.seen_part_ids))
                    self._seen_part(uid, minute, subscription, some, hashes[start : start + len(some)])
                    yield

    def _seen_part(
        self, uid: int, minute: int, subscription: str, names: list[SourceKey], hashes: np.ndarray[Any, Any]
    ) -> None:
        number = self.parts.get((uid, minute), self._next_part.get((uid, minute), 0))
        self.parts[uid, minute] = number + 1
        blob, ids = seen_part.pack(names, hashes)
        crc = seen_part.part_crc(uid, minute, number, subscription, len(names), blob)
        self._connection.execute(
            "INSERT INTO seen VALUES (?,?,?,?,?,?,?,?)", (uid, minute, number, subscription, len(names), crc, blob, ids)
        )

    # ---- small tables ------------------------------------------------------------------------------------------------

    def _channels(self) -> Iterator[None]:
        for uid, channel in self._frozen.channels.items():
            if channel is None:
                for table in ("channels", "channel_stats"):
                    column = "uid" if table == "channels" else "channel_uid"
                    self._connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (uid,))  # noqa: S608
                    self._sums.remove(table, uid)
                self._connection.execute("DELETE FROM seen WHERE channel_uid = ?", (uid,))
                yield
        for uid, channel in self._frozen.channels.items():
            if channel is not None:
                self._replace("channels", uid, channel_record(channel))
                yield
        for uid, counters in self._frozen.counters.items():
            self._replace("channel_stats", uid, counters_record(uid, counters))
            yield

    def _few(self) -> Iterator[None]:
        frozen = self._frozen
        for channel_id in frozen.former_ids:
            self._replace("former_ids", channel_id, (channel_id,))
        for name, node in frozen.nodes.items():
            self._replace("nodes", name, (name, node.addr, node.api_addr, node.version))
        if frozen.cluster is not None:
            self._replace("cluster", 1, (1, _ENCODER.encode(frozen.cluster)))
        yield

    def _results(self) -> Iterator[None]:
        for i, (request_id, outcome) in enumerate(self._frozen.results.items()):
            if outcome is None:
                self._connection.execute("DELETE FROM results WHERE request_id = ?", (request_id,))
                self._sums.remove("results", request_id)
            else:
                self._replace("results", request_id, outcome_record(request_id, outcome))
            if i % 100 == 0:
                yield

    def _replace(self, table: str, key: int | str, columns: tuple[Any, ...]) -> None:
        crc = record_crc(table, *columns)
        self._insert(table, len(columns) + 1, 1, [*columns, crc])
        self._sums.put(table, key, crc)

    def _meta(self, mark: Mark) -> None:
        values = meta_values(mark, self._sums.total)
        self._connection.execute("DELETE FROM meta")
        self._insert("meta", 2, len(values), [part for item in values.items() for part in item])


def channel_record(channel: Channel) -> tuple[Any, ...]:
    """Columns of `channels` before the checksum."""
    source, destination = channel.source.config, channel.destination.config
    return (
        channel.uid, channel.id, channel.name, source.project_id, source.subscription_id, destination.project_id,
        destination.topic_id, None if channel.closing is None else str(channel.closing), channel.revision,
        channel.created_ms, channel.updated_ms, _ENCODER.encode(channel),
    )  # fmt: skip


def counters_record(uid: int, row: CountersRow) -> tuple[Any, ...]:
    """Columns of `channel_stats` before the checksum: the statistics, and the rest as `body`."""
    return (uid, *row[:9], _ENCODER.encode(row[9:]))


def outcome_record(request_id: str, outcome: Outcome) -> tuple[Any, ...]:
    """Columns of `results` before the checksum."""
    return (request_id, outcome.ordinal, outcome.fingerprint, outcome.expires_ms, outcome.answer)


def meta_values(mark: Mark, tables: int) -> dict[str, Any]:
    """All of `meta`; `crc` covers the rest, and `tables` ties it to the small tables of the same boundary."""
    values = {
        "format": FORMAT,
        "cluster_id": mark.cluster_id,
        "applied_index": mark.index,
        "applied_term": mark.term,
        "next_seq": mark.next_seq,
        "next_uid": mark.next_uid,
        "last_stamp_ms": mark.last_stamp_ms,
        "tables": tables,
    }
    return values | {"crc": record_crc("meta", *sorted(values.items()))}


def drain(rows: dict[Any, Any], slice_rows: int) -> Iterable[None]:
    """Empty a large dict in slices: dropping 200,000 rows at once holds the GIL for 30 ms."""
    while rows:
        for _ in range(min(slice_rows, len(rows))):
            rows.popitem()
        yield
