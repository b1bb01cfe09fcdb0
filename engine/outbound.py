"""Due messages as they leave: their bytes with the outgoing attributes. Pure but for caches of formatted parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from engine.config import PubSubLimits
from engine.due import format_time
from engine.model import Channel, Cluster
from engine.pubsub.wire import attribute_template, outgoing, request_size, strip_inputs, surely_fits
from engine.state.rows import DUE_MS, PAYLOAD, SOURCE_ID, Row

MESSAGE_ID: Final = "scheduler-message-id"
DUE: Final = "scheduler-due"
RELEASED: Final = "scheduler-released"
SOURCE_MESSAGE_ID: Final = "scheduler-source-message-id"
CHANNEL: Final = "scheduler-channel"
ADDED: Final = 5

CACHED_MAX: Final = 4096
"""Formatted seconds and templates kept; a full cache is emptied."""
SMALL_BYTES: Final = 2048
"""Below this size a message cannot be near the service's limit of bytes, and counting its tags is quick."""
TIME_BYTES: Final = len("2026-01-01T00:00:00.000Z")


class Prepared(NamedTuple):
    """What goes into one request, and what cannot."""

    messages: list[bytes]
    taken: int
    """How many of the rows, from the first, the request holds; the rest must wait for the next one."""
    dropped_attributes: int
    too_large: list[int]
    """Seqs among the first `taken` that are too big for any request, even bare."""


class Outbound:
    """Prepares the messages of one channel.

    The attributes of nearly all messages differ in three values only, so they are one template filled in; what is near
    a limit of the service goes through `outgoing`, which counts exactly.
    """

    def __init__(self, cluster: Cluster, channel: Channel, limits: PubSubLimits) -> None:
        self._prefix = f"{cluster.cluster_id}-{cluster.epoch}-".encode()
        self._channel_id = channel.id
        self._limits = limits
        self._seconds: dict[int, bytes] = {}
        self._templates: dict[tuple[int, int], bytes] = {}

    def prepare(self, topic: str, seqs: Sequence[int], rows: Sequence[Row], released_ms: int) -> Prepared:
        """The first of `rows` that fit into one request; one alone may be as large as the service allows."""
        limits = self._limits
        messages: list[bytes] = []
        too_large: list[int] = []
        size = dropped = taken = 0
        tags_max = limits.attributes_max - ADDED
        released, prefix, templates = self._rfc3339(released_ms), self._prefix, self._templates
        known_ms, due = released_ms, released
        for seq, row in zip(seqs, rows, strict=True):
            payload = row[PAYLOAD]
            identity = b"%b%d" % (prefix, seq)
            source = row[SOURCE_ID].encode()
            due_ms = row[DUE_MS]
            if due_ms != known_ms:
                known_ms, due = due_ms, self._rfc3339(due_ms)
            template = templates.get((len(identity), len(source))) or self._template(len(identity), len(source))
            bare = strip_inputs(payload)
            data = bare + template % (identity, due, released, source)
            length = len(data)
            # Each attribute begins with one of two bytes: a small message with few of them is within all limits.
            few = length < SMALL_BYTES and bare.count(b"\x12") + bare.count(b"\x92") <= tags_max
            if not few and not surely_fits(bare, length, ADDED, limits):
                data, missing = outgoing(payload, added=self._attributes(seq, row, due, released), topic=topic)
                dropped += missing
                length = len(data)
            if messages and size + length > limits.publish_bytes_max:
                break
            taken += 1
            if length > limits.publish_bytes_max and request_size(topic, data) > limits.request_bytes_max:
                too_large.append(seq)
                continue
            size += length + 8  # tag and length of the entry in the request
            messages.append(data)
        return Prepared(messages, taken, dropped, too_large)

    def _attributes(self, seq: int, row: Row, due: bytes, released: bytes) -> tuple[tuple[str, str], ...]:
        """In the order in which they are given up last to first when there is no room."""
        return (
            (MESSAGE_ID, f"{self._prefix.decode()}{seq}"),
            (DUE, due.decode()),
            (RELEASED, released.decode()),
            (SOURCE_MESSAGE_ID, row[SOURCE_ID]),
            (CHANNEL, self._channel_id),
        )

    def _template(self, identity_bytes: int, source_bytes: int) -> bytes:
        """All five attributes for values of these lengths: id, due, released and source id are to be filled in."""
        channel = self._channel_id.encode()
        template = b"".join(
            (
                attribute_template(MESSAGE_ID, identity_bytes),
                attribute_template(DUE, TIME_BYTES),
                attribute_template(RELEASED, TIME_BYTES),
                attribute_template(SOURCE_MESSAGE_ID, source_bytes),
                attribute_template(CHANNEL, len(channel)).removesuffix(b"%b"),
                channel.replace(b"%", b"%%"),
            )
        )
        if len(self._templates) >= CACHED_MAX:
            self._templates.clear()
        self._templates[identity_bytes, source_bytes] = template
        return template

    def _rfc3339(self, milliseconds: int) -> bytes:
        second, rest = divmod(milliseconds, 1000)
        prefix = self._seconds.get(second)
        if prefix is None:
            if len(self._seconds) >= CACHED_MAX:
                self._seconds.clear()
            prefix = self._seconds[second] = format_time(second * 1000)[:-4].encode()
        return b"%b%03dZ" % (prefix, rest)
