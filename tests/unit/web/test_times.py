"""Times as the interface writes and reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_project.times import parse_time, to_rfc3339


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("1767225600", 1_767_225_600_000),
        ("1767225600.5", 1_767_225_600_500),
        ("1767225600.0001", 1_767_225_600_001),
        ("2026-01-01T00:00:00Z", 1_767_225_600_000),
        ("2026-01-01t00:00:00.25z", 1_767_225_600_250),
        ("2026-01-01T01:00:00+01:00", 1_767_225_600_000),
        ("2026-01-01T01:00:00 01:00", 1_767_225_600_000),
        ("2025-12-31T23:00:00.000000001-01:00", 1_767_225_600_001),
    ],
)
def test_a_time_is_read_in_every_allowed_form(text: str, time_ms: int) -> None:
    assert parse_time(text) == time_ms


@pytest.mark.parametrize(
    "text", ["", "soon", "nan", "1e9", "0x10", "2026-01-01", "2026-01-01T00:00:00", "2026-13-01T00:00:00Z", "1" * 40]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_time(text)


@given(st.integers(0, 253_402_300_799_999))
def test_what_is_written_is_read_back(time_ms: int) -> None:
    text = to_rfc3339(time_ms)
    assert text is not None
    assert parse_time(text) == time_ms


@pytest.mark.parametrize("time_ms", [None, -1, 253_402_300_800_000])
def test_what_no_calendar_holds_is_no_time(time_ms: int | None) -> None:
    assert to_rfc3339(time_ms) is None
