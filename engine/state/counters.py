"""What apply counts per channel: the statistics, the listening time, and the sum of row checksums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from engine.model import Channel, ChannelStats
from engine.state.checksum import MASK, bytes_hash, fold

_SEED: Final = 0x636F756E74
_ENCODER: Final = msgspec.msgpack.Encoder()


class CountersRow(NamedTuple):
    """The counters of one channel at one index, as they are stored."""

    pending: int
    pending_bytes: int
    quarantined: int
    quarantined_bytes: int
    accepted: int
    released: int
    duplicates: int
    discarded: int
    stale_confirms: int
    listened_ms: int
    accept_stamp_ms: int
    seen_from: int
    row_sum: int


@dataclass(slots=True, kw_only=True)
class Counters:
    """Mutable, changed by the apply thread under the state's lock."""

    pending: int = 0
    pending_bytes: int = 0
    quarantined: int = 0
    quarantined_bytes: int = 0
    accepted: int = 0
    released: int = 0
    duplicates: int = 0
    discarded: int = 0
    stale_confirms: int = 0
    listened_ms: int = 0
    """Listening time: grows with each Accept by the stamps' distance, at most one step."""
    accept_stamp_ms: int = 0
    """Stamp of the last Accept; 0 = none yet."""
    seen_from: int = 0
    """First listening minute whose source messages are still known; never goes back."""
    row_sum: int = 0
    """Sum of the checksums of all rows of this channel, modulo 2^64: the order of the rows does not matter."""

    def listen(self, stamp_ms: int, step_ms: int, minute_ms: int, window_ms: int) -> int:
        """Advance the listening time to this Accept, forget what fell out of the window, return the minute."""
        if self.accept_stamp_ms:
            self.listened_ms += min(max(stamp_ms - self.accept_stamp_ms, 0), step_ms)
        self.accept_stamp_ms = stamp_ms
        self.seen_from = max(self.seen_from, (self.listened_ms - window_ms) // minute_ms)
        return self.listened_ms // minute_ms

    def add_rows(self, crcs: int) -> None:
        """Rows whose checksums have this sum were stored."""
        self.row_sum = (self.row_sum + crcs) & MASK

    def remove_rows(self, crcs: int) -> None:
        """Rows whose checksums have this sum went."""
        self.row_sum = (self.row_sum - crcs) & MASK

    def stats(self) -> ChannelStats:
        """The public part."""
        return ChannelStats(
            pending=self.pending,
            pending_bytes=self.pending_bytes,
            quarantined=self.quarantined,
            quarantined_bytes=self.quarantined_bytes,
            accepted=self.accepted,
            released=self.released,
            duplicates=self.duplicates,
            discarded=self.discarded,
            stale_confirms=self.stale_confirms,
        )

    def row(self) -> CountersRow:
        """A frozen copy."""
        return CountersRow(
            self.pending,
            self.pending_bytes,
            self.quarantined,
            self.quarantined_bytes,
            self.accepted,
            self.released,
            self.duplicates,
            self.discarded,
            self.stale_confirms,
            self.listened_ms,
            self.accept_stamp_ms,
            self.seen_from,
            self.row_sum,
        )

    def digest(self, channel: Channel) -> int:
        """Checksum over the channel, its counters and, by their sum, all its rows."""
        h = fold(_SEED, bytes_hash(_ENCODER.encode(channel)))
        for value in self.row():
            h = fold(h, value)
        return h


def restore(row: CountersRow) -> Counters:
    """Counters as they were stored."""
    return Counters(**row._asdict())
