"""What this node shows of itself: channels with their live state, the cluster, health, the values of its metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from engine.clock import Clock
from engine.documents import render_channel
from engine.due import format_time
from engine.errors import Unavailable
from engine.metrics import Metrics, Sample
from engine.model import Channel
from engine.pubsub.errors import FailureKind
from engine.raft.log import Log, Role
from engine.relay import ChannelStatus, Relay
from engine.state.state import State
from engine.storage import Storage

TRANSIENT_FAILS_AFTER_MS: Final = 30_000
"""A side that could not reach Pub/Sub for this long is shown as failed; before that only its reason is."""
FAR_DUE_AGE_S: Final = 2.0
FAR_DUES_MAX: Final = 10_000


class Gone(Protocol):
    """Waits for the end of a channel."""

    def __call__(self, uid: int, timeout_s: float) -> bool: ...


class Views:
    """Read-only answers of one node."""

    def __init__(
        self,
        state: State,
        log: Log,
        relay: Callable[[], Relay | None],
        *,
        clock: Clock,
        metrics: Metrics,
        storage: Storage,
        node_addr: str,
        wait_gone: Gone,
    ) -> None:
        self._state = state
        self._log = log
        self._relay = relay
        self._clock = clock
        self._metrics = metrics
        self._storage = storage
        self._node_addr = node_addr
        self.wait_gone = wait_gone
        self._far_dues: dict[int, tuple[int | None, float]] = {}
        metrics.read_with(self._samples)

    # ---- channels ----------------------------------------------------------------------------------------------------

    def channels(self) -> list[dict[str, Any]]:
        """All channels, by id."""
        return [self.channel(channel) for channel in sorted(self._state.channels(), key=lambda c: c.id)]

    def channel(self, channel: Channel) -> dict[str, Any]:
        """One channel as the API shows it."""
        live = self._live(channel.uid)
        state, reason = describe(channel, live, self._clock.now_ms())
        return {
            **render_channel(channel),
            "state": state,
            "reason": reason,
            "stats": self._stats(channel, live),
        }

    def in_flight(self, channel: Channel) -> list[int]:
        """Seqs that are handed to the publisher; none on a node that does not lead."""
        relay = self._relay()
        return relay.in_flight(channel.uid) if relay is not None else []

    def _live(self, uid: int) -> ChannelStatus:
        relay = self._relay()
        return relay.status(uid) if relay is not None else ChannelStatus(None, None)

    def _stats(self, channel: Channel, live: ChannelStatus) -> dict[str, Any]:
        stats = self._state.stats(channel.uid)
        lane = live.lane
        head_ms = lane.head_ms if lane is not None else None
        if head_ms is None and stats.pending > (lane.in_flight if lane is not None else 0):
            head_ms = self._far_due(channel.uid)
        now_ms = self._clock.now_ms()
        overdue = head_ms is not None and head_ms <= now_ms
        return {
            "pending": stats.pending,
            "pending_bytes": stats.pending_bytes,
            "in_flight": lane.in_flight if lane is not None else 0,
            "quarantined": stats.quarantined,
            "accepted": stats.accepted,
            "released": stats.released,
            "duplicates": stats.duplicates,
            "discarded": stats.discarded,
            "next_due": None if head_ms is None or overdue else format_time(head_ms),
            "oldest_overdue": format_time(head_ms) if head_ms is not None and overdue else None,
            "lateness": lane.lateness if lane is not None else None,
        }

    def _far_due(self, uid: int) -> int | None:
        """The next due time beyond what is in memory; looked up anew after a while, since it reads a slot's index."""
        known = self._far_dues.get(uid)
        now_s = self._clock.elapsed_s()
        if known is None or now_s - known[1] > FAR_DUE_AGE_S:
            if len(self._far_dues) >= FAR_DUES_MAX:
                self._far_dues.clear()
            known = self._far_dues[uid] = (self._state.next_due(uid), now_s)
        return known[0]

    # ---- the node ----------------------------------------------------------------------------------------------------

    def cluster(self) -> dict[str, Any]:
        """The body of `GET /cluster`."""
        status = self._log.status()
        cluster = self._state.cluster()
        known = {node.addr: node for node in self._state.nodes()}
        nodes = []
        for address in self._log.members():
            node = known.get(address)
            nodes.append(
                {
                    "node_addr": address,
                    "state": str(status.role) if address == self._node_addr else "unknown",
                    "applied_index": status.applied_index,
                    "lag": status.commit_index - status.applied_index,
                    "api_addr": node.api_addr if node is not None else None,
                    "version": node.version if node is not None else None,
                    "clock_skew_ms": 0,
                    "last_seen": format_time(self._clock.now_ms()),
                }
            )
        return {
            "cluster_id": cluster.cluster_id if cluster is not None else None,
            "epoch": cluster.epoch if cluster is not None else None,
            "leader": status.leader,
            "term": status.term,
            "commit_index": status.commit_index,
            "nodes": nodes,
        }

    def health(self) -> dict[str, Any]:
        """Checklists: `live` = this process moves, `ready` = it can do its work. Channels never touch them."""
        status = self._log.status()
        relay = self._relay()
        live = [_check("log", status.fatal is None, status.fatal or "")]
        behind = status.commit_index - status.applied_index
        ready = [
            *live,
            _check("leader", status.leader is not None, "no node leads"),
            _check("applied", behind < 10_000, f"{behind} entries are committed and not yet applied"),
            _check("disk", not status.disk_full, "the disk is full; nothing is accepted until there is room"),
        ]
        room = self._storage.room()
        if room.short:
            detail = f"only {room.free_bytes >> 20} MiB are free; nothing is accepted, releasing goes on"
            ready.append({"name": "disk-reserve", "status": "warn", "detail": detail})
        if status.role is Role.LEADER and relay is None:
            ready.append(_check("relay", ok=False, detail="leads, but does not yet listen and release"))
        return {"live": live, "ready": ready}

    def metrics(self) -> bytes:
        """The Prometheus text of this engine."""
        return self._metrics.exposition()

    def secret_key(self) -> str:
        """Django's SECRET_KEY as made at the founding."""
        cluster = self._state.cluster()
        if cluster is None:
            raise Unavailable("the cluster is not founded yet", reason="NOT_FOUNDED")
        return cluster.secret_key

    def _samples(self) -> Iterator[Sample]:
        """Values of the metrics that are read when asked for."""
        status = self._log.status()
        now_ms = self._clock.now_ms()
        yield Sample("leader", float(status.role is Role.LEADER))
        yield Sample("term", status.term)
        yield Sample("commit_index", status.commit_index)
        yield Sample("applied_index", status.applied_index)
        yield Sample("synced_index", status.synced_index)
        yield Sample("stored_index", self._state.stored_index)
        yield Sample("log_bytes", status.log_bytes)
        yield Sample("disk_free_bytes", self._storage.room().free_bytes)
        yield Sample("active_table_bytes", self._state.active_bytes())
        for channel in self._state.channels():
            stats, live = self._state.stats(channel.uid), self._live(channel.uid)
            lane = live.lane
            head_ms = lane.head_ms if lane is not None and lane.head_ms is not None else now_ms
            state, _ = describe(channel, live, now_ms)
            yield Sample("pending_messages", stats.pending, channel.id)
            yield Sample("pending_bytes", stats.pending_bytes, channel.id)
            yield Sample("quarantined_messages", stats.quarantined, channel.id)
            yield Sample("in_flight_messages", lane.in_flight if lane is not None else 0, channel.id)
            yield Sample("oldest_overdue_seconds", max(0, now_ms - head_ms) / 1000, channel.id)
            yield Sample("channel_failed", float(state == "failed"), channel.id)
            yield Sample("accepted_messages", stats.accepted, channel.id)
            yield Sample("released_messages", stats.released, channel.id)
            yield Sample("duplicate_messages", stats.duplicates, channel.id)
            yield Sample("discarded_messages", stats.discarded, channel.id)
            yield Sample("stale_confirms", stats.stale_confirms, channel.id)


def describe(channel: Channel, live: ChannelStatus, now_ms: int) -> tuple[str, str | None]:
    """The channel's `state` and, in words, the reason for it."""
    failures = []
    if live.source is not None and live.source.failure is not None:
        failures.append((live.source.failure, live.source.since_ms))
    if live.lane is not None and live.lane.failure is not None:
        failures.append((live.lane.failure, live.lane.failing_since_ms or now_ms))
    reason = "; ".join(failure.reason for failure, _ in failures) or None
    if channel.closing is not None:
        return "closing", reason
    lasting = any(
        failure.kind is FailureKind.CHANNEL or now_ms - since_ms >= TRANSIENT_FAILS_AFTER_MS
        for failure, since_ms in failures
    )
    if lasting:
        return "failed", reason
    if channel.paused_listen is not None or channel.paused_release is not None:
        pause = channel.paused_listen or channel.paused_release
        return "paused", reason or (pause.reason if pause is not None else None) or None
    return "active", reason


def _check(name: str, ok: bool, detail: str) -> dict[str, str]:
    return {"name": name, "status": "ok" if ok else "fail", "detail": "" if ok else detail}
