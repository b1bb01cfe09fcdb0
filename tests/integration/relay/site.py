"""A channel with its own topics and subscriptions, as one test uses it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

from tests.blackbox.node import NodeProcess
from tests.blackbox.processes import wait_for
from tests.blackbox.pubsub import PROJECT, Collector, PubSub, message

ADDED: Final = {
    "scheduler-message-id",
    "scheduler-due",
    "scheduler-released",
    "scheduler-source-message-id",
    "scheduler-channel",
}
"""Attributes that the relay appends."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def at(due_ms: int) -> str:
    """A time for `available_at`."""
    return f"{due_ms // 1000}.{due_ms % 1000:03d}"


class Relay:
    """One channel on `node`, from topic `source` to topic `target`, with a consumer at the target."""

    def __init__(
        self,
        node: NodeProcess,
        pubsub: PubSub,
        *,
        ordering: bool = False,
        shared_topic: bool = False,
        filters: tuple[str, str] = ("", ""),
        source: dict[str, Any] | None = None,
        policy: dict[str, Any] | None = None,
        create: bool = True,
    ) -> None:
        self.id = f"c{uuid.uuid4().hex[:10]}"
        self.node, self.pubsub = node, pubsub
        self.source, self.target = f"{self.id}-source", self.id if not shared_topic else f"{self.id}-source"
        self._stack = ExitStack()
        pubsub.create_topic(self.source)
        if not shared_topic:
            pubsub.create_topic(self.target)
        pubsub.create_subscription(self.source, self.source, only=filters[0], ordering=ordering)
        pubsub.create_subscription(f"{self.id}-out", self.target, only=filters[1], ordering=ordering)
        self.out: Collector = self._stack.enter_context(pubsub.collect(f"{self.id}-out"))
        self.document = {
            "id": self.id,
            "source": {
                "driver": "pubsub",
                "config": {"project_id": PROJECT, "subscription_id": self.source, **(source or {})},
            },
            "destination": {"driver": "pubsub", "config": {"project_id": PROJECT, "topic_id": self.target}},
            "policy": policy or {},
        }
        if create:
            self.create()
            self.wait_state("active")

    def create(self) -> None:
        """POST the channel."""
        self.node.rest.post("/channels", self.document).ok(201)

    def close(self) -> None:
        """Stop the consumer and forget the channel, whatever it holds."""
        self._stack.close()
        if self.node.rest.is_ready():
            self.node.rest.delete(f"/channels/{self.id}?pending=discard")

    @property
    def path(self) -> str:
        return f"/channels/{self.id}"

    def document_now(self) -> dict[str, Any]:
        return self.node.channel(self.id)

    def stats(self) -> dict[str, Any]:
        return self.node.stats(self.id)

    def wait_state(self, state: str, timeout_s: float = 15.0) -> dict[str, Any]:
        """Until the channel's state is `state`; the channel."""
        wait_for(
            lambda: self.document_now()["state"] == state,
            timeout_s,
            lambda: (
                f"channel {self.id} is {state}; it is {self.document_now()['state']}: {self.document_now()['reason']}"
            ),
        )
        return self.document_now()

    def wait_stat(self, name: str, value: int, timeout_s: float = 15.0) -> None:
        """Until the counter has the value."""
        wait_for(lambda: self.stats()[name] == value, timeout_s, lambda: f"{name} = {value} in {self.stats()}")

    def publish(self, messages: Sequence[Any], per_request: int = 200) -> list[str]:
        """Publish to the source."""
        ids: list[str] = []
        for start in range(0, len(messages), per_request):
            ids += self.pubsub.publish(self.source, messages[start : start + per_request])
        return ids

    def send(self, *bodies: bytes, due_ms: int | None = None) -> None:
        """Publish messages due at `due_ms`, else at once."""
        due = at(now_ms() - 1000 if due_ms is None else due_ms)
        self.publish([message(body, available_at=due) for body in bodies])

    def messages(self, state: str, count: int) -> list[dict[str, Any]]:
        """`GET …/messages?state=…`, once it lists `count`: what no answer spoke of yet may take a moment."""

        def listed() -> list[dict[str, Any]]:
            results: list[dict[str, Any]] = self.node.rest.get(f"{self.path}/messages?state={state}").ok(200)["results"]
            return results

        wait_for(lambda: len(listed()) == count, 5, lambda: f"{count} messages are {state}: {listed()}")
        return listed()


def numbered(prefix: str, count: int) -> list[bytes]:
    """Distinct bodies."""
    return [f"{prefix} {number}".encode() for number in range(count)]
