"""Every metric of the engine: name, unit, meaning, and what to do about it.

One registry per engine; the web side fetches the exposition over the control socket, so `/metrics` is one view of one
process. Labels are channel ids and a few fixed words: never message ids, keys or addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.histogram import BatchHistogram

PREFIX: Final = "event_scheduler_"


class Sample(NamedTuple):
    """One value of a metric that is read when asked for."""

    name: str
    value: float
    channel: str | None = None


GAUGES: Final[dict[str, str]] = {
    "pending_messages": "Messages waiting for their time. Grows with what is published ahead; compare with disk space.",
    "pending_bytes": "Bytes of those messages.",
    "quarantined_messages": "Messages set aside with a reason. Anything above 0 wants a person: list them.",
    "in_flight_messages": "Handed to the publisher and not yet confirmed. Stuck above 0 means publishing hangs.",
    "oldest_overdue_seconds": "How long the oldest due message has waited. Alert on minutes.",
    "channel_failed": "1 while the channel's source or destination cannot be used; its reason is in the API.",
    "leader": "1 on the node that leads.",
    "term": "Raft term; a jump is an election.",
    "commit_index": "Last committed log entry.",
    "applied_index": "Last applied log entry; lagging behind commit_index means apply is the bottleneck.",
    "synced_index": "Last log entry on this node's disk.",
    "stored_index": "Log entry up to which state.db holds everything; restart replays from here.",
    "log_bytes": "Size of the log on disk; grows when boundaries stop.",
    "disk_free_bytes": "Free space where this node keeps its files.",
    "active_table_bytes": "State in memory that no boundary has written yet.",
}

COUNTERS: Final[dict[str, str]] = {
    "accepted_messages": "Messages made safe, pending or quarantined.",
    "released_messages": "Messages published and confirmed.",
    "duplicate_messages": "Redeliveries of the source that were recognised and dropped.",
    "discarded_messages": "Messages dropped by policy, as a loop, or with their channel.",
    "stale_confirms": "Confirms of messages no longer here: each may have been a repeated release.",
}


class Metrics(Collector):
    """The engine's registry: counters that the flows move, and values read from the state when asked for."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._read: Callable[[], Iterable[Sample]] | None = None
        self.lateness = BatchHistogram(
            PREFIX + "lateness_seconds",
            "Publish time minus due time, of messages accepted before they were due. Below 0 is a bug.",
        )
        self.transit = BatchHistogram(
            PREFIX + "transit_seconds", "Publish time minus accept time, of messages that were due when they came."
        )
        self.accept = BatchHistogram(
            PREFIX + "accept_seconds", "From receiving a message to the commit of its Accept, when it may be acked."
        )
        self.sync_seconds = Histogram(
            PREFIX + "log_sync_seconds",
            "Time of one fdatasync of the log. Everything accepted waits for it: above 0.05 look at the disk.",
            buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 5.0),
            registry=self.registry,
        )
        self.publish_errors = Counter(
            PREFIX + "publish_errors", "Refused Publish calls by kind.", ["channel", "kind"], registry=self.registry
        )
        self.early_releases = Counter(
            PREFIX + "early_releases", "Messages published before their time: a bug.", registry=self.registry
        )
        self.dropped_attributes = Counter(
            PREFIX + "dropped_attributes",
            "scheduler-… attributes that did not fit beside the producer's own.",
            ["channel"],
            registry=self.registry,
        )
        self.clock_steps = Counter(
            PREFIX + "clock_steps", "Forward steps of the wall clock over a second.", registry=self.registry
        )
        for histogram in (self.lateness, self.transit, self.accept):
            self.registry.register(histogram)
        self.registry.register(self)

    def read_with(self, read: Callable[[], Iterable[Sample]]) -> None:
        """Where the values of GAUGES and COUNTERS come from."""
        self._read = read

    def forget(self, channel: str) -> None:
        """Drop the series of a channel that is gone."""
        for histogram in (self.lateness, self.transit, self.accept):
            histogram.forget(channel)

    def collect(self) -> Iterable[Metric]:
        """The families that are read from the state."""
        gauges: dict[str, GaugeMetricFamily] = {}
        counters: dict[str, CounterMetricFamily] = {}
        for sample in self._read() if self._read else ():
            labels = [] if sample.channel is None else ["channel"]
            values = [] if sample.channel is None else [sample.channel]
            if sample.name in GAUGES:
                gauge = gauges.get(sample.name) or GaugeMetricFamily(
                    PREFIX + sample.name, GAUGES[sample.name], labels=labels
                )
                gauges[sample.name] = gauge
                gauge.add_metric(values, sample.value)
            else:
                counter = counters.get(sample.name) or CounterMetricFamily(
                    PREFIX + sample.name, COUNTERS[sample.name], labels=labels
                )
                counters[sample.name] = counter
                counter.add_metric(values, sample.value)
        return [*gauges.values(), *counters.values()]

    def exposition(self) -> bytes:
        """Everything in the Prometheus text format."""
        return generate_latest(self.registry)
