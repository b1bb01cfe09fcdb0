"""The grammar of times, case by case."""

from __future__ import annotations

import pytest

from engine.due import BadTime, explain_far, format_duration, format_time, parse_duration_ms, parse_time_ms
from engine.model import TimeUnit

SOME_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""


@pytest.mark.parametrize(
    ("text", "due_ms"),
    [
        ("1767225600", SOME_MS),
        ("0", 0),
        ("-1", -1000),
        ("-0", 0),
        ("2147483648", 2_147_483_648_000),
        ("4294967296", 4_294_967_296_000),
        ("1767225600.5", SOME_MS + 500),
        ("1767225600.123", SOME_MS + 123),
        ("1767225600.1230001", SOME_MS + 124),
        ("1767225600.0000000001", SOME_MS + 1),
        ("-0.0001", 0),
        ("-0.5", -500),
        ("00001767225600", SOME_MS),
        ("2026-01-01T00:00:00Z", SOME_MS),
        ("2026-01-01t00:00:00z", SOME_MS),
        ("2026-01-01T05:30:00+05:30", SOME_MS),
        ("2025-12-31T16:00:00-08:00", SOME_MS),
        ("2026-01-01T00:00:00.0004-00:00", SOME_MS + 1),
        ("2026-01-01T00:00:00.999Z", SOME_MS + 999),
        ("2016-12-31T23:59:60Z", 1_483_228_800_000),
        ("2017-01-01T00:59:60+01:00", 1_483_228_800_000),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ("2024-02-29T12:00:00Z", 1_709_208_000_000),
    ],
)
def test_a_time_of_the_grammar_is_milliseconds_rounded_up(text: str, due_ms: int) -> None:
    assert parse_time_ms(text) == due_ms


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        (" 1767225600", "spaces"),
        ("1767225600 ", "spaces"),
        ("1767225600\n", "spaces"),
        ("1 767", "spaces"),
        ("+1767225600", "neither"),
        ("1_767_225_600", "neither"),
        ("١٧٦", "neither"),
        ("１７６７", "neither"),
        ("abc", "neither"),
        ("null", "neither"),
        ("NaN", "neither"),
        ("inf", "neither"),
        ("1e9", "neither"),
        ("0x10", "neither"),
        ("1767225600.", "neither"),
        (".5", "neither"),
        ("--1", "neither"),
        ("1" * 33, "33 characters"),
        ("2026-01-01T00:00:00", "offset"),
        ("2026-01-01 00:00:00", "offset"),
        ("2026-01-01T24:00:00Z", "no date and time"),
        ("2026-02-30T00:00:00Z", "no date and time"),
        ("0000-01-01T00:00:00Z", "no date and time"),
        ("2026-01-01T00:00:00+25:00", "offset"),
        ("2026-01-01T00:00:60Z", "leap second"),
        ("2016-12-31T23:59:60+01:00", "leap second"),
        ("1767225600000", "looks like milliseconds: 1767225600000 is year 57971"),
        ("1767225600000000", "looks like microseconds"),
        ("1767225600000000000", "looks like nanoseconds"),
        ("9007199254740993", "year"),
        ("9223372036854775808", "year"),
        ("1" + "0" * 30, "beyond the year 9999"),
        ("-99999999999999", "before the year 1"),
    ],
)
def test_anything_else_is_refused_in_words(text: str, says: str) -> None:
    with pytest.raises(BadTime, match=says):
        parse_time_ms(text)


@pytest.mark.parametrize(
    "text",
    ["1767225600", "1767225600000", "1767225600000000", "1767225600000000000", "1767225600000.0", "1767225600.000"],
)
def test_with_unit_auto_the_magnitude_says_which_unit_is_meant(text: str) -> None:
    assert parse_time_ms(text, TimeUnit.AUTO) == SOME_MS


def test_with_unit_auto_fractions_of_a_millisecond_are_rounded_up() -> None:
    assert parse_time_ms("1767225600000001", TimeUnit.AUTO) == SOME_MS + 1


def test_rfc_3339_means_the_same_whatever_the_unit() -> None:
    assert parse_time_ms("2026-01-01T00:00:00Z", TimeUnit.AUTO) == SOME_MS


def test_a_far_number_that_fits_no_unit_is_not_guessed_at() -> None:
    assert explain_far("9" * 30, 10**33) is None
    assert explain_far("2300-01-01T00:00:00Z", 10**13) is None


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("90", 90_000),
        ("1.5", 1500),
        ("0", 0),
        ("1h30m", 5_400_000),
        ("1.5h", 5_400_000),
        ("2d", 172_800_000),
        ("250ms", 250),
        ("1d2h3m4s5ms", 93_784_005),
        ("0.0001", 1),
    ],
)
def test_a_duration_is_seconds_or_parts_with_units(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms


@pytest.mark.parametrize("text", ["", "-1", "1x", "h", "1 h", "1h 30m", "+5", "1h30", "1e3", "9" * 33])
def test_a_wrong_duration_is_refused(text: str) -> None:
    with pytest.raises(BadTime):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("duration_ms", "text"), [(0, "0s"), (900_000, "15m"), (315_360_000_000, "3650d"), (1500, "1s500ms")]
)
def test_durations_are_written_in_whole_units(duration_ms: int, text: str) -> None:
    assert format_duration(duration_ms) == text


def test_times_are_written_in_utc_with_milliseconds() -> None:
    assert format_time(SOME_MS + 7) == "2026-01-01T00:00:00.007Z"
    assert format_time(-1) == "1969-12-31T23:59:59.999Z"
