"""How late each release was, measured at the moment it is handed over; a negative value is counted, never hidden."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

import numpy as np
import structlog

from engine.lane import Lane
from engine.metrics import Metrics
from engine.state.rows import ACCEPTED_MS, DUE_MS, Row

_DUE_MS = itemgetter(DUE_MS)
_ACCEPTED_MS = itemgetter(ACCEPTED_MS)

log = structlog.get_logger(__name__)


def note_release(metrics: Metrics, lane: Lane, rows: Sequence[Row], released_ms: int, elapsed_s: float) -> None:
    """Count the lateness of messages that were accepted ahead of time, and the transit of those that came due."""
    dues_ms = np.fromiter(map(_DUE_MS, rows), dtype=np.float64, count=len(rows))
    accepted_ms = np.fromiter(map(_ACCEPTED_MS, rows), dtype=np.float64, count=len(rows))
    early = int((dues_ms > released_ms).sum())
    if early:
        metrics.early_releases.inc(early)
        log.error("messages were released early", action="released_early", channel=lane.channel.id, messages=early)
    ahead = dues_ms > accepted_ms
    late_ms = released_ms - dues_ms[ahead]
    if late_ms.size:
        metrics.lateness.observe(lane.channel.id, late_ms)
        lane.lateness.observe(late_ms, elapsed_s)
    if late_ms.size < len(rows):
        metrics.transit.observe(lane.channel.id, released_ms - accepted_ms[~ahead])
