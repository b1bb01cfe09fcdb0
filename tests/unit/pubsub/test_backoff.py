"""How long a source waits between streams."""

from __future__ import annotations

import random

from engine.clock import ManualClock
from engine.config import PubSubLimits
from engine.pubsub.backoff import Backoff
from engine.pubsub.errors import FailureKind
from engine.pubsub.stream import Ending

LIMITS = PubSubLimits()
TRANSIENT, CHANNEL = FailureKind.TRANSIENT, FailureKind.CHANNEL


def made():
    clock = ManualClock()
    return clock, Backoff(LIMITS, clock, random.Random(7))


def test_the_first_end_of_a_stream_is_answered_at_once_and_the_next_ones_later_and_later():
    _clock, backoff = made()
    delays = [backoff.next_delay_s(TRANSIENT) for _ in range(14)]
    assert delays[0] == 0.0
    for number, delay in enumerate(delays[1:]):
        whole = min(LIMITS.backoff_max_s, LIMITS.backoff_min_s * 2**number)
        assert whole / 2 <= delay <= whole


def test_a_faulty_channel_is_never_tried_at_once():
    _clock, backoff = made()
    delays = [backoff.next_delay_s(CHANNEL) for _ in range(10)]
    assert min(delays) >= LIMITS.channel_backoff_min_s / 2
    assert LIMITS.channel_backoff_max_s / 2 <= max(delays) <= LIMITS.channel_backoff_max_s


def test_a_stream_that_lived_for_a_while_wipes_the_slate():
    clock, backoff = made()
    for _ in range(5):
        backoff.next_delay_s(TRANSIENT)
    clock.advance(1800)
    backoff.stream_ended(1800, None)
    assert backoff.next_delay_s(TRANSIENT) == 0.0


def test_streams_that_end_as_soon_as_they_are_opened_are_not_reopened_at_once_for_ever():
    clock, backoff = made()
    free = 0
    for _ in range(100):
        clock.advance(0.1)
        backoff.stream_ended(0.1, None)
        free += backoff.next_delay_s(TRANSIENT) == 0.0
    assert free == 1


def test_an_end_from_this_side_is_no_failure_but_not_free_of_the_pace_either():
    clock, backoff = made()
    free = 0
    for _ in range(100):
        clock.advance(0.1)
        backoff.stream_ended(0.1, Ending.RENEWED)
        free += backoff.next_delay_s(TRANSIENT) == 0.0
    assert free <= 3


def test_years_of_failing_do_not_overflow():
    _clock, backoff = made()
    assert max(backoff.next_delay_s(TRANSIENT) for _ in range(3000)) <= LIMITS.backoff_max_s


def test_a_resumed_source_starts_from_the_beginning():
    _clock, backoff = made()
    for _ in range(9):
        backoff.next_delay_s(TRANSIENT)
    backoff.reset()
    assert backoff.next_delay_s(TRANSIENT) == 0.0
