"""What is out: delivered messages with the time until which each is its receiver's.

One response makes one group: a common deadline and one entry in the heap of deadlines, however many messages it has.
Extending moves ids into a group of their own, so an entry of the heap counts only for the ids that still point to it.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from itertools import count, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, cast

from engine.emulator import limits
from engine.emulator.message import Message, size_of

if TYPE_CHECKING:
    from engine.emulator.ordering import OrderedKey

UNLIMITED = 1 << 62


class Consumer:
    """One receiver, a stream or a single Pull: what it holds and how much it may hold."""

    __slots__ = ("bytes_max", "held", "held_bytes", "keys", "messages_max", "starved", "wants")

    def __init__(self, messages_max: int = 0, bytes_max: int = 0) -> None:
        self.messages_max = messages_max if messages_max > 0 else UNLIMITED
        self.bytes_max = bytes_max if bytes_max > 0 else UNLIMITED
        self.held = 0
        self.held_bytes = 0
        self.starved = False
        """Its window is closed: it must be woken when something it holds comes back."""
        self.wants = False
        """It waits for messages."""
        self.keys: deque[OrderedKey] = deque()
        """Ordering keys that only this receiver may continue, with messages waiting."""

    @property
    def open(self) -> bool:
        """Whether its flow control lets one more message through."""
        return self.held < self.messages_max and self.held_bytes < self.bytes_max


class LeaseGroup:
    """Ids that share a receiver and a deadline."""

    __slots__ = ("consumer", "deadline_ns", "ids", "live")

    def __init__(self, consumer: Consumer, deadline_ns: int, ids: Sequence[bytes]) -> None:
        self.consumer = consumer
        self.deadline_ns = deadline_ns
        self.ids = ids
        self.live = len(ids)

    def drop(self, number: int = 1) -> None:
        """So many ids less; the last one frees the list, for the heap keeps a group until its deadline."""
        self.live -= number
        if not self.live:
            self.ids = ()


Lease = tuple[Message, LeaseGroup]

_message = itemgetter(0)
_group = itemgetter(1)


class LeaseTable:
    """All leases of one subscription, by ack id. The caller holds the server's lock."""

    __slots__ = ("_compact_at", "_deadlines", "_leases", "_tie")

    def __init__(self) -> None:
        self._leases: dict[bytes, Lease] = {}
        self._deadlines: list[tuple[int, int, LeaseGroup]] = []
        self._tie = count()
        self._compact_at = limits.DEADLINES_KEPT_MIN

    def __len__(self) -> int:
        return len(self._leases)

    def __contains__(self, ack_id: bytes) -> bool:
        return ack_id in self._leases

    def get(self, ack_id: bytes) -> Lease | None:
        """The lease of `ack_id`, if it holds."""
        return self._leases.get(ack_id)

    def messages(self) -> list[Message]:
        """All messages that are out."""
        return [message for message, _ in self._leases.values()]

    def grant(self, consumer: Consumer, messages: Sequence[Message], ids: Sequence[bytes], deadline_ns: int) -> None:
        """Lease `messages` under `ids` until `deadline_ns`."""
        group = LeaseGroup(consumer, deadline_ns, ids)
        self._leases.update(zip(ids, zip(messages, repeat(group), strict=False), strict=True))
        consumer.held += len(messages)
        consumer.held_bytes += size_of(messages)
        self._remember(group)

    def _remember(self, group: LeaseGroup) -> None:
        """Note a deadline.

        Groups whose leases have all ended are cleared out as the heap doubles, or it could grow for ever.
        """
        if len(self._deadlines) >= self._compact_at:
            self._deadlines = [entry for entry in self._deadlines if entry[2].live]
            heapq.heapify(self._deadlines)
            self._compact_at = max(limits.DEADLINES_KEPT_MIN, 2 * len(self._deadlines))
        heapq.heappush(self._deadlines, (group.deadline_ns, next(self._tie), group))

    def extend(self, ids: Iterable[bytes], deadline_ns: int) -> list[bytes]:
        """Give `ids` a new deadline; returns those that hold no lease."""
        by_consumer: dict[int, tuple[Consumer, list[bytes]]] = {}
        missing: list[bytes] = []
        for ack_id in dict.fromkeys(ids):
            lease = self._leases.get(ack_id)
            if lease is None:
                missing.append(ack_id)
                continue
            consumer = lease[1].consumer
            by_consumer.setdefault(id(consumer), (consumer, []))[1].append(ack_id)
        for consumer, moved in by_consumer.values():
            group = LeaseGroup(consumer, deadline_ns, moved)
            for ack_id in moved:
                message, old = self._leases[ack_id]
                old.drop()
                self._leases[ack_id] = (message, group)
            self._remember(group)
        return missing

    def end(self, ack_id: bytes) -> Lease | None:
        """End one lease and give its room back to the receiver."""
        lease = self._leases.pop(ack_id, None)
        if lease is not None:
            message, group = lease
            group.drop()
            consumer = group.consumer
            consumer.held -= 1
            consumer.held_bytes -= len(message.raw)
        return lease

    def end_many(self, ids: Iterable[bytes]) -> tuple[list[Message], list[bytes], bool]:
        """End the leases of `ids`: the messages, the ids that held none, and whether a starved receiver got room."""
        ids = list(ids)
        leases = list(map(self._leases.pop, ids, repeat(None)))
        missing = [ack_id for ack_id, lease in zip(ids, leases, strict=True) if lease is None]
        held = [lease for lease in leases if lease is not None] if missing else cast("list[Lease]", leases)
        by_group = Counter(map(_group, held))
        relieved = any(group.consumer.starved for group in by_group)
        for group, number in by_group.items():
            group.drop(number)
            group.consumer.held -= number
        if len(by_group) == 1:
            held[0][1].consumer.held_bytes -= size_of(map(_message, held))
        else:
            for message, group in held:
                group.consumer.held_bytes -= len(message.raw)
        return list(map(_message, held)), missing, relieved

    def expired(self, now_ns: int) -> list[bytes]:
        """Ids whose deadline has passed, in the order of delivery; their leases still hold until ended."""
        due: list[bytes] = []
        while self._deadlines and self._deadlines[0][0] <= now_ns:
            group = heapq.heappop(self._deadlines)[2]
            leases = self._leases
            for ack_id in group.ids:
                lease = leases.get(ack_id)
                if lease is not None and lease[1] is group:
                    due.append(ack_id)
        return due

    def next_deadline_ns(self) -> int | None:
        """The earliest deadline of a group that still has leases."""
        while self._deadlines and not self._deadlines[0][2].live:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def clear(self) -> list[Message]:
        """End all leases; returns their messages."""
        ended = [self.end(ack_id) for ack_id in list(self._leases)]
        self._deadlines.clear()
        return [lease[0] for lease in ended if lease is not None]
