"""Times against exact decimal arithmetic and the standard library's own reading."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import ROUND_CEILING, Decimal

from hypothesis import given
from hypothesis import strategies as st

from engine.due import DUE_MAX_MS, LENGTH_MAX, BadTime, format_duration, format_time, parse_duration_ms, parse_time_ms

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@given(st.decimals(min_value=-(10**9), max_value=10**11, allow_nan=False, allow_infinity=False, places=6))
def test_decimal_seconds_are_exact_and_rounded_up(seconds: Decimal) -> None:
    text = f"{seconds:f}"
    assert parse_time_ms(text) == int((seconds * 1000).to_integral_value(ROUND_CEILING))


@given(
    st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)),  # noqa: DTZ001
    st.integers(min_value=-23 * 60 - 59, max_value=23 * 60 + 59),
)
def test_rfc_3339_is_read_as_the_standard_library_reads_it(moment: datetime, offset_minutes: int) -> None:
    local = moment.replace(tzinfo=timezone(timedelta(minutes=offset_minutes)))
    exact_us = (local - EPOCH) // timedelta(microseconds=1)
    text = local.isoformat(timespec="microseconds")
    assert len(text) <= LENGTH_MAX
    assert parse_time_ms(text) == -(-exact_us // 1000)


@given(st.text(max_size=40))
def test_any_text_is_a_time_or_a_sentence(text: str) -> None:
    try:
        due_ms = parse_time_ms(text)
    except BadTime:
        return
    assert due_ms <= DUE_MAX_MS
    assert text.isascii()


@given(st.integers(min_value=-62_135_596_800_000, max_value=DUE_MAX_MS))
def test_what_is_written_is_read_back(due_ms: int) -> None:
    assert parse_time_ms(format_time(due_ms)) == due_ms


@given(st.integers(min_value=0, max_value=10**14))
def test_durations_are_read_back(duration_ms: int) -> None:
    assert parse_duration_ms(format_duration(duration_ms)) == duration_ms
