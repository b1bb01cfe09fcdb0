"""The release side of one channel as plain data: what is due, what is in flight, what waits for another attempt.

A lane does no I/O and takes no lock; the releaser owns it and holds its lock around every call. A message is in one
place at a time: in the timeline, in a batch (to be sent, being sent, or waiting for its next attempt), parked behind
its ordering key, or published and being confirmed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from engine.config import FlowLimits
from engine.histogram import RecentPercentiles
from engine.model import Channel
from engine.pubsub.errors import Failure
from engine.pubsub.sink import Sink
from engine.state.rows import SLOT_BITS, Row
from engine.state.timeline import Timeline

SEQ_BITS: Final = 44
SEQ_MASK: Final = (1 << SEQ_BITS) - 1


@dataclass(slots=True)
class Batch:
    """Messages that go into one Publish request; a batch with an ordering key holds that key until it is done."""

    seqs: list[int]
    ordering_key: str = ""
    attempts: int = 0
    taken: bool = False
    """Fresh from the timeline: not yet read and sorted by ordering key."""
    due_at_s: float = 0.0
    """Not before this time on the elapsed clock: back-off."""
    rows: list[Row] | None = None
    """The messages of `seqs`, while they are at hand: read once between taking and sending."""
    revisions: dict[int, int] = field(default_factory=dict)
    """seq → revision that was sent, where it is not 1."""


class Lane:
    """One channel's messages on their way out."""

    def __init__(self, channel: Channel, sink: Sink, bound: int) -> None:
        self.channel = channel
        self.sink = sink
        self.ready: deque[int] = deque()
        """Due when they were accepted, as keys in order: they need no timeline, which sorts only what lies ahead."""
        self.timeline = Timeline()
        self.bound = bound
        """Slots below it are in memory: what is accepted for them goes into the timeline at once."""
        self.in_flight: set[int] = set()
        """Taken from the timeline and not yet confirmed."""
        self.outbox: deque[Batch] = deque()
        self.parked: dict[str, deque[int]] = {}
        """Ordering keys with a request under way, and the seqs that wait behind it."""
        self.parked_count = 0
        self.confirms: deque[Batch] = deque()
        """Published, to be confirmed."""
        self.sending = 0
        """Batches in the hands of the releaser's thread or of the service."""
        self.confirming = 0
        self.unconfirmed = 0
        """Messages that were published and are still in the state: they would be sent again after a crash."""
        self.confirm_hold_until_s = 0.0
        """The log refused a Confirm: try again from this time on the elapsed clock."""
        self.failure: Failure | None = None
        self.failing_since_ms: int | None = None
        self.backoff_s = 0.0
        self.rest_until_s = 0.0
        """While the destination fails and nothing is left to try again: take the next messages from this time on the
        elapsed clock."""
        self.closed = False
        self.lateness = RecentPercentiles()

    @property
    def paused(self) -> bool:
        """Nothing new is taken: paused by a person, being discarded, or gone."""
        return self.closed or self.channel.paused_release is not None

    def offer(self, seqs: Sequence[int], dues_ms: Sequence[int], now_ms: int, flow: FlowLimits) -> int | None:
        """Newly accepted messages: keep those of the loaded slots; answer the earliest due among them."""
        latest_ms = max(dues_ms)
        if latest_ms <= now_ms and len(self.ready) < flow.ready_messages_max:
            self._offer_due([due_ms << SEQ_BITS | seq for due_ms, seq in zip(dues_ms, seqs, strict=True)])
            return min(dues_ms)
        limit_ms = self.bound << SLOT_BITS
        if latest_ms >= limit_ms:
            near = [(due_ms, seq) for due_ms, seq in zip(dues_ms, seqs, strict=True) if due_ms < limit_ms]
            if not near:
                return None
            dues_ms, seqs = [due_ms for due_ms, _ in near], [seq for _, seq in near]
        self.timeline.add(dues_ms, seqs)
        return min(dues_ms)

    def _offer_due(self, keys: list[int]) -> None:
        keys.sort()
        if not self.ready or keys[0] > self.ready[-1]:
            self.ready.extend(keys)
        else:
            self.ready = deque(sorted((*self.ready, *keys)))  # two ordered runs: one merge

    def head_ms(self) -> int | None:
        """The earliest due time that waits in memory."""
        ahead_ms = self.timeline.head_ms()
        if not self.ready:
            return ahead_ms
        due_ms = self.ready[0] >> SEQ_BITS
        return due_ms if ahead_ms is None else min(due_ms, ahead_ms)

    def take(self, now_ms: int, limit: int) -> list[int]:
        """Seqs that are due and not in flight, in order of (due, seq); from here on they are in flight."""
        ahead_ms = self.timeline.head_ms()
        if ahead_ms is not None and ahead_ms <= now_ms:
            dues_ms, seqs = self.timeline.take(now_ms, limit)
            if self.ready:
                self._offer_due([due_ms << SEQ_BITS | seq for due_ms, seq in zip(dues_ms, seqs, strict=True)])
                seqs = self._take_ready(limit)
        else:
            seqs = self._take_ready(limit)
        if not self.in_flight.isdisjoint(seqs):
            seqs = [seq for seq in seqs if seq not in self.in_flight]
        self.in_flight.update(seqs)
        return seqs

    def _take_ready(self, limit: int) -> list[int]:
        """The first of them; what was offered and loaded from a slot as well is here twice, side by side."""
        take = self.ready.popleft
        return list(dict.fromkeys([take() & SEQ_MASK for _ in range(min(limit, len(self.ready)))]))

    def behind(self, now_ms: int, flow: FlowLimits) -> bool:
        """Whether so much is due that releasing should go before accepting; not while nothing can be released."""
        if self.paused or self.failure is not None:
            return False
        limit = flow.overdue_messages_max
        return len(self.ready) + self.timeline.overdue(now_ms, limit) >= limit

    def wants(self, elapsed_s: float, flow: FlowLimits) -> Batch | None:
        """The next batch to send now, if a call may be made and one is not backing off."""
        if not self.outbox or self.paused or self.sending >= self.sending_max(flow):
            return None
        return self.outbox.popleft() if self.outbox[0].due_at_s <= elapsed_s else None

    def sending_max(self, flow: FlowLimits) -> int:
        """Calls allowed in flight: one while the destination fails, so that it is probed and not hammered."""
        if self.failure is not None:
            return 1
        keyed = bool(self.outbox) and self.outbox[0].ordering_key
        return flow.keyed_in_flight_max if keyed else flow.publishes_in_flight_max

    def next_ms(self, now_ms: int, elapsed_s: float, flow: FlowLimits) -> float | None:
        """Milliseconds until this lane has something to do by itself; None while only an event can change that."""
        if self.paused:
            return None
        if self.outbox:
            free = self.sending < self.sending_max(flow)
            return max(0.0, (self.outbox[0].due_at_s - elapsed_s) * 1000) if free else None
        head_ms = self.head_ms() if self.may_take(flow) else None
        return None if head_ms is None else max(0, head_ms - now_ms, (self.rest_until_s - elapsed_s) * 1000)

    def may_take(self, flow: FlowLimits) -> bool:
        """Whether more due messages may be taken; while publishing fails, only as the next probe."""
        return (
            not self.paused
            and not self.outbox
            and (self.failure is None or not self.sending)
            and self.parked_count < flow.parked_messages_max
            and self.unconfirmed < flow.unconfirmed_messages_max
            and self.sending < flow.publishes_in_flight_max
        )

    def forgive(self) -> None:
        """Forget that publishing failed: what backed off goes at once."""
        self.failure = None
        self.failing_since_ms = None
        self.backoff_s = self.rest_until_s = 0.0
        for batch in self.outbox:
            batch.due_at_s = 0.0

    def give_back(self, seqs: Sequence[int], dues_ms: Sequence[int]) -> None:
        """Not due after all, since the clock was set back: they wait for their time again."""
        self.in_flight.difference_update(seqs)
        self.timeline.add(dues_ms, seqs)

    def park(self, batch: Batch) -> bool:
        """Queue a batch behind its busy ordering key (True), or mark the key busy from now on (False)."""
        waiting = self.parked.get(batch.ordering_key)
        if waiting is None:
            self.parked[batch.ordering_key] = deque()
            return False
        waiting.extend(batch.seqs)
        self.parked_count += len(batch.seqs)
        return True

    def settle(self, batch: Batch, flow: FlowLimits) -> None:
        """A batch is done with, published or set aside: its ordering key goes on with what waits behind it."""
        if not batch.ordering_key:
            return
        waiting = self.parked[batch.ordering_key]
        if not waiting:
            del self.parked[batch.ordering_key]
            return
        following = [waiting.popleft() for _ in range(min(len(waiting), flow.publish_batch_messages))]
        self.parked_count -= len(following)
        self.outbox.append(Batch(following, batch.ordering_key))

    def put_back(self, seqs: Iterable[int], ordering_key: str) -> None:
        """What did not fit into a request: unkeyed it goes next, keyed it goes first behind its key."""
        rest = list(seqs)
        if not rest:
            return
        if not ordering_key:
            self.outbox.appendleft(Batch(rest))
            return
        self.parked[ordering_key].extendleft(reversed(rest))
        self.parked_count += len(rest)
