"""Reading what is pending across all layers: a slot of the due index, the next slot, the seqs of a channel.

The order makes it complete: the memory tables are looked at first, then the file. A row that is pending all the while
is in memory at the first look, or in the file already and then until it goes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice

from engine.state import reads
from engine.state.checksum import Integers
from engine.state.layers import Layers
from engine.state.rows import CHANNEL_UID, DUE_MS, LOWEST_SLOT, Q_CHANNEL_UID, SLOT_BITS, Row
from engine.state.store import Store


@dataclass(frozen=True, slots=True)
class _Ahead:
    """Seqs of one channel read ahead, good as long as the file is at the same index."""

    uid: int
    version: int
    after_seq: int
    seqs: list[int]

    @property
    def last_seq(self) -> int:
        return self.seqs[-1] if self.seqs else self.after_seq


class Window:
    """Range reads for the releaser and for deletions; any thread."""

    def __init__(
        self, store: Store, layers: Layers, lock: AbstractContextManager[object], stored_index: Callable[[], int]
    ) -> None:
        self._store = store
        self._layers = layers
        self._lock = lock
        self._stored_index = stored_index
        self._ahead = _Ahead(0, -1, 0, [])

    def chunks(self, uid: int, slot: int) -> Iterator[tuple[Integers, Integers]]:
        """See `State.window`."""
        with self._lock:
            tables = [
                list(generation.messages.items())
                for generation in self._layers.generations()
                if slot in generation.slots.get(uid, ())
            ]
        for table in tables:
            yield from self._from_memory(table, uid, slot)
        after_seq = -1
        while True:
            with self._store.reader() as connection:
                found = reads.slot_keys(self._store, connection, uid, slot, after_seq)
            if found is None:
                return
            after_seq = int(found[1].max())
            yield found

    def _from_memory(self, table: list[tuple[int, Row]], uid: int, slot: int) -> Iterator[tuple[Integers, Integers]]:
        rows = iter(table)
        while part := list(islice(rows, self._store.limits.window_chunk)):
            pairs = [
                (row[DUE_MS], seq) for seq, row in part if row[DUE_MS] >> SLOT_BITS == slot and row[CHANNEL_UID] == uid
            ]
            if pairs:
                yield reads.as_arrays(pairs)

    def next_slot(self, uid: int, from_slot: int) -> int | None:
        """See `State.next_slot`."""
        with self._lock:
            slots = [s for g in self._layers.generations() for s in g.slots.get(uid, ()) if s >= from_slot]
        with self._store.reader() as connection:
            stored = reads.next_slot(self._store, connection, uid, from_slot)
        if stored is not None:
            slots.append(stored)
        return min(slots, default=None)

    def next_due(self, uid: int) -> int | None:
        """See `State.next_due`."""
        slot = self.next_slot(uid, LOWEST_SLOT)
        if slot is None:
            return None
        with self._lock:
            dues = [
                row[DUE_MS]
                for generation in self._layers.generations()
                if slot in generation.slots.get(uid, ())
                for row in generation.messages.values()
                if row[DUE_MS] >> SLOT_BITS == slot and row[CHANNEL_UID] == uid
            ]
        with self._store.reader() as connection:
            stored = reads.earliest_due(self._store, connection, uid, slot)
        return min([*dues, *([] if stored is None else [stored])], default=None)

    def seqs(self, uid: int, after_seq: int, limit: int) -> list[int]:
        """See `State.seqs`."""
        with self._lock:
            living = self._in_memory(uid, after_seq)
        stored: list[int] = []
        cursor = after_seq
        while len(stored) < limit:
            some = self._stored_seqs(uid, cursor, limit)
            if not some:
                break
            cursor = some[-1]
            with self._lock:
                stored += [seq for seq in some if self._not_gone(seq)]
        return sorted({*living, *stored})[:limit]

    def _in_memory(self, uid: int, after_seq: int) -> set[int]:
        """Seqs of a channel that are alive in the memory tables.

        A generation without slots of the channel holds no message of it, so that deleting a channel in slices does
        not walk through the traffic of the others each time.
        """
        active, frozen = self._layers.active, self._layers.frozen
        found: set[int] = set()
        if uid in active.slots:
            found = {seq for seq, row in active.messages.items() if row[CHANNEL_UID] == uid}
        found |= {seq for seq, aside in active.quarantine.items() if aside[Q_CHANNEL_UID] == uid}
        if frozen is not None:
            if uid in frozen.slots:
                found |= {s for s, row in frozen.messages.items() if row[CHANNEL_UID] == uid and s not in active.gone}
            found |= {
                s
                for s, aside in frozen.quarantine.items()
                if aside[Q_CHANNEL_UID] == uid and s not in active.quarantine_gone
            }
        return {seq for seq in found if seq > after_seq}

    def _not_gone(self, seq: int) -> bool:
        return all(seq not in g.gone and seq not in g.quarantine_gone for g in self._layers.generations())

    def _stored_seqs(self, uid: int, after_seq: int, limit: int) -> list[int]:
        """Up to `limit` stored seqs behind `after_seq`, from what was read ahead in the same file."""
        version = self._stored_index()
        ahead = self._ahead
        if ahead.uid != uid or ahead.version != version or not ahead.after_seq <= after_seq < ahead.last_seq:
            with self._store.reader() as connection:
                limit_ahead = max(limit, self._store.limits.seqs_cached)
                found = reads.channel_seqs(self._store, connection, uid, after_seq, limit_ahead)
            ahead = self._ahead = _Ahead(uid, version, after_seq, found)
        start = bisect_right(ahead.seqs, after_seq)
        return ahead.seqs[start : start + limit]
