"""Message ordering: one queue per key, and which receiver may continue it.

While messages of a key are out, only the receiver that holds them gets the following ones. When one comes back, so do
all later ones of its key, acked or not: that is the service's promise of order at the price of repeats.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.emulator.leases import Consumer
from engine.emulator.message import Message


@dataclass(slots=True)
class Out:
    """One delivered message of a key."""

    message: Message
    ack_id: bytes = b""
    acked: bool = False


class OrderedKey:
    """The messages of one ordering key in one subscription."""

    __slots__ = ("blocked", "key", "out", "owner", "queued", "waiting")

    def __init__(self, key: str) -> None:
        self.key = key
        self.waiting: deque[Message] = deque()
        self.out: OrderedDict[int, Out] = OrderedDict()
        """By sequence number, in publish order; an acked one stays until all before it are acked."""
        self.owner: Consumer | None = None
        self.blocked = False
        """Held back by the retry policy."""
        self.queued: deque[OrderedKey] | None = None
        """The queue of deliverable keys where this key's entry counts; an entry elsewhere is stale and skipped."""


class OrderedKeys:
    """All keys of one subscription. The caller holds the server's lock."""

    __slots__ = ("_keys", "_ready")

    def __init__(self) -> None:
        self._keys: dict[str, OrderedKey] = {}
        self._ready: deque[OrderedKey] = deque()

    def __len__(self) -> int:
        """Messages that wait."""
        return sum(len(key.waiting) for key in self._keys.values())

    def __bool__(self) -> bool:
        return bool(self._keys)

    @property
    def ready(self) -> int:
        """Keys that any receiver may take, roughly."""
        return len(self._ready)

    def held(self) -> Iterator[Message]:
        """Every message held here: waiting, out, and acked behind one that is out."""
        for key in self._keys.values():
            yield from (out.message for out in key.out.values())
            yield from key.waiting

    def unacked(self) -> Iterator[Message]:
        """Messages waiting or out and not acked."""
        for key in self._keys.values():
            yield from (out.message for out in key.out.values() if not out.acked)
            yield from key.waiting

    def add(self, message: Message) -> None:
        """Append a new message to its key."""
        name = message.batch.ordering_key
        key = self._keys.get(name)
        if key is None:
            key = self._keys[name] = OrderedKey(name)
        key.waiting.append(message)
        self._queue(key)

    def take(self, consumer: Consumer, count_max: int, bytes_max: int) -> list[Message]:
        """Messages for `consumer`, its own keys first; at least one, if there is any, however big."""
        taken: list[Message] = []
        size = 0
        for queue in (consumer.keys, self._ready):
            while queue and len(taken) < count_max:
                key = queue[0]
                if key.queued is not queue:
                    queue.popleft()
                    continue
                while key.waiting and len(taken) < count_max:
                    size += len(key.waiting[0].raw)
                    if size > bytes_max and taken:
                        self._release_head(queue, key)
                        return taken
                    message = key.waiting.popleft()
                    key.owner = consumer
                    key.out[message.seq] = Out(message)
                    taken.append(message)
                self._release_head(queue, key)
        return taken

    def _release_head(self, queue: deque[OrderedKey], key: OrderedKey) -> None:
        queue.popleft()
        key.queued = None
        self._queue(key)

    def granted(self, messages: Sequence[Message], ids: Sequence[bytes]) -> None:
        """Remember under which ack ids messages went out."""
        for message, ack_id in zip(messages, ids, strict=True):
            key = self._keys.get(message.batch.ordering_key)
            if key is not None and message.seq in key.out:
                key.out[message.seq].ack_id = ack_id

    def unacked_out(self, name: str) -> list[int]:
        """Sequence numbers of the messages of key `name` that are out and not acked, in publish order."""
        key = self._keys.get(name)
        return [] if key is None else [seq for seq, out in key.out.items() if not out.acked]

    def ack(self, message: Message) -> list[Message]:
        """Ack one; returns those that are gone for good.

        It and what was acked behind it, once all before it are acked.
        """
        key = self._keys[message.batch.ordering_key]
        key.out[message.seq].acked = True
        gone: list[Message] = []
        while key.out:
            seq, first = next(iter(key.out.items()))
            if not first.acked:
                break
            gone.append(first.message)
            del key.out[seq]
        self._settle(key)
        return gone

    def give_back(self, message: Message, *, keep: bool) -> tuple[OrderedKey, list[bytes]]:
        """Put `message` (unless not to be kept) and all later ones of its key back.

        Returns the ack ids that end thereby.
        """
        key = self._keys[message.batch.ordering_key]
        later = [seq for seq in key.out if seq >= message.seq]
        ended: list[bytes] = []
        for seq in reversed(later):
            out = key.out.pop(seq)
            if not out.acked and seq != message.seq:
                ended.append(out.ack_id)
            if keep or seq != message.seq:
                key.waiting.appendleft(out.message)
        self._settle(key)
        return key, ended

    def block(self, key: OrderedKey) -> None:
        """Deliver nothing of `key` until it is unblocked."""
        key.blocked = True
        key.queued = None

    def unblock(self, key: OrderedKey) -> None:
        """Let `key` be delivered again."""
        key.blocked = False
        self._queue(key)

    def drop_before(self, horizon_ns: int) -> list[Message]:
        """Take out waiting messages published before `horizon_ns`."""
        dropped: list[Message] = []
        for key in list(self._keys.values()):
            while key.waiting and key.waiting[0].batch.publish_ns < horizon_ns:
                dropped.append(key.waiting.popleft())
            self._settle(key)
        return dropped

    def clear(self) -> None:
        """Forget everything."""
        self._keys.clear()
        self._ready.clear()

    def _settle(self, key: OrderedKey) -> None:
        """With nothing out the key is anybody's; with nothing waiting either it is forgotten."""
        if not key.out:
            if key.owner is not None:
                key.owner = None
                key.queued = None
            if not key.waiting:
                self._keys.pop(key.key, None)
                key.queued = None
                return
        self._queue(key)

    def _queue(self, key: OrderedKey) -> None:
        if key.blocked or not key.waiting or key.queued is not None:
            return
        queue = self._ready if key.owner is None else key.owner.keys
        queue.append(key)
        key.queued = queue
