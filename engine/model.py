"""The nouns of the relay: channels with their policy, and the words for what can be true of a message.

All values are frozen and compare by content. They are encoded with msgspec as arrays, so fields may be added at the
end (with a default) and are skipped by older readers; never remove or reorder one.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

DAY_MS = 24 * 3600 * 1000


class Disposition(StrEnum):
    """What happens to a message whose time is missing or wrong."""

    QUARANTINE = "quarantine"
    RELEASE = "release"
    DISCARD = "discard"


class TimeUnit(StrEnum):
    """How a bare number in `available_at` is read."""

    SECONDS = "s"
    AUTO = "auto"


class Side(StrEnum):
    """One half of a channel."""

    LISTEN = "listen"
    RELEASE = "release"
    BOTH = "both"


class Closing(StrEnum):
    """What happens to the messages of a channel that is being deleted."""

    DISCARD = "discard"
    DRAIN = "drain"


class SourceConfig(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Where messages come from: one Pub/Sub subscription."""

    project_id: str
    subscription_id: str
    key_file: str | None = None
    """Service account key; None = default credentials (none with an emulator)."""
    endpoint: str | None = None
    """`host:port` of a regional or private endpoint; None = the public one."""

    @property
    def subscription(self) -> str:
        """Full resource name."""
        return f"projects/{self.project_id}/subscriptions/{self.subscription_id}"


class DestinationConfig(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Where messages go: one Pub/Sub topic."""

    project_id: str
    topic_id: str
    key_file: str | None = None
    endpoint: str | None = None

    @property
    def topic(self) -> str:
        """Full resource name."""
        return f"projects/{self.project_id}/topics/{self.topic_id}"


class Source(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A driver and its configuration."""

    config: SourceConfig
    driver: str = "pubsub"


class Destination(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A driver and its configuration."""

    config: DestinationConfig
    driver: str = "pubsub"


class Retry(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Back-off between attempts to publish one message, and when to give up."""

    min_backoff_ms: int = 100
    max_backoff_ms: int = 60_000
    attempts: int | None = None
    """After this many refused attempts the message is quarantined; None = never."""


class Policy(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """How a channel treats its messages; defaults are those of the interface."""

    max_delay_ms: int = 3650 * DAY_MS
    """A due time further ahead than this is wrong."""
    missing_time: Disposition = Disposition.QUARANTINE
    bad_time: Disposition = Disposition.QUARANTINE
    time_unit: TimeUnit = TimeUnit.SECONDS
    retry: Retry = Retry()
    dedupe_window_ms: int = 15 * 60 * 1000
    """Redelivered source messages are recognised for this much listening time."""


class Pause(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Why one side of a channel stands still."""

    by: str
    reason: str = ""
    until_ms: int | None = None
    """Resumes by itself at this time; None = never."""


class Channel(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One source, one destination, and the policy between them."""

    uid: int
    """Unique in the cluster's life: a re-created id is another channel."""
    id: str
    name: str
    source: Source
    destination: Destination
    policy: Policy = Policy()
    paused_listen: Pause | None = None
    paused_release: Pause | None = None
    closing: Closing | None = None
    """Set while the channel is being deleted; Accepts behind this mark are rejected."""
    revision: int = 1
    created_ms: int = 0
    updated_ms: int = 0


class Node(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A member of the cluster."""

    name: str
    """Random and persisted: identity, not address."""
    addr: str
    """`host:port` where the other nodes reach it."""
    api_addr: str | None = None
    version: str | None = None


class Cluster(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Who we are: made at the founding, replicated, never changed but by a recovery (epoch)."""

    cluster_id: str
    epoch: int = 1
    secret_key: str = ""
    """Django's SECRET_KEY unless the environment sets one."""
    founded_ms: int = 0


class ChannelStats(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Counters of one channel, kept by apply: the same on every node at the same index."""

    pending: int = 0
    pending_bytes: int = 0
    quarantined: int = 0
    quarantined_bytes: int = 0
    accepted: int = 0
    released: int = 0
    duplicates: int = 0
    discarded: int = 0
    stale_confirms: int = 0
    """Confirms that named a revision or a seq no longer here: each may be a repeated release."""


def message_id(cluster: Cluster, seq: int) -> str:
    """The `scheduler-message-id`: the same on every copy of one message, unique over recoveries."""
    return f"{cluster.cluster_id}-{cluster.epoch}-{seq}"
