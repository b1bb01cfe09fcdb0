"""A topic and its snapshots: where published messages go."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from engine.emulator.message import Message, size_of
from engine.emulator.runtime import Runtime
from engine.emulator.settings import duration_ns
from engine.emulator.subscription import Subscription
from engine.emulator.wire import Pb


class Snapshot:
    """What was not acked in a subscription at one moment, and everything published on the topic since."""

    def __init__(self, runtime: Runtime, resource: Pb, messages: Sequence[Message]) -> None:
        self.resource = resource
        self.messages = list(messages)
        self._runtime = runtime
        runtime.hold(len(messages), size_of(messages))

    @property
    def name(self) -> str:
        """Full resource name."""
        name: str = self.resource.name
        return name

    @property
    def expire_ns(self) -> int:
        """When it ends."""
        return duration_ns(self.resource.expire_time)

    def add(self, messages: Sequence[Message]) -> None:
        """Keep newly published messages too."""
        self.messages += messages
        self._runtime.hold(len(messages), size_of(messages))

    def end(self) -> None:
        """Let the messages go."""
        self._runtime.free(len(self.messages), size_of(self.messages))
        self.messages = []


class Topic:
    """A topic's resource and who gets its messages."""

    def __init__(self, runtime: Runtime, resource: Pb) -> None:
        self.resource = resource
        self.subscriptions: dict[str, Subscription] = {}
        self.snapshots: dict[str, Snapshot] = {}
        self.retained: deque[Message] = deque()
        """Messages kept for Seek by the topic's own retention."""
        self._runtime = runtime

    @property
    def name(self) -> str:
        """Full resource name."""
        name: str = self.resource.name
        return name

    @property
    def _retains(self) -> bool:
        return bool(self.resource.HasField("message_retention_duration"))

    @property
    def fan_out(self) -> int:
        """How many places keep a published message, at most."""
        return len(self.subscriptions) + len(self.snapshots) + self._retains

    def accept(self, messages: Sequence[Message], attributes: Callable[[int], Mapping[str, str]]) -> None:
        """Hand published messages to every subscription, snapshot and the retention."""
        for subscription in self.subscriptions.values():
            subscription.offer(messages, attributes)
        for snapshot in self.snapshots.values():
            snapshot.add(messages)
        if self._retains:
            self.retained.extend(messages)
            self._runtime.hold(len(messages), size_of(messages))

    def advance(self, now_ns: int) -> None:
        """Drop what the retention no longer covers."""
        if not self.retained:
            return
        keep_ns = duration_ns(self.resource.message_retention_duration) if self._retains else 0
        while self.retained and self.retained[0].batch.publish_ns < now_ns - keep_ns:
            self._runtime.free(1, len(self.retained.popleft().raw))

    def end(self) -> None:
        """Deleted: its subscriptions stay, without a topic; its snapshots stay and grow no more."""
        self._runtime.free(len(self.retained), size_of(self.retained))
        self.retained.clear()
        self.subscriptions.clear()
        self.snapshots.clear()
