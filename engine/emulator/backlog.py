"""What waits in one subscription: new messages, ordered keys, and those that the retry policy holds back."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence

from engine.emulator.leases import Consumer
from engine.emulator.message import Message, size_of
from engine.emulator.ordering import OrderedKey, OrderedKeys


class Backlog:
    """Undelivered messages in the order in which they will be delivered. The caller holds the server's lock."""

    __slots__ = ("_delayed", "_keys_first", "keys", "ready")

    def __init__(self) -> None:
        self.ready: deque[Message] = deque()
        self.keys = OrderedKeys()
        self._delayed: list[tuple[int, int, Message | OrderedKey]] = []
        self._keys_first = False

    def __len__(self) -> int:
        delayed = sum(isinstance(item, Message) for _, _, item in self._delayed)
        return len(self.ready) + len(self.keys) + delayed

    @property
    def ready_count(self) -> int:
        """What could go out now, roughly: a key counts as one."""
        return len(self.ready) + self.keys.ready

    def add(self, messages: Sequence[Message], *, ordered: bool) -> None:
        """Append newly published messages."""
        if ordered:
            for message in messages:
                self.keys.add(message)
        else:
            self.ready.extend(messages)

    def take(self, consumer: Consumer, count_max: int, bytes_max: int) -> tuple[list[Message], bool]:
        """Messages for `consumer` and whether some of them are ordered; at least one, if there is any, however big."""
        if not self.keys:
            return self._take_ready(count_max, bytes_max), False
        self._keys_first = not self._keys_first
        first: list[Message] = []
        if self._keys_first:
            first = self.keys.take(consumer, count_max, bytes_max)
        used = size_of(first)
        plain: list[Message] = []
        if len(first) < count_max and (used < bytes_max or not first):
            plain = self._take_ready(count_max - len(first), bytes_max - used, strict=bool(first))
        if not self._keys_first and len(plain) < count_max:
            used = size_of(plain)
            if used < bytes_max or not plain:
                first = self.keys.take(consumer, count_max - len(plain), bytes_max - used)
        return plain + first, bool(first)

    def _take_ready(self, count_max: int, bytes_max: int, *, strict: bool = False) -> list[Message]:
        ready = self.ready
        popleft = ready.popleft
        taken = [popleft() for _ in range(min(count_max, len(ready)))]
        if size_of(taken) <= bytes_max:
            return taken
        size, fitting = 0, 0
        for message in taken:
            size += len(message.raw)
            if size > bytes_max and (fitting or strict):
                break
            fitting += 1
        self.put_back(taken[fitting:])
        return taken[:fitting]

    def put_back(self, messages: Sequence[Message]) -> None:
        """Messages that come back go to the front, in their own order."""
        self.ready.extendleft(reversed(messages))

    def delay(self, item: Message | OrderedKey, tie: int, due_ns: int) -> None:
        """Hold `item` back until `due_ns`."""
        heapq.heappush(self._delayed, (due_ns, tie, item))

    def release_due(self, now_ns: int) -> bool:
        """Make deliverable what was held back until now; whether there was anything."""
        released = False
        while self._delayed and self._delayed[0][0] <= now_ns:
            item = heapq.heappop(self._delayed)[2]
            released = True
            if isinstance(item, Message):
                self.ready.append(item)
            else:
                self.keys.unblock(item)
        return released

    def next_due_ns(self) -> int | None:
        """When the next one held back becomes deliverable."""
        return self._delayed[0][0] if self._delayed else None

    def drop_before(self, horizon_ns: int) -> list[Message]:
        """Take out messages published before `horizon_ns`."""
        dropped: list[Message] = []
        while self.ready and self.ready[0].batch.publish_ns < horizon_ns:
            dropped.append(self.ready.popleft())
        return dropped + self.keys.drop_before(horizon_ns)

    def unordered(self) -> list[Message]:
        """All messages here that are not in an ordered key."""
        delayed = [item for _, _, item in self._delayed if isinstance(item, Message)]
        return [*self.ready, *delayed]

    def replace(self, messages: Iterable[Message], *, ordered: bool) -> None:
        """Start anew with `messages`."""
        self.ready.clear()
        self.keys.clear()
        self._delayed.clear()
        plain: list[Message] = []
        for message in messages:
            if ordered and message.batch.ordering_key:
                self.keys.add(message)
            else:
                plain.append(message)
        self.ready.extend(plain)
