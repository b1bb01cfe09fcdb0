"""The verbs on messages: accept, confirm, quarantine, discard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from itertools import repeat
from typing import Final, TypeVar

from engine.commands import (
    REASON_CHANNEL_CLOSING,
    REASON_CHANNEL_NOT_CLOSING,
    REASON_MALFORMED,
    REASON_NO_CHANNEL,
    Accept,
    Accepted,
    Answer,
    Confirm,
    Discard,
    Fault,
    Quarantine,
    Rejected,
    Removed,
)
from engine.config import StateLimits
from engine.model import Channel
from engine.state.checksum import Hashes, Integers, integers, text_hashes
from engine.state.counters import Counters
from engine.state.generation import Recent, SourceKey
from engine.state.layers import Gone, Layers
from engine.state.rows import (
    ACCEPTED_MS,
    ATTEMPTS,
    CHANNEL_UID,
    DUE_MS,
    KEY,
    ORDERING_KEY,
    PAYLOAD,
    PUBLISH_US,
    REVISION,
    SOURCE_ID,
    Columns,
    QuarantineRow,
    Row,
    accepted_crcs,
    quarantine_crc,
    slots_of,
)
from engine.state.seen import Seen

_T = TypeVar("_T")

_SEEN_BYTES: Final = 250
"""What one remembered source message costs until the next boundary."""

Pending = tuple[int, Sequence[int], Sequence[int]]
"""Channel uid, seqs and due times of newly pending messages: what observers are told."""


class Messages:
    """Messages of all channels; every method runs in the apply thread under the state's lock."""

    def __init__(self, limits: StateLimits, layers: Layers, seen: Seen, next_seq: int) -> None:
        self.next_seq = next_seq
        self.counters: dict[int, Counters] = {}
        self._limits = limits
        self._layers = layers
        self._seen = seen

    def touch(self, uid: int) -> Counters:
        """The counters of a channel that exists, about to change."""
        self._layers.active.touched.add(uid)
        return self.counters[uid]

    # ---- accept ------------------------------------------------------------------------------------------------------

    def accept(self, command: Accept, channel: Channel | None, stamp_ms: int) -> tuple[Answer, Pending | None]:
        """Store what is new: pending, quarantined or only remembered."""
        if channel is None:
            return no_channel(command.channel_uid), None
        if channel.closing is not None:
            return Rejected(REASON_CHANNEL_CLOSING, f"channel {channel.id!r} is being deleted"), None
        times = _times(command)
        if isinstance(times, str):
            return Rejected(REASON_MALFORMED, times), None
        due_column, publish_column = times
        uid, subscription = command.channel_uid, command.subscription
        counters = self.touch(uid)
        window_ms = max(channel.policy.dedupe_window_ms, self._limits.dedupe_window_min_ms)
        minute = counters.listen(stamp_ms, self._limits.listening_step_ms, self._limits.listening_minute_ms, window_ms)
        first_seq = self.next_seq
        if not command.source_ids:
            return Accepted(first_seq=first_seq, pending=0), None
        names = list(zip(command.source_ids, command.publish_us, strict=True))
        id_hashes = text_hashes(command.source_ids)
        hashes = self._seen.key_hash(uid, subscription, id_hashes, publish_column)
        known = self._seen.known(uid, subscription, names, hashes, counters.seen_from, self._layers.generations())
        unique = dict.fromkeys(names)
        if known or len(unique) != len(names) or command.faults or command.discards:
            return self._accept_mixed(command, stamp_ms, minute, names, times, id_hashes, hashes, known)
        self._remember(uid, subscription, minute, unique, hashes)
        columns = Columns(
            dues_ms=command.dues_ms,
            payloads=command.payloads,
            source_ids=command.source_ids,
            publish_us=command.publish_us,
            ordering_keys=_spread(command.ordering_keys, len(names), ""),
            keys=_spread(command.keys, len(names), None),
            id_hashes=id_hashes,
            due_column=due_column,
            publish_column=publish_column,
        )
        seqs = range(first_seq, first_seq + len(names))
        self._store_pending(uid, stamp_ms, seqs, columns)
        return Accepted(first_seq=first_seq, pending=len(names)), (uid, seqs, command.dues_ms)

    def _accept_mixed(
        self,
        command: Accept,
        stamp_ms: int,
        minute: int,
        names: list[SourceKey],
        times: tuple[Integers, Integers],
        id_hashes: Hashes,
        hashes: Hashes,
        known: set[SourceKey],
    ) -> tuple[Answer, Pending | None]:
        """An Accept in which not every message is a new pending one: looked at one by one."""
        uid, first_seq = command.channel_uid, self.next_seq
        fresh: dict[SourceKey, int] = {}
        pending: list[int] = []
        aside: list[int] = []
        for i, name in enumerate(names):
            if name in known or name in fresh:
                continue
            fresh[name] = i
            if i in command.faults:
                aside.append(i)
            elif i not in command.discards:
                pending.append(i)
        at = list(fresh.values())
        self._remember(uid, command.subscription, minute, dict.fromkeys(fresh), hashes[at])
        seqs = range(first_seq, first_seq + len(pending))
        if pending:
            columns = Columns(
                dues_ms=[command.dues_ms[i] for i in pending],
                payloads=[command.payloads[i] for i in pending],
                source_ids=[command.source_ids[i] for i in pending],
                publish_us=[command.publish_us[i] for i in pending],
                ordering_keys=[command.ordering_keys.get(i, "") for i in pending],
                keys=[command.keys.get(i) for i in pending],
                id_hashes=id_hashes[pending],
                due_column=times[0][pending],
                publish_column=times[1][pending],
            )
            self._store_pending(uid, stamp_ms, seqs, columns)
        for seq, i in enumerate(aside, first_seq + len(pending)):
            self._store_aside(uid, seq, stamp_ms, command.faults[i], _aside(command, i, stamp_ms))
        counters = self.counters[uid]
        counters.duplicates += len(names) - len(fresh)
        discarded = len(fresh) - len(pending) - len(aside)
        counters.discarded += discarded
        counters.accepted += len(aside)
        self.next_seq = first_seq + len(pending) + len(aside)
        answer = Accepted(
            first_seq=first_seq,
            pending=len(pending),
            duplicates=len(names) - len(fresh),
            quarantined=len(aside),
            discarded=discarded,
        )
        return answer, (uid, seqs, columns.dues_ms) if pending else None

    def _remember(self, uid: int, subscription: str, minute: int, names: dict[SourceKey, None], hashes: Hashes) -> None:
        if not names:
            return
        active = self._layers.active
        minutes = active.seen.setdefault((uid, subscription), {})
        recent = minutes.get(minute)
        if recent is None:
            recent = minutes[minute] = Recent()
        recent.keys.update(names)
        recent.hashes.append(hashes)
        active.size_bytes += len(names) * _SEEN_BYTES

    def _store_pending(self, uid: int, stamp_ms: int, seqs: range, columns: Columns) -> None:
        crcs = accepted_crcs(uid, stamp_ms, seqs.start, columns)
        rows: list[Row] = list(
            zip(
                repeat(uid),
                columns.dues_ms,
                columns.payloads,
                columns.source_ids,
                columns.publish_us,
                repeat("") if columns.ordering_keys is None else columns.ordering_keys,
                repeat(None) if columns.keys is None else columns.keys,
                repeat(stamp_ms),
                repeat(0),
                repeat(1),
                columns.dues_ms,
                crcs,
                strict=False,
            )
        )
        size_bytes = sum(map(len, columns.payloads))
        self._layers.put_messages(uid, seqs, rows, slots_of(columns.due_column), size_bytes)
        counters = self.counters[uid]
        counters.pending += len(rows)
        counters.pending_bytes += size_bytes
        counters.accepted += len(rows)
        counters.add_rows(sum(crcs))
        self.next_seq = seqs.stop

    def _store_aside(self, uid: int, seq: int, stamp_ms: int, fault: Fault, row: QuarantineRow) -> None:
        """Put a row into the quarantine with its reason, time and checksum filled in."""
        whole = (*row[:8], stamp_ms, fault.code, fault.reason, *row[11:13])
        crc = quarantine_crc(seq, whole)
        self._layers.put_quarantine(seq, (*whole, crc))
        counters = self.counters[uid]
        counters.quarantined += 1
        counters.quarantined_bytes += len(row[2])
        counters.add_rows(crc)

    # ---- remove ------------------------------------------------------------------------------------------------------

    def confirm(self, command: Confirm) -> Answer:
        """Published: gone. A seq that is not here, or at another revision, is counted as stale."""
        uid = command.channel_uid
        if uid not in self.counters:
            return no_channel(uid)
        counters = self.touch(uid)
        gone = self._layers.remove_messages(uid, command.seqs, command.revisions)
        self._uncount(counters, gone)
        counters.released += gone.rows
        counters.stale_confirms += gone.stale
        return Removed(removed=gone.rows, stale=gone.stale)

    def quarantine(self, command: Quarantine, stamp_ms: int) -> Answer:
        """Move pending messages to the quarantine."""
        uid = command.channel_uid
        if uid not in self.counters:
            return no_channel(uid)
        counters = self.touch(uid)
        seqs = list(dict.fromkeys(command.seqs))
        moved = [
            (seq, row)
            for seq, row in zip(seqs, self._layers.find(seqs), strict=True)
            if row is not None and row[CHANNEL_UID] == uid and row[REVISION] == command.revisions.get(seq, 1)
        ]
        gone = self._layers.remove_messages(uid, [seq for seq, _ in moved], None)
        self._uncount(counters, gone)
        for seq, row in moved:
            self._store_aside(uid, seq, stamp_ms, command.fault, _from_pending(row))
        return Removed(removed=gone.rows, stale=len(command.seqs) - gone.rows)

    def discard(self, command: Discard, channel: Channel | None) -> Answer:
        """Remove pending and quarantined messages of a channel that is being deleted."""
        if channel is None:
            return no_channel(command.channel_uid)
        if channel.closing is None:
            return Rejected(REASON_CHANNEL_NOT_CLOSING, f"channel {channel.id!r} is not being deleted")
        counters = self.touch(channel.uid)
        seqs = list(dict.fromkeys(command.seqs))
        pending = self._layers.remove_messages(channel.uid, seqs, None)
        self._uncount(counters, pending)
        aside = self._layers.remove_quarantine(channel.uid, seqs)
        counters.quarantined -= aside.rows
        counters.quarantined_bytes -= aside.size_bytes
        counters.remove_rows(aside.crcs)
        removed = pending.rows + aside.rows
        counters.discarded += removed
        return Removed(removed=removed, stale=len(command.seqs) - removed)

    @staticmethod
    def _uncount(counters: Counters, gone: Gone) -> None:
        counters.pending -= gone.rows
        counters.pending_bytes -= gone.size_bytes
        counters.remove_rows(gone.crcs)


