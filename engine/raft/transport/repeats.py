"""Saying the same thing once a minute instead of ten times a second, with a count of what was left out."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

_KEYS_MAX: Final = 256


class Repeats:
    """Remembers what was said lately; bounded, the oldest is forgotten."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._said: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()

    def left_out(self, key: Hashable, now_s: float) -> int | None:
        """How often `key` was left out since it was last said, when it is time to say it again; else None."""
        said_s, count = self._said.get(key, (-self._period_s, 0))
        if now_s - said_s < self._period_s:
            self._said[key] = (said_s, count + 1)
            return None
        self._said[key] = (now_s, 0)
        self._said.move_to_end(key)
        while len(self._said) > _KEYS_MAX:
            self._said.popitem(last=False)
        return count
