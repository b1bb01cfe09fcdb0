"""Every limit of the local Pub/Sub, in one place.

Those of the service carry the service's name for them in the comment; the rest are our own bounds. All of them are
plain constants: a test that needs another value passes it to `Emulator(...)` where there is a parameter for it.
"""

from __future__ import annotations

from typing import Final

PUBLISH_MESSAGES_MAX: Final = 1_000
"""message_count of one Publish request."""

PUBLISH_BYTES_MAX: Final = 10_000_000
"""request_size of one Publish request, overhead included."""

ATTRIBUTES_MAX: Final = 100
ATTRIBUTE_KEY_BYTES_MAX: Final = 256
ATTRIBUTE_VALUE_BYTES_MAX: Final = 1_024
ORDERING_KEY_BYTES_MAX: Final = 1_024

ACK_REQUEST_BYTES_MAX: Final = 524_288
"""Size of an Acknowledge, ModifyAckDeadline or later StreamingPull request."""

ACK_DEADLINE_S_MIN: Final = 10
ACK_DEADLINE_S_MAX: Final = 600
ACK_DEADLINE_S_DEFAULT: Final = 10

MODACK_S_MAX: Final = 600

RETENTION_S_MIN: Final = 600
RETENTION_S_MAX: Final = 31 * 86_400
RETENTION_S_DEFAULT: Final = 7 * 86_400

EXPIRATION_S_MIN: Final = 86_400
EXPIRATION_S_DEFAULT: Final = 31 * 86_400

BACKOFF_S_MAX: Final = 600
BACKOFF_MIN_S_DEFAULT: Final = 10
BACKOFF_MAX_S_DEFAULT: Final = 600

DELIVERY_ATTEMPTS_MIN: Final = 5
DELIVERY_ATTEMPTS_MAX: Final = 100
DELIVERY_ATTEMPTS_DEFAULT: Final = 5

FILTER_BYTES_MAX: Final = 256
FILTER_DEPTH_MAX: Final = 64

SNAPSHOT_LIFE_S: Final = 7 * 86_400
SNAPSHOT_LIFE_S_MIN: Final = 3_600

LABELS_MAX: Final = 64

PAGE_SIZE_DEFAULT: Final = 100
PAGE_SIZE_MAX: Final = 1_000

RESPONSE_MESSAGES_MAX: Final = 1_000
"""Messages in one Pull or StreamingPull response; ack ids count them in three digits."""

RESPONSE_BYTES_MAX: Final = 3_500_000
"""A response of several messages stays below the 4 MiB that a client's channel takes by default."""

PULL_WAIT_S: Final = 1.0
"""How long a Pull without `return_immediately` waits for a first message, in real time."""

STREAM_LIFE_S: Final = 1_800.0
"""The service ends a stream with UNAVAILABLE about every half hour."""

STREAMS_MAX: Final = 400
"""Open StreamingPull calls: each holds one thread of the server's pool and one that reads."""

SERVER_THREADS_MAX: Final = 600
"""Threads for calls: open streams, waiting Pulls, calls held back by a fault."""

BACKLOG_BYTES_MAX: Final = 2_000_000_000
"""Bytes held for all subscriptions, snapshots and retention together; beyond it Publish is refused."""

MESSAGE_OVERHEAD_BYTES: Final = 150
"""What a held message costs beside its bytes, roughly: its tuple, its number, its place in a queue."""

CACHED_LENGTHS_MAX: Final = 16_384
"""Entries of each table of precomputed wire headers."""

DEADLINES_KEPT_MIN: Final = 4_096
"""Deadlines noted before those without a lease are cleared out."""

REMEMBERED_ACKS_MAX: Final = 100_000
"""Acked ids that an exactly-once subscription still accepts, so that a repeated Acknowledge succeeds."""

HOUSEKEEPING_S: Final = 1.0
"""Longest time between two looks at retention, expiration and snapshots."""

KEEPALIVE_PING_MS_MIN: Final = 5_000
"""Clients may ping an idle connection this often without being sent away."""

CALL_HOLD_S_MAX: Final = 3_600.0
"""Longest time that a dropped or delayed call is held."""

COLLECTOR_ALLOCATIONS: Final = 100_000
"""Net allocations between two runs of the garbage collector in a server process."""

CONTROL_BYTES_MAX: Final = 1_000_000
FAULTS_MAX: Final = 1_000