def no_channel(uid: int) -> Rejected:
    """The answer for a uid that nothing has."""
    return Rejected(REASON_NO_CHANNEL, f"there is no channel with uid {uid}")


def _times(command: Accept) -> tuple[Integers, Integers] | str:
    """Due and publish times as columns; or what is wrong: what cannot be stored must be refused, not raise."""
    columns: tuple[Sized, ...] = (command.source_ids, command.publish_us, command.dues_ms, command.payloads)
    lengths = {len(column) for column in columns}
    if len(lengths) != 1:
        return f"columns of unequal length: {sorted(lengths)}"
    try:
        return integers(command.dues_ms), integers(command.publish_us)
    except OverflowError:
        return "a time does not fit 64 bits"


def _spread(values: Mapping[int, _T], n: int, default: _T) -> list[_T] | None:
    return [values.get(i, default) for i in range(n)] if values else None


def _aside(command: Accept, i: int, stamp_ms: int) -> QuarantineRow:
    return (
        command.channel_uid, command.dues_ms[i] or None, command.payloads[i], command.source_ids[i],
        command.publish_us[i], command.ordering_keys.get(i, ""), command.keys.get(i), stamp_ms, 0, "", "", 0, 1, 0,
    )  # fmt: skip


def _from_pending(row: Row) -> QuarantineRow:
    return (
        row[CHANNEL_UID], row[DUE_MS], row[PAYLOAD], row[SOURCE_ID], row[PUBLISH_US], row[ORDERING_KEY], row[KEY],
        row[ACCEPTED_MS], 0, "", "", row[ATTEMPTS], row[REVISION], 0,
    )  # fmt: skip
