"""Due messages as they leave: their bytes with the outgoing attributes. Pure but for a cache of formatted seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from engine.due import format_time
from engine.model import Channel, Cluster
from engine.pubsub.wire import outgoing, request_size
from engine.state.rows import DUE_MS, PAYLOAD, SOURCE_ID, Row

SECONDS_CACHED_MAX: Final = 4096


class Prepared(NamedTuple):
    """What goes into one request, and what cannot."""

    messages: list[bytes]
    taken: int
    """How many of the rows, from the first, the request holds; the rest must wait for the next one."""
    dropped_attributes: int
    too_large: list[int]
    """Seqs among the first `taken` that are too big for any request, even bare."""


class Outbound:
    """Prepares the messages of one channel."""

    def __init__(self, cluster: Cluster, channel: Channel) -> None:
        self._prefix = f"{cluster.cluster_id}-{cluster.epoch}-"
        self._channel_id = channel.id
        self._seconds: dict[int, str] = {}

    def prepare(
        self,
        topic: str,
        seqs: Sequence[int],
        rows: Sequence[Row],
        released_ms: int,
        *,
        bytes_max: int,
        request_bytes_max: int,
    ) -> Prepared:
        """The first of `rows` that fit into one request of `bytes_max`; one alone may have `request_bytes_max`."""
        messages: list[bytes] = []
        too_large: list[int] = []
        size = dropped = taken = 0
        released = self._rfc3339(released_ms)
        for seq, row in zip(seqs, rows, strict=True):
            out = outgoing(
                row[PAYLOAD],
                added=(
                    ("scheduler-message-id", f"{self._prefix}{seq}"),
                    ("scheduler-due", self._rfc3339(row[DUE_MS])),
                    ("scheduler-released", released),
                    ("scheduler-source-message-id", row[SOURCE_ID]),
                    ("scheduler-channel", self._channel_id),
                ),
                topic=topic,
            )
            length = len(out.data)
            if messages and size + length > bytes_max:
                break
            taken += 1
            dropped += out.dropped
            if length > bytes_max and request_size(topic, out.data) > request_bytes_max:
                too_large.append(seq)
                continue
            size += length + 8  # tag and length of the entry in the request
            messages.append(out.data)
        return Prepared(messages, taken, dropped, too_large)

    def _rfc3339(self, milliseconds: int) -> str:
        second, rest = divmod(milliseconds, 1000)
        prefix = self._seconds.get(second)
        if prefix is None:
            if len(self._seconds) >= SECONDS_CACHED_MAX:
                self._seconds.clear()
            prefix = self._seconds[second] = format_time(second * 1000)[:-4]
        return f"{prefix}{rest:03d}Z"
