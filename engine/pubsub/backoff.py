"""How long a source waits before it opens the next stream."""

from __future__ import annotations

import random

from engine.clock import Clock
from engine.config import PubSubLimits
from engine.pubsub.errors import FailureKind
from engine.pubsub.stream import Ending


class Backoff:
    """Exponential, with jitter, and with one attempt for nothing.

    The service ends streams as a matter of course, so the first end is answered at once and silently; a second one
    within a few seconds is a failure. A faulty channel is never tried at once.
    """

    def __init__(self, limits: PubSubLimits, clock: Clock, rng: random.Random) -> None:
        self._limits = limits
        self._clock = clock
        self._rng = rng
        self._failures = 0
        self._at_once_s: float | None = None

    def stream_ended(self, lived_s: float, ending: Ending | None) -> None:
        """A stream that lived for a while, or was ended from this side, wipes the slate."""
        if lived_s >= self._limits.stream_settled_s or ending in (Ending.RENEWED, Ending.SILENT):
            self._failures = 0

    def reset(self) -> None:
        """Start from the beginning: somebody asked for it."""
        self._failures = 0
        self._at_once_s = None

    def next_delay_s(self, kind: FailureKind) -> float:
        """Seconds to wait after a failure; 0 means at once."""
        limits = self._limits
        now_s = self._clock.elapsed_s()
        rested = self._at_once_s is None or now_s - self._at_once_s >= limits.stream_settled_s
        if kind is FailureKind.TRANSIENT and self._failures == 0 and rested:
            self._at_once_s = now_s
            return 0.0
        self._failures += 1
        if kind is FailureKind.TRANSIENT:
            low_s, high_s = limits.backoff_min_s, limits.backoff_max_s
        else:
            low_s, high_s = limits.channel_backoff_min_s, limits.channel_backoff_max_s
        # The exponent is bounded so that years of failing do not overflow a float.
        return min(high_s, low_s * 2.0 ** min(self._failures - 1, 30)) * self._rng.uniform(0.5, 1.0)
