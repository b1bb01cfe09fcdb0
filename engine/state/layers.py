"""The two memory tables over the file: where a row is, and taking it away.

Lookups go active → frozen → file. A row that leaves the active table and may be in a lower layer leaves a tombstone; a
frozen table is never changed, because it is what the file will be. All methods run under the state's lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import itemgetter
from typing import Final

from engine.state import reads
from engine.state.generation import Generation
from engine.state.reads import Head
from engine.state.rows import (
    CHANNEL_UID,
    CRC,
    PAYLOAD,
    Q_CHANNEL_UID,
    Q_CRC,
    Q_PAYLOAD,
    Q_REVISION,
    REVISION,
    ROW_BYTES,
    QuarantineRow,
    Row,
)
from engine.state.store import Store

_TOMBSTONE_BYTES: Final = 64

_uid_of: Final = itemgetter(CHANNEL_UID)
_revision_of: Final = itemgetter(REVISION)
_payload_of: Final = itemgetter(PAYLOAD)
_crc_of: Final = itemgetter(CRC)


@dataclass(slots=True)
class Gone:
    """What was taken away: how many rows, their payload bytes, the sum of their checksums; and what was not there."""

    rows: int = 0
    size_bytes: int = 0
    crcs: int = 0
    stale: int = 0

    def add(self, head: Head) -> None:
        """Count one row."""
        self.rows += 1
        self.size_bytes += head.size
        self.crcs += head.crc


class Layers:
    """Active and frozen generation over the store."""

    def __init__(self, store: Store, next_seq: int) -> None:
        self.store = store
        self.active = Generation(first_seq=next_seq)
        self.frozen: Generation | None = None

    def generations(self) -> Iterator[Generation]:
        """Active first."""
        yield self.active
        if self.frozen is not None:
            yield self.frozen

    # ---- put ---------------------------------------------------------------------------------------------------------

    def put_messages(
        self, uid: int, seqs: Sequence[int], rows: Sequence[Row], slots: set[int], size_bytes: int
    ) -> None:
        """New rows, or newer versions of rows; a row goes before a tombstone of the same seq."""
        active = self.active
        active.messages.update(zip(seqs, rows, strict=True))
        active.slots.setdefault(uid, set()).update(slots)
        active.size_bytes += size_bytes + len(rows) * ROW_BYTES

    def put_quarantine(self, seq: int, row: QuarantineRow) -> None:
        """A new row of the quarantine."""
        self.active.quarantine[seq] = row
        self.active.size_bytes += len(row[Q_PAYLOAD]) + ROW_BYTES

    # ---- take away ---------------------------------------------------------------------------------------------------

    def remove_messages(self, uid: int, seqs: Sequence[int], revisions: Mapping[int, int] | None) -> Gone:
        """Take pending rows of a channel away.

        `revisions` names those that are not 1; None = any. The usual case, all in the active table at revision 1,
        stays in C: 0.3 µs a row.
        """
        active = self.active
        rows = list(map(active.messages.pop, seqs, repeat(None)))
        if not revisions and rows and all(rows):
            whole: list[Row] = rows  # type: ignore[assignment]
            if set(map(_uid_of, whole)) == {uid} and (revisions is None or set(map(_revision_of, whole)) == {1}):
                gone = Gone(len(whole), sum(map(len, map(_payload_of, whole))), sum(map(_crc_of, whole)))
                if min(seqs) < active.first_seq:
                    active.gone.update(seq for seq in seqs if seq < active.first_seq)
                active.size_bytes -= gone.size_bytes + gone.rows * ROW_BYTES
                return gone
        return self._remove_singly(uid, seqs, rows, revisions)

    def _remove_singly(
        self, uid: int, seqs: Sequence[int], popped: Sequence[Row | None], revisions: Mapping[int, int] | None
    ) -> Gone:
        active = self.active
        gone = Gone()
        below: list[int] = []
        for seq, row in zip(seqs, popped, strict=True):
            if row is None:
                below.append(seq)
            elif row[CHANNEL_UID] != uid or (revisions is not None and row[REVISION] != revisions.get(seq, 1)):
                active.messages[seq] = row
                gone.stale += 1
            else:
                gone.add(_head(row))
                active.size_bytes -= len(row[PAYLOAD]) + ROW_BYTES
                if seq < active.first_seq:
                    active.gone.add(seq)
        heads = self._heads_below(below)
        for seq in below:
            head = heads.pop(seq, None)
            if head is None or head.channel_uid != uid:
                gone.stale += 1
            elif revisions is not None and head.revision != revisions.get(seq, 1):
                gone.stale += 1
                heads[seq] = head
            else:
                gone.add(head)
                active.gone.add(seq)
                active.size_bytes += _TOMBSTONE_BYTES
        return gone

    def _heads_below(self, seqs: Sequence[int]) -> dict[int, Head]:
        """Heads of rows that are alive, but not in the active table."""
        active, frozen = self.active, self.frozen
        heads: dict[int, Head] = {}
        stored: list[int] = []
        for seq in seqs:
            if seq in active.gone or not 0 < seq < active.first_seq:
                continue
            if frozen is not None:
                row = frozen.messages.get(seq)
                if row is not None:
                    heads[seq] = _head(row)
                    continue
                if seq in frozen.gone or seq >= frozen.first_seq:
                    continue
            stored.append(seq)
        if stored:
            heads.update(reads.message_heads(self.store, self.store.apply_reader, stored))
        return heads

    def remove_quarantine(self, uid: int, seqs: Sequence[int]) -> Gone:
        """Take quarantined rows of a channel away."""
        active, frozen = self.active, self.frozen
        gone = Gone()
        heads: dict[int, Head] = {}
        stored: list[int] = []
        for seq in seqs:
            row = active.quarantine.get(seq)
            if row is None and seq not in active.quarantine_gone and frozen is not None:
                row = frozen.quarantine.get(seq)
            if row is not None:
                heads[seq] = Head(row[Q_CHANNEL_UID], row[Q_REVISION], len(row[Q_PAYLOAD]), row[Q_CRC])
            elif self._may_be_stored(seq):
                stored.append(seq)
        if stored:
            heads.update(reads.quarantine_heads(self.store, self.store.apply_reader, stored))
        for seq in seqs:
            head = heads.pop(seq, None)
            if head is None or head.channel_uid != uid:
                gone.stale += 1
                continue
            gone.add(head)
            if active.quarantine.pop(seq, None) is not None:
                active.size_bytes -= head.size + ROW_BYTES
            if seq < active.first_seq:
                active.quarantine_gone.add(seq)
                active.size_bytes += _TOMBSTONE_BYTES
        return gone

    def _may_be_stored(self, seq: int) -> bool:
        return 0 < seq < self.active.first_seq and all(seq not in g.quarantine_gone for g in self.generations())

    # ---- look up -----------------------------------------------------------------------------------------------------

    def in_memory(self, seqs: Sequence[int]) -> tuple[list[Row | None], list[int]]:
        """Rows by position, None where there is none; and the seqs among these that the file has to be asked for."""
        rows: list[Row | None] = list(map(self.active.messages.get, seqs))
        if all(rows):
            return rows, []
        active, frozen = self.active, self.frozen
        stored: list[int] = []
        for i, seq in enumerate(seqs):
            if rows[i] is not None or seq in active.gone or not 0 < seq < active.first_seq:
                continue
            if frozen is not None:
                rows[i] = frozen.messages.get(seq)
                if rows[i] is not None or seq in frozen.gone or seq >= frozen.first_seq:
                    continue
            stored.append(seq)
        return rows, stored

    def find(self, seqs: Sequence[int]) -> list[Row | None]:
        """Pending rows by position, from all layers; raises DamagedError for a damaged row."""
        rows, stored = self.in_memory(seqs)
        if stored:
            found = reads.messages(self.store, self.store.apply_reader, stored)
            rows = [found.get(seq) if row is None else row for seq, row in zip(seqs, rows, strict=True)]
        return rows


def _head(row: Row) -> Head:
    return Head(row[CHANNEL_UID], row[REVISION], len(row[PAYLOAD]), row[CRC])
