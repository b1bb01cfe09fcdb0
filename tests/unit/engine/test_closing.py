"""Deleting a channel in slices, and what ends that before its end."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from engine.closing import finish_closing
from engine.commands import Command, Discard, Done, DropChannel, decode
from engine.config import FlowLimits
from engine.model import (
    Channel,
    ChannelStats,
    Closing,
    Destination,
    DestinationConfig,
    Policy,
    Source,
    SourceConfig,
)

FLOW = FlowLimits(slice_messages_max=2)


class Messages:
    """Seqs of one closing channel; a Discard takes some away, and may be followed by what a test decides."""

    def __init__(self, count: int) -> None:
        self.left = list(range(1, count + 1))
        self.closing: Closing | None = Closing.DISCARD
        self.stopping = False
        self.submitted: list[Command] = []

    def channel(self) -> Channel:
        return Channel(
            uid=1,
            id="c",
            name="c",
            source=Source(config=SourceConfig(project_id="p", subscription_id="s")),
            destination=Destination(config=DestinationConfig(project_id="p", topic_id="t")),
            policy=Policy(),
            created_ms=0,
            updated_ms=0,
            closing=self.closing,
        )

    def stats(self, uid: int) -> ChannelStats:
        return ChannelStats(pending=len(self.left))

    def seqs(self, uid: int, after_seq: int, limit: int) -> list[int]:
        return [seq for seq in self.left if seq > after_seq][:limit]

    def channel_by_uid(self, uid: int) -> Channel | None:
        return self.channel()

    def submit(self, entry: bytes) -> Future[Any]:
        command = decode(entry)
        self.submitted.append(command)
        if isinstance(command, Discard):
            self.left = [seq for seq in self.left if seq not in command.seqs]
        future: Future[Any] = Future()
        future.set_result(Done())
        return future

    def finish(self) -> bool:
        return finish_closing(self, self.channel(), self.submit, lambda: 0, FLOW, stopping=lambda: self.stopping)


def test_what_is_left_is_discarded_in_slices_and_then_the_channel_goes() -> None:
    messages = Messages(5)

    assert messages.finish()

    assert [len(c.seqs) for c in messages.submitted if isinstance(c, Discard)] == [2, 2, 1]
    assert isinstance(messages.submitted[-1], DropChannel)


def test_what_is_left_when_somebody_chooses_to_drain_is_kept() -> None:
    class Drained(Messages):
        def submit(self, entry: bytes) -> Future[Any]:
            self.closing = Closing.DRAIN
            return super().submit(entry)

    messages = Drained(5)

    assert not messages.finish()

    assert messages.left == [3, 4, 5]


def test_a_node_that_stops_does_not_wait_for_the_rest() -> None:
    class Stopped(Messages):
        def submit(self, entry: bytes) -> Future[Any]:
            self.stopping = True
            return super().submit(entry)

    messages = Stopped(5)

    assert not messages.finish()

    assert messages.left == [3, 4, 5]
