"""How late each release was, measured at the moment it is handed over; a negative value is counted, never hidden."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter

import structlog

from engine.lane import Lane
from engine.metrics import Metrics
from engine.state.rows import ACCEPTED_MS, DUE_MS, Row

_DUE_MS = itemgetter(DUE_MS)
_ACCEPTED_MS = itemgetter(ACCEPTED_MS)

log = structlog.get_logger(__name__)


def note_release(metrics: Metrics, lane: Lane, rows: Sequence[Row], released_ms: int, elapsed_s: float) -> None:
    """Count the lateness of messages that were accepted ahead of time, and the transit of those that came due."""
    dues_ms, accepted_ms = list(map(_DUE_MS, rows)), list(map(_ACCEPTED_MS, rows))
    if max(dues_ms) > released_ms:
        early = sum(due_ms > released_ms for due_ms in dues_ms)
        metrics.early_releases.inc(early)
        log.error("messages were released early", action="released_early", channel=lane.channel.id, messages=early)
    pairs = list(zip(dues_ms, accepted_ms, strict=True))
    late = Counter([released_ms - due_ms for due_ms, at_ms in pairs if due_ms > at_ms])
    if late:
        metrics.lateness.observe(lane.channel.id, late)
        lane.lateness.observe(late, elapsed_s)
    transit = Counter([released_ms - at_ms for due_ms, at_ms in pairs if due_ms <= at_ms])
    if transit:
        metrics.transit.observe(lane.channel.id, transit)
