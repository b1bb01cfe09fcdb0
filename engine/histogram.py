"""Histograms that take a whole batch of values at once, and recent percentiles drawn from the same numbers.

Values are whole milliseconds, of which a batch has few different ones, so they come as counts by value. That is cheap
(prometheus_client's own histogram costs a microsecond a value) and stays in one go under the interpreter's lock:
numpy's searchsorted gives the lock away, and a busy process may get it back only milliseconds later.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from threading import Lock
from typing import Final

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

FINE_MS: Final = (0.0, *(0.5 * 1.08**step for step in range(247)))
"""Bounds for percentiles: steps of about 8 % from half a millisecond to a day."""

BOUNDS_MS: Final = (0, 1, 2, 3, 5, 7.5, 10, 15, 20, 30, 50, 100, 250, 500, 1000, 2500, 5000, 15_000, 60_000, 600_000)
"""Upper bounds of the exported buckets; the first one counts what should never be: negative values."""


class BatchHistogram(Collector):
    """One exported histogram in seconds, labelled by channel, fed in milliseconds."""

    def __init__(self, name: str, documentation: str, bounds_ms: Sequence[float] = BOUNDS_MS) -> None:
        self._name = name
        self._documentation = documentation
        self._bounds = bounds_ms
        self._lock = Lock()
        self._series: dict[str, tuple[list[int], float]] = {}

    def observe(self, channel: str, counts: Mapping[int, int]) -> None:
        """Count a batch of values, given as value in milliseconds → how often."""
        places = [(bisect_left(self._bounds, value_ms), count) for value_ms, count in counts.items()]
        total_ms = sum(value_ms * count for value_ms, count in counts.items())
        with self._lock:
            buckets, sum_ms = self._series.get(channel) or ([0] * (len(self._bounds) + 1), 0.0)
            for place, count in places:
                buckets[place] += count
            self._series[channel] = (buckets, sum_ms + total_ms)

    def forget(self, channel: str) -> None:
        """Drop the series of a channel that is gone."""
        with self._lock:
            self._series.pop(channel, None)

    def collect(self) -> Iterable[Metric]:
        """The family in Prometheus' form: cumulative buckets in seconds."""
        family = HistogramMetricFamily(self._name, self._documentation, labels=["channel"])
        with self._lock:
            series = {channel: (list(buckets), sum_ms) for channel, (buckets, sum_ms) in self._series.items()}
        names = [*(f"{bound / 1000:g}" for bound in self._bounds), "+Inf"]
        for channel, (counts, sum_ms) in sorted(series.items()):
            buckets = [(name, float(count)) for name, count in zip(names, accumulate(counts), strict=True)]
            family.add_metric([channel], buckets=buckets, sum_value=sum_ms / 1000)
        return [family]


class RecentPercentiles:
    """Percentiles over the last five to ten minutes: two windows of fine buckets, the older one dropped whole."""

    WINDOW_S: Final = 300.0

    def __init__(self) -> None:
        self._counts = [0] * (len(FINE_MS) + 1)
        self._former = [0] * (len(FINE_MS) + 1)
        self._max_ms = 0.0
        self._former_max_ms = 0.0
        self._turned_s: float | None = None

    def observe(self, counts: Mapping[int, int], elapsed_s: float) -> None:
        """Count a batch of values at this time."""
        self._turn(elapsed_s)
        for value_ms, count in counts.items():
            self._counts[bisect_left(FINE_MS, value_ms)] += count
        self._max_ms = max(self._max_ms, *counts)

    def summary(self, elapsed_s: float) -> dict[str, float] | None:
        """`p50_ms`, `p99_ms` (upper bounds of their bucket) and `max_ms`; None without a value."""
        self._turn(elapsed_s)
        cumulative = list(accumulate(now + before for now, before in zip(self._counts, self._former, strict=True)))
        total = cumulative[-1]
        if not total:
            return None
        max_ms = max(self._max_ms, self._former_max_ms)
        p50, p99 = (self._bound(cumulative, total * share, max_ms) for share in (0.5, 0.99))
        return {"p50_ms": p50, "p99_ms": p99, "max_ms": round(max_ms, 3)}

    def _turn(self, elapsed_s: float) -> None:
        if self._turned_s is None:
            self._turned_s = elapsed_s
        age_s = elapsed_s - self._turned_s
        if age_s < self.WINDOW_S:
            return
        empty = [0] * len(self._counts)
        self._former = self._counts if age_s < 2 * self.WINDOW_S else empty.copy()
        self._former_max_ms = self._max_ms if age_s < 2 * self.WINDOW_S else 0.0
        self._counts = empty
        self._max_ms = 0.0
        self._turned_s = elapsed_s

    @staticmethod
    def _bound(cumulative: Sequence[int], rank: float, max_ms: float) -> float:
        place = bisect_left(cumulative, rank)
        return round(min(FINE_MS[min(place, len(FINE_MS) - 1)], max_ms), 3)
