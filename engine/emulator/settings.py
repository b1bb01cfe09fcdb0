"""What a subscription is set to, in the units that the server computes with."""

from __future__ import annotations

from dataclasses import dataclass

from engine.emulator import limits
from engine.emulator.clock import NS_PER_S
from engine.emulator.filters import Filter, parse
from engine.emulator.wire import Pb


def duration_ns(duration: Pb) -> int:
    """A google.protobuf.Duration in nanoseconds."""
    seconds: int = duration.seconds
    nanos: int = duration.nanos
    return seconds * NS_PER_S + nanos


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Derived from a Subscription resource that has been checked and completed with defaults."""

    ack_deadline_ns: int
    retention_ns: int
    retain_acked: bool
    ordering: bool
    exactly_once: bool
    filter: Filter | None
    dead_letter_topic: str
    """Empty: none."""
    delivery_attempts_max: int
    backoff_min_ns: int
    """Negative: no retry policy, redelivery is immediate."""
    backoff_max_ns: int
    ttl_ns: int | None
    """Idle time after which the subscription is deleted; None: never."""

    def backoff_ns(self, failures: int) -> int:
        """How long a message waits after its `failures`-th failed delivery (from 1)."""
        if self.backoff_min_ns < 0:
            return 0
        doubled = self.backoff_min_ns << min(failures - 1, 30)
        return min(self.backoff_max_ns, doubled)


def settings_of(resource: Pb) -> Settings:
    """Read a complete Subscription resource."""
    retry = resource.HasField("retry_policy")
    ttl_ns = duration_ns(resource.expiration_policy.ttl) if resource.expiration_policy.HasField("ttl") else None
    return Settings(
        ack_deadline_ns=resource.ack_deadline_seconds * NS_PER_S,
        retention_ns=duration_ns(resource.message_retention_duration),
        retain_acked=resource.retain_acked_messages,
        ordering=resource.enable_message_ordering,
        exactly_once=resource.enable_exactly_once_delivery,
        filter=parse(resource.filter) if resource.filter else None,
        dead_letter_topic=resource.dead_letter_policy.dead_letter_topic,
        delivery_attempts_max=resource.dead_letter_policy.max_delivery_attempts or limits.DELIVERY_ATTEMPTS_DEFAULT,
        backoff_min_ns=duration_ns(resource.retry_policy.minimum_backoff) if retry else -1,
        backoff_max_ns=duration_ns(resource.retry_policy.maximum_backoff) if retry else 0,
        ttl_ns=ttl_ns or None,
    )
