"""Fetches due messages from the state: those that are still there, and none that is damaged."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple, Protocol, cast

import structlog

from engine.errors import DamagedError
from engine.lane import Lane
from engine.state.rows import PAYLOAD, Row

log = structlog.get_logger(__name__)


class Rows(Protocol):
    """What the releaser needs of the state."""

    def get(self, seqs: Sequence[int], bytes_max: int | None = None) -> list[Row | None]:
        """Pending rows by seq, of the first seqs at least that fit into `bytes_max`; DamagedError when one of them
        does not match its checksum."""
        ...


class Picked(NamedTuple):
    """What was read of the seqs asked for."""

    seqs: list[int]
    rows: list[Row]
    rest: list[int]
    """The last of the seqs, which were too much to be read at once."""


class Pickup:
    """Reads rows for the releaser, whose lock is `wake`."""

    def __init__(self, rows: Rows, wake: threading.Condition, bytes_max: int) -> None:
        self._rows = rows
        self._wake = wake
        self._bytes_max = bytes_max

    def read(self, lane: Lane, seqs: list[int]) -> Picked:
        """The messages that are still there; a damaged one stays in flight, is shown, and is never published."""
        found: Sequence[Row | DamagedError | None]
        try:
            rows = self._rows.get(seqs, self._bytes_max)
        except DamagedError:
            found = self._read_singly(lane, seqs)
        else:
            if len(rows) == len(seqs) and all(rows):
                return Picked(seqs, cast(list[Row], rows), [])
            found = rows
        seqs, rest = seqs[: len(found)], seqs[len(found) :]
        alive = [(seq, row) for seq, row in zip(seqs, found, strict=True) if isinstance(row, tuple)]
        if len(alive) < len(seqs):
            gone = [seq for seq, row in zip(seqs, found, strict=True) if row is None]
            with self._wake:
                lane.in_flight.difference_update(gone)
        return Picked([seq for seq, _ in alive], [row for _, row in alive], rest)

    def _read_singly(self, lane: Lane, seqs: list[int]) -> list[Row | DamagedError | None]:
        found: list[Row | DamagedError | None] = []
        size = 0
        for seq in seqs:
            one = self._read_one(lane, seq)
            found.append(one)
            size += len(one[PAYLOAD]) if isinstance(one, tuple) else 0
            if size >= self._bytes_max:
                break
        return found

    def _read_one(self, lane: Lane, seq: int) -> Row | DamagedError | None:
        try:
            return self._rows.get([seq])[0]
        except DamagedError as error:
            log.error(
                "A stored message is damaged and is not published.",
                action="row_damaged",
                channel=lane.channel.id,
                seq=seq,
                reason=str(error),
            )
            return error
