"""Every limit of the engine, by name, with its unit and reason. No other module holds a default of a limit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from engine.environment import default_channel, port_of, seconds_of
from engine.errors import ConfigError

KIB = 1024
MIB = 1024 * KIB

NODE_HOST: Final = "localhost"
NODE_PORT: Final = 5559
SHUTDOWN_GRACE_S: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLimits:
    """The log on disk."""

    segment_bytes: int = 64 * MIB
    """A segment is closed at this size; the log is cut in whole segments."""
    entry_bytes: int = 32 * MIB
    """One entry: an Accept holds at most one oversized message (10 MB) or 512 KiB of small ones."""
    tail_bytes: int = 16 * MIB
    """Entries kept in memory; older ones are read back from their segment."""
    queue_bytes: int = 64 * MIB
    """Submitted and not yet applied; beyond it `submit` answers QUEUE_FULL."""
    group_bytes: int = 8 * MIB
    """One group commit writes at most this much before it syncs."""
    apply_slice_s: float = 0.02
    """Applying committed entries yields after this long, so that nothing else waits for it."""
    full_retry_min_s: float = 0.1
    full_retry_max_s: float = 5.0
    """Time between two attempts to write while the disk is full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLimits:
    """The replica's state and its file."""

    boundary_period_s: float = 1.0
    """Time between two boundaries: what lives shorter never reaches the disk twice."""
    boundary_bytes: int = 32 * MIB
    """The active memory table is frozen early when it holds this much."""
    active_bytes: int = 64 * MIB
    """When the active table grows beyond this while a boundary is being written, ingest waits."""
    transaction_rows: int = 400
    """Rows of one multi-row INSERT: executemany gives up the GIL per row."""
    cache_kib: int = 16 * 1024
    """SQLite's page cache of the writer."""
    read_chunk: int = 500
    """Seqs of one SELECT … IN."""
    disk_reserve_bytes: int = 256 * MIB
    """With less free space than this nothing is accepted: messages stay at the source, releasing goes on."""
    disk_reserve_percent: int = 5
    """The reserve is at most this part of the file system."""
    results_max: int = 100_000
    """Remembered idempotency keys; beyond it a request with a key is answered 503."""
    result_window_ms: int = 24 * 3600 * 1000
    """How long the outcome of an idempotency key is remembered."""
    results_purged_max: int = 1000
    """Expired outcomes that one command forgets, so that its work stays bounded."""
    statement_bytes: int = MIB
    """Bytes of one multi-row INSERT: binding them holds the GIL."""
    window_chunk: int = 20_000
    """Keys of the due index read at once; turning them into numbers holds the GIL for about 2 ms."""
    seqs_cached: int = 50_000
    """Seqs of one channel read ahead while it is deleted in slices."""
    readers_max: int = 4
    """Read connections kept open; beyond them a reader waits."""
    reader_cache_kib: int = 2 * 1024
    """SQLite's page cache of each reader; the system's own cache stands behind it."""
    busy_timeout_s: float = 0.25
    """How long SQLite waits for another process's lock before the boundary is tried again."""
    wal_bytes: int = 32 * MIB
    """Beyond it the write-ahead file is emptied after a boundary, readers permitting."""
    vacuum_pages: int = 1000
    """Free pages given back to the disk after one boundary: 4 MB, a few milliseconds."""
    vacuum_kept_pages: int = 4096
    """Free pages that are kept for the next rows."""
    boundary_retry_s: float = 1.0
    """Time between two attempts to write a boundary while the disk is full or the file locked."""
    dedupe_window_min_ms: int = 15 * 60 * 1000
    """A channel's dedupe window is never shorter: Pub/Sub redelivers for this long after an ack was lost."""
    listening_step_ms: int = 10_000
    """Between two Accepts at most this much counts as listening time, so that an outage forgets nothing."""
    listening_minute_ms: int = 60_000
    """Source messages are remembered, and forgotten, in runs of this much listening time."""
    seen_part_ids: int = 20_000
    """Source messages of one row of `seen`."""
    seen_cache_bytes: int = 32 * MIB
    """Runs kept readable while redelivered messages are compared with them."""


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
    publish_bytes_max: int = 9_500_000
    """Bytes of one Publish request with several messages; one message alone may reach 10,000,000."""
    request_bytes_max: int = 10_000_000
    """The service's limit of one Publish request."""
    attributes_max: int = 100
    """The service's limit of attributes on one message."""
    topic_bytes_max: int = 512
    """Set aside for the topic's name in a request while it is not known."""
    publish_deadline_s: float = 10.0
    """A Publish call that has no answer after this long is cancelled and repeated."""
    backoff_min_s: float = 0.1
    backoff_max_s: float = 60.0
    """Back-off with jitter between attempts to open a stream or to recover a failed channel."""
    reconnect_backoff_max_s: float = 5.0
    """gRPC's own pause between attempts to connect a broken connection."""
    channel_backoff_min_s: float = 1.0
    channel_backoff_max_s: float = 30.0
    """The same while the channel itself is wrong: a missing subscription, no permission, a bad key."""
    stream_settled_s: float = 5.0
    """A stream that lived this long was a good one: its end, about every 30 min, is no failure."""
    stream_confirm_s: float = 0.25
    """A stream that was sent and not refused for this long counts as streaming, although nothing was received yet."""
    heartbeat_s: float = 30.0
    """Time between empty requests on the stream: the service closes one that is idle for 60 s."""
    keepalive_s: float = 30.0
    """Time between HTTP/2 pings on a connection to the real service."""
    key_file_poll_s: float = 10.0
    """A key file is looked at again at most this often; a changed one takes effect by a new connection."""
    connection_users_max: int = 40
    """Sources and sinks on one connection: the service allows about 100 concurrent streams on it."""
    ack_attempts_max: int = 5
    """Attempts of one ack or lease request; given up, the message is redelivered and recognised as a duplicate."""
    acks_in_flight_max: int = 2
    """Ack requests in flight per source; more ids gather meanwhile."""
    ack_queue_max: int = 100_000
    """Ack ids that wait per source; beyond it they are given up at once."""
    ack_timeout_s: float = 10.0
    """One ack or lease request."""
    check_timeout_s: float = 10.0
    """One question of a connection test."""
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
    publishes_in_flight_max: int = 4
    """Publish calls in flight per channel."""
    keyed_in_flight_max: int = 32
    """The same where each request holds the messages of one ordering key."""
    parked_messages_max: int = 10_000
    """Messages of a channel that may wait behind busy ordering keys before nothing more is taken."""
    ready_messages_max: int = 20_000
    """Messages that were due when they came and wait in the order of (due, seq); beyond it they go to the timeline."""
    overdue_messages_max: int = 10_000
    """With so many due messages waiting on a channel that can release, it accepts nothing more: what is released
    within a second or two never has to be written to state.db, and is not late because of later ones."""
    unconfirmed_messages_max: int = 20_000
    """Messages of a channel that may be published and not yet confirmed before nothing more is taken: while a full disk
    stops Confirms, this many at most are published again after a crash."""
    pickup_bytes: int = 32 * MIB
    """Payload read from state.db at once for publishing; 500 due messages of 10 MB are not read together."""
    confirms_in_flight_max: int = 2
    """Confirm entries in flight per channel; more published messages gather meanwhile."""
    confirm_messages_max: int = 4000
    """Messages named by one Confirm."""
    confirm_retry_s: float = 0.5
    """Wait after the log refused a Confirm."""
    lease_retry_s: float = 0.05
    """Wait while the leader's lease does not cover a publish."""
    publish_batch_messages: int = 500
    """Messages of one Publish under load; the service allows 1000."""
    crowded_retry_s: float = 0.02
    """Wait while nothing more is to be accepted: the file is behind or the disk is nearly full."""
    commit_patience_s: float = 60.0
    """When nothing commits for this long the stream is closed instead of extending leases for ever."""
    lease_extend_s: float = 5.0
    """Age at which an uncommitted message's lease is extended."""
    clock_step_ms: int = 1000
    """A wall clock that is set by more than this is reported."""
    horizon_period_s: float = 30.0
    """How often it is checked whether the next slot of the due index must be loaded."""
    tend_period_s: float = 1.0
    """Leases, retries, resumption of pauses and deletions are looked after this often."""
    transition_timeout_s: float = 12.0
    """Stopping one side of a channel waits this long for its calls; longer than a publish deadline."""
    transitions_max: int = 8
    """Channels that start, stop or change at the same time."""
    slice_messages_max: int = 1000
    """Messages of one sliced operation's entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlLimits:
    """The control socket."""

    connections_max: int = 64
    """Connections at the same time; one more is closed at once."""
    frame_bytes_max: int = 16 * MIB
    """One request or answer."""
    request_timeout_s: float = 10.0
    """One call, from sending it to its answer."""
    accept_pause_s: float = 0.1
    """Accepting connections rests for this long when the system refuses one."""
    merge_attempts_max: int = 5
    """A patch without an expected revision is merged again this often when the channel changed meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportLimits:
    """Connections between nodes."""

    fragment_bytes: int = 64 * KIB
    """A longer message travels in pieces of this size; an urgent message is at most one of them."""
    message_bytes_max: int = 33 * MIB
    """One message: the largest entry of the log and what is said about it."""
    queue_bytes: int = 64 * MIB
    """Waiting on one connection; beyond it `send` answers False. One message may exceed it."""
    urgent_bytes: int = MIB
    """The same for urgent messages, which have room of their own."""
    gather_bytes: int = 256 * KIB
    """Frames made ahead for one write; an urgent message waits for no more than these and `unsent_bytes`."""
    unsent_bytes: int = 128 * KIB
    """Bytes that the kernel may hold unsent before it calls a connection writable (TCP_NOTSENT_LOWAT)."""
    handshake_bytes: int = 4 * KIB
    """The body of one frame before the other end has proven who it is."""
    handshake_timeout_s: float = 3.0
    """From the first byte to the end of the handshake."""
    arriving_max: int = 64
    """Accepted connections without a handshake; with one more the oldest is closed."""
    peer_connections_max: int = 4
    """Connections to one name; with one more the oldest is closed."""
    strangers_max: int = 16
    """Connected nodes that are no members, while such are let in at all."""
    fences_max: int = 1000
    """Fenced processes that are remembered."""
    connect_timeout_s: float = 1.0
    """One attempt to connect to one address."""
    resolve_timeout_s: float = 5.0
    """One attempt to resolve a name."""
    resolvers_max: int = 8
    """Names that are being resolved at the same time."""
    addresses_max: int = 8
    """Addresses of one name that are tried."""
    retry_min_s: float = 0.1
    retry_max_s: float = 3.0
    """Pause, with jitter, after a failed attempt to connect; it doubles from one to the next."""
    settled_s: float = 2.0
    """A connection that stood this long was a good one: the next pause is short again."""
    accept_pause_s: float = 0.5
    """Accepting rests for this long when there are no descriptors left."""
    ping_period_s: float = 1.0
    """Time between two questions for a sign of life on each connection."""
    idle_timeout_s: float = 5.0
    """A connection on which nothing came, or nothing was confirmed, for this long is closed."""
    close_timeout_s: float = 2.0
    """Stopping waits this long for what is still to be sent."""
    tick_s: float = 0.05
    """Deadlines are looked at this often."""
    log_period_s: float = 60.0
    """The same refusal or failure is logged once in this time, with a count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """All limits; tests build one with smaller values."""

    journal: JournalLimits = field(default_factory=JournalLimits)
    state: StateLimits = field(default_factory=StateLimits)
    pubsub: PubSubLimits = field(default_factory=PubSubLimits)
    flow: FlowLimits = field(default_factory=FlowLimits)
    control: ControlLimits = field(default_factory=ControlLimits)
    transport: TransportLimits = field(default_factory=TransportLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """What one node's engine is started with."""

    storage_path: Path
    node_host: str = NODE_HOST
    node_port: int = NODE_PORT
    initial_nodes: tuple[str, ...] = (f"{NODE_HOST}:{NODE_PORT}",)
    api_addr: str | None = None
    """Where this node's web side can be reached, `host:port`; shown in `GET /cluster`."""
    key_files_dir: Path | None = None
    """When set, `key_file` of a channel is a name inside this directory and nothing else."""
    default_channel: Mapping[str, Any] | None = None
    """Body of the channel `default`, created once in the cluster's life."""
    emulator_host: str | None = None
    """`PUBSUB_EMULATOR_HOST`: talk to that emulator, without credentials."""
    shutdown_grace_s: float = SHUTDOWN_GRACE_S
    limits: Limits = field(default_factory=Limits)

    @property
    def node_addr(self) -> str:
        """Where the other nodes reach this one, `host:port`."""
        return f"{self.node_host}:{self.node_port}"

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> EngineConfig:
        """The engine's part of the environment; ConfigError names the variable, its value and what is allowed."""
        host = environ.get("CLUSTER_NODE_HOST") or NODE_HOST
        if not host.strip() or any(c in host for c in "/, "):
            raise ConfigError(f"CLUSTER_NODE_HOST={host!r} is no host name or address")
        port = port_of(environ, "CLUSTER_NODE_PORT", NODE_PORT)
        own = f"{host}:{port}"
        nodes = tuple(n.strip() for n in (environ.get("CLUSTER_INITIAL_NODES") or own).split(",") if n.strip())
        for node in nodes:
            name, _, number = node.rpartition(":")
            if not name or not number.isdecimal() or not 0 < int(number) < 65536:
                raise ConfigError(f"CLUSTER_INITIAL_NODES={node!r}: each member is host:port, separated by commas")
        if set(nodes) != {own}:
            raise ConfigError(
                f"CLUSTER_INITIAL_NODES={','.join(nodes)!r}: this version runs a cluster of one node, so only this"
                f" node's own {own!r} is allowed"
            )
        key_files = environ.get("KEY_FILES_DIR")
        if key_files and not Path(key_files).is_dir():
            raise ConfigError(f"KEY_FILES_DIR={key_files!r} is no directory")
        return cls(
            storage_path=Path(environ.get("STORAGE_PATH") or "storage"),
            node_host=host,
            node_port=port,
            initial_nodes=nodes,
            key_files_dir=Path(key_files) if key_files else None,
            default_channel=default_channel(environ),
            emulator_host=environ.get("PUBSUB_EMULATOR_HOST") or None,
            shutdown_grace_s=seconds_of(environ, "SHUTDOWN_GRACE_SECONDS", SHUTDOWN_GRACE_S),
        )
