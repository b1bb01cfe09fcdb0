"""The grammar of times: `available_at`, `scheduler-delay` and every duration that people write. Pure functions.

A time is either seconds since the epoch, as an ASCII integer or decimal (``1767225600``, ``1767225600.25``, ``-1``), or
RFC 3339 with an offset (``2026-01-01T00:00:00Z``, ``…+05:30``; a leap second ``23:59:60Z`` is the second after it).
Signs other than a leading minus, exponents, hex, spaces, underscores and other digits than 0-9 are refused, as is
anything longer than 32 characters. Times are kept in milliseconds and rounded up, so that nothing is early.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from engine.model import TimeUnit

LENGTH_MAX: Final = 32
"""Characters of a time or duration."""

DUE_MAX_MS: Final = 253_402_300_799_999
"""The end of the year 9999: what RFC 3339 can still say."""

DUE_MIN_MS: Final = -62_135_596_800_000
"""The beginning of the year 1. Times in the past are released at once, but they must be times."""

_NUMBER: Final = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?")
_RFC3339: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?(?:([Zz])|([+-])([0-9]{2}):([0-9]{2}))"
)
_PART: Final = re.compile(r"([0-9]+)(?:\.([0-9]+))?(ms|d|h|m|s)")
_PARTS: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|d|h|m|s))+")
_UNIT_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}

_AUTO: Final = ((10**11, 1000, 1), (10**14, 1, 1), (10**17, 1, 1000))
"""Below the first number: multiply by the second, divide by the third, to get milliseconds. Seconds reach to the year
5138, milliseconds and microseconds begin in 1973."""


class BadTime(ValueError):
    """The text is no time of this grammar; the message is a sentence for people."""


def parse_time_ms(text: str, unit: TimeUnit = TimeUnit.SECONDS) -> int:
    """Milliseconds since the epoch, rounded up; raises `BadTime`."""
    if len(text) <= 11 and text.isascii() and text.isdigit():
        return int(text) * 1000  # the common form, and never large enough to be another unit
    if not text:
        raise BadTime("the time is empty")
    if len(text) > LENGTH_MAX:
        raise BadTime(f"the time has {len(text)} characters, at most {LENGTH_MAX} are allowed")
    match = _NUMBER.fullmatch(text)
    if match is not None:
        due_ms = _number_ms(match, unit)
    else:
        match = _RFC3339.fullmatch(text)
        if match is None:
            raise BadTime(_explain(text))
        due_ms = _rfc3339_ms(text, match)
    if due_ms > DUE_MAX_MS:
        raise BadTime(explain_far(text, due_ms) or f"{text} seconds is beyond the year 9999")
    if due_ms < DUE_MIN_MS:
        raise BadTime(f"{text} seconds is before the year 1")
    return due_ms


def parse_duration_ms(text: str) -> int:
    """Milliseconds of `90`, `1.5` (seconds) or `1h30m`, `2d`, `250ms`, rounded up; raises `BadTime`."""
    if not text or len(text) > LENGTH_MAX:
        raise BadTime(f"a duration has 1 to {LENGTH_MAX} characters, got {len(text)}")
    match = _NUMBER.fullmatch(text)
    if match is not None and not match[1]:
        return _scaled_ms(match[2], match[3], 1000)
    if _PARTS.fullmatch(text) is None:
        raise BadTime(f"{text!r} is no duration: seconds (90, 1.5) or like 1h30m, with the units d, h, m, s, ms")
    return sum(_scaled_ms(whole, part, _UNIT_MS[unit]) for whole, part, unit in _PART.findall(text))


def format_duration(milliseconds: int) -> str:
    """The shortest form of whole units that `parse_duration_ms` reads back: `15m`, `3650d`, `1h30m`."""
    if milliseconds == 0:
        return "0s"
    parts: list[str] = []
    for unit, size_ms in _UNIT_MS.items():
        count, milliseconds = divmod(milliseconds, size_ms)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def format_time(milliseconds: int) -> str:
    """RFC 3339 in UTC with milliseconds; times outside the years 1 to 9999 come out as seconds since the epoch."""
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return str(milliseconds / 1000)
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def explain_far(text: str, due_ms: int) -> str | None:
    """What a number far in the future was probably meant to be: milli-, micro- or nanoseconds; None if nothing fits."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    value = int(match[2])
    year = 1970 + due_ms // 31_556_952_000
    for name, divisor in (("milliseconds", 1), ("microseconds", 1000), ("nanoseconds", 10**6)):
        if 10**11 <= value // divisor < 10**13:
            return f"looks like {name}: {match[2]} is year {year}"
    return None


def _number_ms(match: re.Match[str], unit: TimeUnit) -> int:
    whole, fraction = match[2], match[3]
    if unit is TimeUnit.AUTO:
        value = int(whole)
        factor, divisor = 1, 10**6
        for limit, candidate_factor, candidate_divisor in _AUTO:
            if value < limit:
                factor, divisor = candidate_factor, candidate_divisor
                break
        return _ratio_ms(whole, fraction, factor, divisor, negative=bool(match[1]))
    return _ratio_ms(whole, fraction, 1000, 1, negative=bool(match[1]))


def _ratio_ms(whole: str, fraction: str | None, factor: int, divisor: int, *, negative: bool) -> int:
    """whole.fraction × factor / divisor, exactly, rounded up."""
    fraction = fraction or ""
    digits = int(whole + fraction) * factor
    scale: int = divisor * 10 ** len(fraction)
    return -(digits // scale) if negative else -(-digits // scale)


def _scaled_ms(whole: str, fraction: str | None, factor: int) -> int:
    return _ratio_ms(whole, fraction, factor, 1, negative=False)


def _rfc3339_ms(text: str, match: re.Match[str]) -> int:
    date, hour, minute, second, fraction, _, sign, offset_hour, offset_minute = match.groups()
    leap = second == "60"
    try:
        zone = UTC
        if sign:
            if int(offset_hour) > 23 or int(offset_minute) > 59:
                raise ValueError(f"offset {sign}{offset_hour}:{offset_minute} is out of range")
            offset = timedelta(hours=int(offset_hour), minutes=int(offset_minute))
            zone = timezone(offset if sign == "+" else -offset)
        day = datetime.strptime(date, "%Y-%m-%d").replace(tzinfo=zone)
        moment = day.replace(hour=int(hour), minute=int(minute), second=59 if leap else int(second))
        # Whole seconds by integers: datetime.timestamp() is a float and would lose the milliseconds' exactness.
        seconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
    except (ValueError, OverflowError) as error:
        raise BadTime(f"{text!r} is no date and time: {error}") from error
    if leap:
        if seconds % 86_400 != 86_399:
            raise BadTime(f"{text!r}: second 60 exists only as a leap second, at 23:59:60 UTC")
        return (seconds + 1) * 1000
    return seconds * 1000 + (_ratio_ms("0", fraction, 1000, 1, negative=False) if fraction else 0)


def _explain(text: str) -> str:
    if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9:.]+", text):
        return f"{text!r} has no offset: write Z for UTC, or like +02:00"
    if text.strip() != text or " " in text:
        return f"{text!r} contains spaces"
    return f"{text!r} is neither seconds since the epoch (1767225600, 1767225600.5) nor RFC 3339 with an offset"
