"""One memory table: everything that changed in the state between two boundaries.

The active generation is written by apply; at a boundary it is frozen as it is, and from then on only read, until it is
in the file. Rows are put here whole; a row of a lower layer that went is a tombstone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.model import Channel, Cluster, Node
from engine.state.checksum import Hashes
from engine.state.counters import CountersRow
from engine.state.rows import QuarantineRow, Row

SourceKey = tuple[str, int]
"""Source message id and publish time: with channel and subscription, what makes a duplicate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The remembered answer to an idempotency key."""

    ordinal: int
    """Log index of the request: the order in which outcomes are forgotten."""
    fingerprint: str
    expires_ms: int
    answer: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Where in the log a state is, with its counters: what `meta` holds."""

    index: int = 0
    term: int = 0
    next_seq: int = 1
    next_uid: int = 1
    last_stamp_ms: int = 0
    cluster_id: str = ""


@dataclass(slots=True)
class Recent:
    """Source messages of one channel, subscription and listening minute, in the order of their acceptance."""

    keys: dict[SourceKey, None] = field(default_factory=dict)
    hashes: list[Hashes] = field(default_factory=list)
    """Key hashes in the same order, in pieces."""


@dataclass(slots=True, kw_only=True)
class Generation:
    """The changes of one generation, by table."""

    first_seq: int
    """Seqs from here on were born in this generation: no lower layer knows them."""
    messages: dict[int, Row] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    quarantine: dict[int, QuarantineRow] = field(default_factory=dict)
    quarantine_gone: set[int] = field(default_factory=set)
    slots: dict[int, set[int]] = field(default_factory=dict)
    """By channel: the due slots that messages of this generation were put into."""
    seen: dict[tuple[int, str], dict[int, Recent]] = field(default_factory=dict)
    """By (channel uid, subscription), then by listening minute."""
    channels: dict[int, Channel | None] = field(default_factory=dict)
    """Created or changed; None = dropped."""
    touched: set[int] = field(default_factory=set)
    """Channels whose counters changed."""
    former_ids: list[str] = field(default_factory=list)
    nodes: dict[str, Node] = field(default_factory=dict)
    cluster: Cluster | None = None
    results: dict[str, Outcome | None] = field(default_factory=dict)
    """Remembered or, None, forgotten."""
    size_bytes: int = 0
    """An estimate of the memory that it takes."""
    mark: Mark | None = None
    """Set when it is frozen: the file will be exactly the state at this index."""
    counters: dict[int, CountersRow] = field(default_factory=dict)
    """Set when it is frozen: the counters of the touched channels at that index."""

    def forget_channel(self, uid: int) -> None:
        """Drop what is here of a channel that no longer exists."""
        for key in [key for key in self.seen if key[0] == uid]:
            del self.seen[key]
        self.slots.pop(uid, None)
        self.touched.discard(uid)
