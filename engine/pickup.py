"""Fetches due messages from the state: those that are still there, and none that is damaged."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol, cast

import structlog

from engine.errors import DamagedError
from engine.lane import Lane
from engine.state.rows import Row

log = structlog.get_logger(__name__)


class Rows(Protocol):
    """What the releaser needs of the state."""

    def get(self, seqs: Sequence[int]) -> list[Row | None]:
        """Pending rows by seq; DamagedError when one of them does not match its checksum."""
        ...


class Pickup:
    """Reads rows for the releaser, whose lock is `wake`."""

    def __init__(self, rows: Rows, wake: threading.Condition) -> None:
        self._rows = rows
        self._wake = wake

    def read(self, lane: Lane, seqs: list[int]) -> tuple[list[int], list[Row]]:
        """The messages that are still there; a damaged one stays in flight, is shown, and is never published."""
        found: Sequence[Row | DamagedError | None]
        try:
            rows = self._rows.get(seqs)
        except DamagedError:
            found = [self._read_one(lane, seq) for seq in seqs]
        else:
            if all(rows):
                return seqs, cast(list[Row], rows)
            found = rows
        alive = [(seq, row) for seq, row in zip(seqs, found, strict=True) if isinstance(row, tuple)]
        if len(alive) < len(seqs):
            gone = [seq for seq, row in zip(seqs, found, strict=True) if row is None]
            with self._wake:
                lane.in_flight.difference_update(gone)
        return [seq for seq, _ in alive], [row for _, row in alive]

    def _read_one(self, lane: Lane, seq: int) -> Row | DamagedError | None:
        try:
            return self._rows.get([seq])[0]
        except DamagedError as error:
            log.error(
                "a stored message is damaged and is not published",
                action="row_damaged",
                channel=lane.channel.id,
                seq=seq,
                reason=str(error),
            )
            return error
