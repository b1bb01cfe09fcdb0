"""Times as the interface writes and reads them: RFC 3339 in UTC with milliseconds; input may be epoch seconds."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

_EPOCH: Final = re.compile(r"-?[0-9]{1,12}(\.[0-9]{1,9})?", re.ASCII)
_RFC3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+\- ][0-9]{2}:[0-9]{2})", re.ASCII
)
_LAST_MS: Final = 253_402_300_799_999


def to_rfc3339(time_ms: int | None) -> str | None:
    """Milliseconds since the epoch as text; None stays None, as does what no calendar holds."""
    if time_ms is None or not 0 <= time_ms <= _LAST_MS:
        return None
    moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z"


def parse_time(text: str) -> int:
    """Milliseconds since the epoch, rounded up; ValueError with a sentence."""
    text = text.strip()
    if _EPOCH.fullmatch(text):
        return math.ceil(Decimal(text) * 1000)
    if not _RFC3339.fullmatch(text):
        raise ValueError(f"{text[:64]!r} is neither RFC 3339 with an offset nor seconds since the epoch")
    # In a query string an unescaped plus sign arrives as a blank.
    text = re.sub(r" (?=[0-9]{2}:[0-9]{2}$)", "+", text)
    fraction = re.search(r"\.([0-9]+)", text)
    nanoseconds = int(fraction[1].ljust(9, "0")) if fraction else 0
    try:
        moment = datetime.fromisoformat(re.sub(r"\.[0-9]+", "", text).upper())
    except ValueError as error:
        raise ValueError(f"{text[:64]!r}: {error}") from error
    return int(moment.timestamp()) * 1000 + -(-nanoseconds // 1_000_000)
