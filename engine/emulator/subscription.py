"""One subscription: messages come in, are leased to receivers, and are acked, come back or are given up.

Every method is called with the server's lock held; what depends on time happens in `advance`, driven by the timekeeper.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.emulator import limits
from engine.emulator.backlog import Backlog
from engine.emulator.errors import Refused, failed_precondition, not_found
from engine.emulator.leases import Consumer, LeaseTable
from engine.emulator.message import Message, size_of
from engine.emulator.resources import copy_of
from engine.emulator.runtime import Runtime
from engine.emulator.settings import settings_of
from engine.emulator.wire import Pb, ack_ids

DeadLetter = Callable[["Subscription", Message, int], bool]
"""Publish a message of a subscription to its dead-letter topic, with the number of deliveries.

False if that cannot be done.
"""

INVALID_ACK_ID = "PERMANENT_FAILURE_INVALID_ACK_ID"
UNORDERED_ACK_ID = "TRANSIENT_FAILURE_UNORDERED_ACK_ID"


@dataclass(frozen=True, slots=True)
class Delivery:
    """Messages leased in one go, ready to be written."""

    messages: Sequence[Message]
    ids: Sequence[bytes]
    attempts: Sequence[int] | None
    """Delivery attempts, where a dead-letter policy makes them count."""


class Subscription:
    """A subscription's resource, backlog and leases."""

    def __init__(self, runtime: Runtime, resource: Pb, dead_letter: DeadLetter) -> None:
        now_ns = runtime.clock.now_ns()
        self.resource = resource
        self.settings = settings_of(resource)
        self.backlog = Backlog()
        self.leases = LeaseTable()
        self.retained: deque[Message] = deque()
        """Acked messages kept for Seek, in order of acking."""
        self.consumers: set[Consumer] = set()
        """Open streams."""
        self.changed = threading.Condition(runtime.lock)
        """Notified when there is something to deliver, or when receivers must look again."""
        self.gone: Refused | None = None
        """Why nothing can be received any more: deleted or detached."""
        self.created_ns = now_ns
        self.active_ns = now_ns
        """Last use by a receiver, for the expiration policy."""
        self._runtime = runtime
        self._dead_letter = dead_letter
        self._failures: dict[int, int] = {}
        """Failed deliveries by sequence number, only under a dead-letter or retry policy."""
        self._acked_ids: OrderedDict[bytes, None] = OrderedDict()

    @property
    def name(self) -> str:
        """Full resource name."""
        name: str = self.resource.name
        return name

    @property
    def _counts_failures(self) -> bool:
        return bool(self.settings.dead_letter_topic) or self.settings.backoff_min_ns >= 0

    def configure(self, resource: Pb) -> None:
        """Take over a changed resource; receivers see it with their next response."""
        self.resource = resource
        self.settings = settings_of(resource)
        if not self.settings.retain_acked and self.retained:
            self._discard(self.retained, acked=False)
            self.retained = deque()
        self.changed.notify_all()

    def require_usable(self) -> None:
        """Refuse to deliver from a subscription that is deleted or detached."""
        if self.gone is not None:
            raise self.gone

    # In

    def offer(self, messages: Sequence[Message], attributes: Callable[[int], Mapping[str, str]]) -> int:
        """Take the published messages that the filter lets through; returns how many."""
        wanted = self.settings.filter
        if wanted is not None:
            messages = [message for index, message in enumerate(messages) if wanted(attributes(index))]
            if not messages:
                return 0
        self._runtime.hold(len(messages), size_of(messages))
        ordered = self.settings.ordering and bool(messages[0].batch.ordering_key)
        self.backlog.add(messages, ordered=ordered)
        self.changed.notify_all()
        return len(messages)

    # Out

    def lease(self, consumer: Consumer, count_max: int, deadline_ns: int) -> Delivery | None:
        """Lease up to `count_max` messages to `consumer`, within its window; None when there is none for it."""
        count_max = min(count_max, consumer.messages_max - consumer.held)
        bytes_max = min(limits.RESPONSE_BYTES_MAX, consumer.bytes_max - consumer.held_bytes)
        if count_max <= 0 or bytes_max <= 0:
            return None
        messages, any_ordered = self.backlog.take(consumer, count_max, bytes_max)
        if not messages:
            return None
        runtime = self._runtime
        ids = ack_ids(runtime.run, runtime.next_group(), len(messages))
        self.leases.grant(consumer, messages, ids, deadline_ns)
        if any_ordered:
            self.backlog.keys.granted(messages, ids)
        runtime.wake(deadline_ns)
        runtime.counters["delivered"] += len(messages)
        attempts = None
        if self.settings.dead_letter_topic:
            attempts = [self._failures.get(message.seq, 0) + 1 for message in messages]
        return Delivery(messages, ids, attempts)

    def ack(self, ids: Iterable[bytes]) -> dict[str, str]:
        """Ack deliveries. Returns what failed and why, by ack id.

        Only an exactly-once subscription tells its receivers.
        """
        failures: dict[str, str] = {}
        if self.settings.exactly_once:
            ids = self._ackable(ids, failures)
        ended, missing, relieved = self.leases.end_many(ids)
        self._runtime.counters["acked"] += len(ended)
        self._runtime.counters["unknown_ack_ids"] += len(missing)
        if self.backlog.keys:
            ended = self._ack_ordered(ended)
        self._discard(ended, acked=True)
        if relieved:
            self.changed.notify_all()
        return failures

    def _ackable(self, ids: Iterable[bytes], failures: dict[str, str]) -> list[bytes]:
        """Exactly once: an id must hold a lease (or have been acked before), and a key's acks come in order."""
        good: list[bytes] = []
        unfinished: dict[str, set[int]] = {}
        for ack_id in ids:
            lease = self.leases.get(ack_id)
            if lease is None:
                if ack_id not in self._acked_ids:
                    failures[ack_id.decode(errors="replace")] = INVALID_ACK_ID
                continue
            message = lease[0]
            if self._is_ordered(message):
                key = message.batch.ordering_key
                earlier = unfinished.setdefault(key, set(self.backlog.keys.unacked_out(key)))
                if any(seq < message.seq for seq in earlier):
                    failures[ack_id.decode()] = UNORDERED_ACK_ID
                    continue
                earlier.discard(message.seq)
            good.append(ack_id)
            self._acked_ids[ack_id] = None
        while len(self._acked_ids) > limits.REMEMBERED_ACKS_MAX:
            self._acked_ids.popitem(last=False)
        return good

    def _ack_ordered(self, ended: Sequence[Message]) -> list[Message]:
        gone: list[Message] = []
        for message in ended:
            if self._is_ordered(message):
                gone += self.backlog.keys.ack(message)
            else:
                gone.append(message)
        if self.backlog.keys.ready or any(consumer.keys for consumer in self.consumers):
            self.changed.notify_all()
        return gone

    def modify_deadline(self, ids: Sequence[bytes], seconds: int) -> dict[str, str]:
        """Extend leases, or give messages back at once with 0 seconds; returns failures as `ack` does."""
        if seconds == 0:
            held = [ack_id for ack_id in ids if ack_id in self.leases]
            missing = [ack_id for ack_id in ids if ack_id not in self.leases]
            self._fail(held, "nacked")
        else:
            deadline_ns = self._runtime.clock.now_ns() + seconds * 1_000_000_000
            missing = self.leases.extend(ids, deadline_ns)
            self._runtime.counters["extended"] += len(ids) - len(missing)
            self._runtime.wake(deadline_ns)
        if not self.settings.exactly_once:
            return {}
        return {ack_id.decode(errors="replace"): INVALID_ACK_ID for ack_id in missing}

    # Back

    def _is_ordered(self, message: Message) -> bool:
        return self.settings.ordering and bool(message.batch.ordering_key)

    def _fail(self, ids: Sequence[bytes], how: str) -> None:
        """The deliveries `ids` failed: count, dead-letter, hold back or redeliver."""
        now_ns = self._runtime.clock.now_ns()
        horizon_ns = now_ns - self.settings.retention_ns
        back: list[Message] = []
        for ack_id in ids:
            lease = self.leases.end(ack_id)
            if lease is None:
                continue
            message = lease[0]
            self._runtime.counters[how] += 1
            failures = 0
            if self._counts_failures:
                failures = self._failures[message.seq] = self._failures.get(message.seq, 0) + 1
            keep = message.batch.publish_ns >= horizon_ns and not self._give_up(message, failures)
            wait_ns = self.settings.backoff_ns(failures) if keep else 0
            if self._is_ordered(message):
                self._fail_ordered(message, keep=keep, due_ns=now_ns + wait_ns if wait_ns else 0)
            elif keep and wait_ns:
                self.backlog.delay(message, message.seq, now_ns + wait_ns)
                self._runtime.wake(now_ns + wait_ns)
            elif keep:
                back.append(message)
            if not keep:
                self._discard([message], acked=False)
        if back:
            self.backlog.put_back(back)
        self.changed.notify_all()

    def _fail_ordered(self, message: Message, *, keep: bool, due_ns: int) -> None:
        key, ended = self.backlog.keys.give_back(message, keep=keep)
        for ack_id in ended:
            self.leases.end(ack_id)
        if due_ns:
            self.backlog.keys.block(key)
            self.backlog.delay(key, message.seq, due_ns)
            self._runtime.wake(due_ns)

    def _give_up(self, message: Message, failures: int) -> bool:
        """Whether the message went to the dead-letter topic."""
        if not self.settings.dead_letter_topic or failures < self.settings.delivery_attempts_max:
            return False
        if not self._dead_letter(self, message, failures):
            return False
        self._runtime.counters["dead_lettered"] += 1
        return True

    def _discard(self, messages: Sequence[Message], *, acked: bool) -> None:
        """Messages leave the backlog; acked ones may be kept for Seek."""
        if self._failures:
            for message in messages:
                self._failures.pop(message.seq, None)
        if acked and self.settings.retain_acked:
            self.retained.extend(messages)
        else:
            self._runtime.free(len(messages), size_of(messages))

    # Time

    def advance(self, now_ns: int) -> None:
        """Let everything happen that is due: expired leases, ended back-off, ended retention."""
        expired = self.leases.expired(now_ns)
        if expired:
            self._fail(expired, "expired")
        if self.backlog.release_due(now_ns):
            self.changed.notify_all()
        horizon_ns = now_ns - self.settings.retention_ns
        if horizon_ns > self.created_ns or self.retained:
            dropped = self.backlog.drop_before(horizon_ns)
            self._runtime.counters["dropped_by_retention"] += len(dropped)
            while self.retained and self.retained[0].batch.publish_ns < horizon_ns:
                dropped.append(self.retained.popleft())
            self._discard(dropped, acked=False)

    def next_due_ns(self) -> int | None:
        """When `advance` has something to do."""
        times = [due for due in (self.leases.next_deadline_ns(), self.backlog.next_due_ns()) if due is not None]
        return min(times) if times else None

    def is_expired(self, now_ns: int) -> bool:
        """Whether the expiration policy ends this subscription: nobody used it for its whole time to live."""
        ttl_ns = self.settings.ttl_ns
        return ttl_ns is not None and not self.consumers and now_ns - self.active_ns > ttl_ns

    # Whole

    def unacked(self) -> list[Message]:
        """Every message that is not acked, in publish order."""
        out = [message for message in self.leases.messages() if not self._is_ordered(message)]
        messages = [*self.backlog.unordered(), *out, *self.backlog.keys.unacked()]
        return sorted(messages, key=lambda message: message.seq)

    def everything(self) -> list[Message]:
        """Every message held: unacked, acked behind an unacked one of its key, and retained."""
        out = [message for message in self.leases.messages() if not self._is_ordered(message)]
        return [*self.backlog.unordered(), *out, *self.backlog.keys.held(), *self.retained]

    def replace(self, unacked: Sequence[Message], retained: Sequence[Message]) -> None:
        """Seek: the backlog becomes `unacked`, what is kept as acked `retained`; all leases end."""
        before = self.everything()
        self.leases.clear()
        self._failures.clear()
        self.backlog.replace(unacked, ordered=self.settings.ordering)
        self.retained = deque(retained)
        for consumer in self.consumers:
            consumer.keys.clear()
        self._runtime.free(len(before), size_of(before))
        kept = [*unacked, *retained]
        self._runtime.hold(len(kept), size_of(kept))
        self.changed.notify_all()

    def end(self, why: Refused) -> None:
        """Deleted or detached: forget the messages, end every receiver with `why`."""
        self.gone = why
        self.replace([], [])

    def end_deleted(self) -> None:
        """End as a deleted subscription does."""
        self.end(not_found(self.name))

    def end_detached(self) -> None:
        """End as a detached subscription does: it stays, but nothing can be received."""
        self.resource = copy_of(self.resource)
        self.resource.detached = True
        self.end(failed_precondition(f"Subscription is detached (subscription={self.name})."))
