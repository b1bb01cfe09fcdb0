"""Every limit of the engine, by name, with its unit and reason. No other module holds a default of a limit."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLimits:
    """The log on disk."""

    segment_bytes: int = 64 * MIB
    """A segment is closed at this size; the log is cut in whole segments."""
    entry_bytes: int = 32 * MIB
    """One entry: an Accept holds at most one oversized message (10 MB) or 512 KiB of small ones."""
    tail_bytes: int = 64 * MIB
    """Entries kept in memory; older ones are read back from their segment."""
    queue_bytes: int = 64 * MIB
    """Submitted and not yet synced; beyond it `submit` answers QUEUE_FULL."""
    group_bytes: int = 8 * MIB
    """One group commit writes at most this much before it syncs."""
    apply_slice_s: float = 0.02
    """Applying committed entries yields after this long, so that nothing else waits for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLimits:
    """The replica's state and its file."""

    boundary_period_s: float = 1.0
    """Time between two boundaries: what lives shorter never reaches the disk twice."""
    boundary_bytes: int = 64 * MIB
    """The active memory table is frozen early when it holds this much."""
    active_bytes: int = 256 * MIB
    """When the active table grows beyond this while a boundary is being written, ingest waits."""
    transaction_rows: int = 400
    """Rows of one multi-row INSERT: executemany gives up the GIL per row."""
    cache_kib: int = 16 * 1024
    """SQLite's page cache of the writer."""
    read_chunk: int = 500
    """Seqs of one SELECT … IN."""
    results_max: int = 100_000
    """Remembered idempotency keys; beyond it a request with a key is answered 503."""
    result_window_ms: int = 24 * 3600 * 1000
    """How long the outcome of an idempotency key is remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PubSubLimits:
    """The source and the sink."""

    stream_window_messages: int = 10_000
    """Unacked messages that Pub/Sub may have outstanding on one stream."""
    stream_window_bytes: int = 128 * MIB
    """The same in bytes."""
    ack_deadline_s: int = 10
    """Stream ack deadline: what a killed node held comes back after it."""
    ack_ids_max: int = 1000
    """Ack ids of one request; the service refuses requests over 512 KiB."""
    ack_bytes_max: int = 480 * KIB
    """Bytes of one ack request."""
    publish_messages_max: int = 1000
    """Messages of one Publish request (the service's limit)."""
    publish_bytes_max: int = 9_500_000
    """Bytes of one Publish request with several messages; one message alone may reach 10,000,000."""
    request_bytes_max: int = 10_000_000
    """The service's limit of one Publish request."""
    publish_deadline_s: float = 10.0
    """A Publish call that has no answer after this long is cancelled and repeated."""
    backoff_min_s: float = 0.1
    backoff_max_s: float = 60.0
    """Back-off with jitter between attempts to open a stream or to recover a failed channel."""
    watchdog_s: float = 90.0
    """A stream on which nothing was received or answered for this long is opened again on a new connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """Listener and releaser."""

    accepts_in_flight_max: int = 4
    """Accept entries in flight per channel; below it an entry is submitted at once, without linger."""
    entry_messages_max: int = 500
    """Messages gathered into one Accept."""
    entry_bytes_max: int = 512 * KIB
    """Bytes gathered into one Accept; one larger message travels alone."""
    acks_in_flight_max: int = 2
    publishes_in_flight_max: int = 4
    """Publish calls in flight per channel."""
    confirms_in_flight_max: int = 2
    confirm_messages_max: int = 4000
    """Messages named by one Confirm."""
    publish_batch_messages: int = 500
    """Messages of one Publish under load; the service allows 1000."""
    commit_patience_s: float = 60.0
    """When nothing commits for this long the stream is closed instead of extending leases for ever."""
    lease_extend_s: float = 5.0
    """Age at which an uncommitted message's lease is extended."""
    slice_messages_max: int = 1000
    """Messages of one sliced operation's entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlLimits:
    """The control socket."""

    connections_max: int = 64
    frame_bytes_max: int = 16 * MIB
    request_timeout_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """All limits; tests build one with smaller values."""

    journal: JournalLimits = field(default_factory=JournalLimits)
    state: StateLimits = field(default_factory=StateLimits)
    pubsub: PubSubLimits = field(default_factory=PubSubLimits)
    flow: FlowLimits = field(default_factory=FlowLimits)
    control: ControlLimits = field(default_factory=ControlLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """What one node's engine is started with."""

    storage_path: Path
    node_host: str = "localhost"
    node_port: int = 5559
    initial_nodes: tuple[str, ...] = ("localhost:5559",)
    key_files_dir: Path | None = None
    emulator_host: str | None = None
    """`PUBSUB_EMULATOR_HOST`: talk to that emulator, without credentials."""
    shutdown_grace_s: float = 20.0
    limits: Limits = field(default_factory=Limits)

    @property
    def node_addr(self) -> str:
        """Where the other nodes reach this one, `host:port`."""
        return f"{self.node_host}:{self.node_port}"
