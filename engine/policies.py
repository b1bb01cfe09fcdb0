"""A channel's policy as a JSON document: one table of keys, each with its reader, its writer and its bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from engine.due import BadTime, format_duration, parse_duration_ms
from engine.model import DAY_MS, Disposition, Policy, Retry, TimeUnit

AddFault = Callable[[str, str], None]
_Choice = TypeVar("_Choice", Disposition, TimeUnit)

MAX_DELAY_BOUNDS_MS: Final = (1000, 36_500 * DAY_MS)
DEDUPE_BOUNDS_MS: Final = (15 * 60 * 1000, 7 * DAY_MS)
BACKOFF_BOUNDS_MS: Final = (10, 3_600_000)
ATTEMPTS_BOUNDS: Final = (1, 1_000_000)

FIXED: Final[dict[str, Any]] = {
    "max_lateness": None,
    "late_action": "release",
    "catch_up": {"mode": "all"},
    "rate_limit": None,
    "ordering": "due",
    "max_pending": None,
    "history_window": "1d",
    "compression": "auto",
    "dead_letter_topic": None,
    "redact": [],
}
"""Keys whose only value in this version is the default: shown, accepted at that value, refused at any other."""

_DEFAULT: Final = Policy()
_OWN: Final = ("max_delay", "missing_time", "bad_time", "time_unit", "retry", "dedupe_window")


def parse_policy(document: Any, add: AddFault) -> Policy:
    """The policy in a body, defaults filled in; every fault goes to `add(pointer, detail)`."""
    if document is None:
        return _DEFAULT
    if not isinstance(document, Mapping):
        add("/policy", "policy is an object")
        return _DEFAULT
    for key, value in document.items():
        if key in FIXED:
            if value != FIXED[key] and value is not None:
                add(f"/policy/{key}", f"{key} can only be {FIXED[key]!r} in this version, got {value!r}")
        elif key not in _OWN:
            add(f"/policy/{key}", f"unknown policy {key!r}; known: {', '.join((*_OWN, *FIXED))}")
    return Policy(
        max_delay_ms=_duration(document, "max_delay", _DEFAULT.max_delay_ms, MAX_DELAY_BOUNDS_MS, add),
        missing_time=_choice(document, "missing_time", Disposition, _DEFAULT.missing_time, add),
        bad_time=_choice(document, "bad_time", Disposition, _DEFAULT.bad_time, add),
        time_unit=_choice(document, "time_unit", TimeUnit, _DEFAULT.time_unit, add),
        retry=_retry(document.get("retry"), add),
        dedupe_window_ms=_duration(document, "dedupe_window", _DEFAULT.dedupe_window_ms, DEDUPE_BOUNDS_MS, add),
    )


def render_policy(policy: Policy) -> dict[str, Any]:
    """All keys of the interface, durations in their short form."""
    return {
        "max_delay": format_duration(policy.max_delay_ms),
        "missing_time": str(policy.missing_time),
        "bad_time": str(policy.bad_time),
        "time_unit": str(policy.time_unit),
        "retry": {
            "min_backoff": policy.retry.min_backoff_ms / 1000,
            "max_backoff": policy.retry.max_backoff_ms / 1000,
            "attempts": policy.retry.attempts,
        },
        "dedupe_window": format_duration(policy.dedupe_window_ms),
        **FIXED,
    }


def _retry(document: Any, add: AddFault) -> Retry:
    default = _DEFAULT.retry
    if document is None:
        return default
    if not isinstance(document, Mapping):
        add("/policy/retry", "retry is an object with min_backoff, max_backoff and attempts")
        return default
    for key in document:
        if key not in {"min_backoff", "max_backoff", "attempts"}:
            add(f"/policy/retry/{key}", f"unknown field {key!r}; known: min_backoff, max_backoff, attempts")
    at = "/policy/retry"
    shortest_ms = _duration(document, "min_backoff", default.min_backoff_ms, BACKOFF_BOUNDS_MS, add, at)
    longest_ms = _duration(document, "max_backoff", default.max_backoff_ms, BACKOFF_BOUNDS_MS, add, at)
    if longest_ms < shortest_ms:
        add(f"{at}/max_backoff", f"max_backoff may not be below min_backoff ({format_duration(shortest_ms)})")
    attempts = document.get("attempts")
    low, high = ATTEMPTS_BOUNDS
    if attempts is not None and (type(attempts) is not int or not low <= attempts <= high):
        add(f"{at}/attempts", f"attempts is null or a whole number from {low} to {high}, got {attempts!r}")
        attempts = None
    return Retry(min_backoff_ms=shortest_ms, max_backoff_ms=longest_ms, attempts=attempts)


def _duration(
    document: Mapping[str, Any],
    key: str,
    default_ms: int,
    bounds_ms: tuple[int, int],
    add: AddFault,
    at: str = "/policy",
) -> int:
    value = document.get(key)
    if value is None:
        return default_ms
    low, high = bounds_ms
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise BadTime(f"{value!r} is no duration: seconds, or like 1h30m")
        duration_ms = parse_duration_ms(value if isinstance(value, str) else f"{value:f}".rstrip("0").rstrip("."))
    except BadTime as error:
        add(f"{at}/{key}", str(error))
        return default_ms
    if not low <= duration_ms <= high:
        add(f"{at}/{key}", f"{key} is {format_duration(low)} to {format_duration(high)}, got {value!r}")
        return default_ms
    return duration_ms


def _choice(document: Mapping[str, Any], key: str, kind: type[_Choice], default: _Choice, add: AddFault) -> _Choice:
    value = document.get(key)
    if value is None:
        return default
    try:
        return kind(value)
    except ValueError:
        add(f"/policy/{key}", f"{key} is one of {', '.join(kind)}, got {value!r}")
        return default
