"""Histograms that take a whole batch of values at once, and recent percentiles drawn from the same numbers.

prometheus_client's own histogram costs a microsecond a value; a batch of 500 costs here about as much as ten of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Final

import numpy as np
from numpy.typing import NDArray
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

FINE_MS: Final = np.concatenate(([0.0], np.geomspace(0.5, 86_400_000, 240)))
"""Bounds for percentiles: steps of about 8 % from half a millisecond to a day."""

BOUNDS_MS: Final = (0, 1, 2, 3, 5, 7.5, 10, 15, 20, 30, 50, 100, 250, 500, 1000, 2500, 5000, 15_000, 60_000, 600_000)
"""Upper bounds of the exported buckets; the first one counts what should never be: negative values."""


class BatchHistogram(Collector):
    """One exported histogram in seconds, labelled by channel, fed in milliseconds."""

    def __init__(self, name: str, documentation: str, bounds_ms: Sequence[float] = BOUNDS_MS) -> None:
        self._name = name
        self._documentation = documentation
        self._bounds = np.asarray(bounds_ms, dtype=np.float64)
        self._lock = Lock()
        self._series: dict[str, tuple[NDArray[np.int64], float]] = {}

    def observe(self, channel: str, values_ms: NDArray[np.float64]) -> None:
        """Count a batch of values."""
        places = np.searchsorted(self._bounds, values_ms, side="left")
        counts = np.bincount(places, minlength=len(self._bounds) + 1)
        total_ms = float(values_ms.sum())
        with self._lock:
            known, sum_ms = self._series.get(channel, (None, 0.0))
            self._series[channel] = (counts if known is None else known + counts, sum_ms + total_ms)

    def forget(self, channel: str) -> None:
        """Drop the series of a channel that is gone."""
        with self._lock:
            self._series.pop(channel, None)

    def collect(self) -> Iterable[Metric]:
        """The family in Prometheus' form: cumulative buckets in seconds."""
        family = HistogramMetricFamily(self._name, self._documentation, labels=["channel"])
        with self._lock:
            series = dict(self._series)
        names = [*(f"{bound / 1000:g}" for bound in self._bounds), "+Inf"]
        for channel, (counts, sum_ms) in sorted(series.items()):
            cumulative = np.cumsum(counts)
            buckets = [(name, float(count)) for name, count in zip(names, cumulative, strict=True)]
            family.add_metric([channel], buckets=buckets, sum_value=sum_ms / 1000)
        return [family]


class RecentPercentiles:
    """Percentiles over the last five to ten minutes: two windows of fine buckets, the older one dropped whole."""

    WINDOW_S: Final = 300.0

    def __init__(self) -> None:
        self._counts = np.zeros(len(FINE_MS) + 1, dtype=np.int64)
        self._former = np.zeros_like(self._counts)
        self._max_ms = 0.0
        self._former_max_ms = 0.0
        self._turned_s: float | None = None

    def observe(self, values_ms: NDArray[np.float64], elapsed_s: float) -> None:
        """Count a batch of values at this time."""
        self._turn(elapsed_s)
        self._counts += np.bincount(np.searchsorted(FINE_MS, values_ms), minlength=len(self._counts))
        self._max_ms = max(self._max_ms, float(values_ms.max()))

    def summary(self, elapsed_s: float) -> dict[str, float] | None:
        """`p50_ms`, `p99_ms` (upper bounds of their bucket) and `max_ms`; None without a value."""
        self._turn(elapsed_s)
        counts = self._counts + self._former
        total = int(counts.sum())
        if not total:
            return None
        cumulative = np.cumsum(counts)
        max_ms = max(self._max_ms, self._former_max_ms)
        p50, p99 = (self._bound(cumulative, total * share, max_ms) for share in (0.5, 0.99))
        return {"p50_ms": p50, "p99_ms": p99, "max_ms": round(max_ms, 3)}

    def _turn(self, elapsed_s: float) -> None:
        if self._turned_s is None:
            self._turned_s = elapsed_s
        age_s = elapsed_s - self._turned_s
        if age_s < self.WINDOW_S:
            return
        self._former = self._counts if age_s < 2 * self.WINDOW_S else np.zeros_like(self._counts)
        self._former_max_ms = self._max_ms if age_s < 2 * self.WINDOW_S else 0.0
        self._counts = np.zeros_like(self._former)
        self._max_ms = 0.0
        self._turned_s = elapsed_s

    @staticmethod
    def _bound(cumulative: NDArray[np.int64], rank: float, max_ms: float) -> float:
        place = int(np.searchsorted(cumulative, rank))
        return round(min(float(FINE_MS[min(place, len(FINE_MS) - 1)]), max_ms), 3)
