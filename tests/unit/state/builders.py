"""Short ways to make commands and states in tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from engine import commands as c
from engine.config import StateLimits
from engine.model import Channel, Destination, DestinationConfig, Policy, Source, SourceConfig
from engine.state.state import State

T0_MS = 1_700_000_000_000
SUBSCRIPTION = "projects/p/subscriptions/s"

SMALL = replace(
    StateLimits(),
    transaction_rows=3,
    read_chunk=4,
    window_chunk=3,
    seqs_cached=5,
    seen_part_ids=3,
    dedupe_window_min_ms=0,
)
"""Limits at which every loop runs more than once."""


def source(subscription: str = "s") -> Source:
    return Source(config=SourceConfig(project_id="p", subscription_id=subscription))


def destination(topic: str = "t") -> Destination:
    return Destination(config=DestinationConfig(project_id="p", topic_id=topic))


def create(
    id: str = "a", *, stamp_ms: int = T0_MS, subscription: str = "s", policy: Policy | None = None, **more: Any
) -> c.CreateChannel:
    return c.CreateChannel(
        stamp_ms=stamp_ms, id=id, name=id.upper(), source=source(subscription), destination=destination(),
        policy=policy or Policy(), **more,
    )  # fmt: skip


def update(channel: Channel, *, stamp_ms: int = T0_MS, subscription: str = "s", **more: Any) -> c.UpdateChannel:
    values: dict[str, Any] = {
        "expected_revision": channel.revision,
        "name": channel.name,
        "policy": channel.policy,
    } | more
    return c.UpdateChannel(
        stamp_ms=stamp_ms, channel_uid=channel.uid, source=source(subscription), destination=destination(), **values
    )


def accept(
    *source_ids: str,
    uid: int = 1,
    stamp_ms: int = T0_MS,
    due_ms: int = T0_MS + 60_000,
    dues_ms: list[int] | None = None,
    payloads: list[bytes] | None = None,
    publish_us: int = 7,
    **more: Any,
) -> c.Accept:
    n = len(source_ids)
    return c.Accept(
        stamp_ms=stamp_ms,
        channel_uid=uid,
        subscription=more.pop("subscription", SUBSCRIPTION),
        source_ids=list(source_ids),
        publish_us=more.pop("publishes_us", [publish_us] * n),
        dues_ms=dues_ms or [due_ms] * n,
        payloads=payloads or [f"payload of {source_id}".encode() for source_id in source_ids],
        **more,
    )


def confirm(*seqs: int, uid: int = 1, **more: Any) -> c.Confirm:
    return c.Confirm(stamp_ms=T0_MS, channel_uid=uid, seqs=list(seqs), **more)


class World:
    """A state in a directory, with a log of its own: `do` appends and applies."""

    def __init__(self, directory: Path, limits: StateLimits = SMALL, **more: Any) -> None:
        self.path = directory / "state.db"
        self.limits = limits
        self.more = more
        self.log: list[bytes] = []
        self.state = State.open(self.path, limits, **more)

    def do(self, *commands: c.Command) -> Any:
        """Apply commands as the next entries; returns the last answer."""
        entries = [c.encode(command) for command in commands]
        self.log += entries
        return self.state.apply(len(self.log) - len(entries) + 1, 1, entries)[-1]

    def reopen(self, path: Path | None = None) -> list[c.Answer]:
        """Stop without a boundary, start again and replay the log; returns the answers of the replay."""
        self.state.close()
        self.path = path or self.path
        self.state = State.open(self.path, self.limits, **self.more)
        return self.replay()

    def replay(self) -> list[c.Answer]:
        start = self.state.applied_index
        return self.state.apply(start + 1, 1, self.log[start:])
