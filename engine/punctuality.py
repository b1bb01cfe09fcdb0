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
        log.error("Messages were released early.", action="released_early", channel=lane.channel.id, messages=early)
    late, transit = _waits(dues_ms, accepted_ms, released_ms)
    if late:
        metrics.lateness.observe(lane.channel.id, late)
        lane.lateness.observe(late, elapsed_s)
    if transit:
        metrics.transit.observe(lane.channel.id, transit)


def _waits(dues_ms: list[int], accepted_ms: list[int], released_ms: int) -> tuple[dict[int, int], dict[int, int]]:
    """How late messages are that were accepted ahead of time, and how long the others took, as counts by value."""
    if max(dues_ms) <= min(accepted_ms):
        return {}, {released_ms - at_ms: count for at_ms, count in Counter(accepted_ms).items()}
    if min(dues_ms) > max(accepted_ms):
        return {released_ms - due_ms: count for due_ms, count in Counter(dues_ms).items()}, {}
    pairs = list(zip(dues_ms, accepted_ms, strict=True))
    late = Counter([released_ms - due_ms for due_ms, at_ms in pairs if due_ms > at_ms])
    return late, Counter([released_ms - at_ms for due_ms, at_ms in pairs if due_ms <= at_ms])
