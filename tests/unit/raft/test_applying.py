"""How entries are cut into calls of the state."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engine.clock import ManualClock
from engine.raft.applying import Applier
from engine.raft.log import Entry


def entries(count: int, term: int = 1, first: int = 1) -> list[Entry]:
    return [Entry(index, term, b"x") for index in range(first, first + count)]


def calls(applier: Applier, log: list[Entry]) -> list[int]:
    """Apply all of it; how many entries each call had."""
    sizes, position = [], 0
    while position < len(log):
        run = applier.cut(log, position)
        applier.apply(run)
        sizes.append(len(run))
        position += len(run)
    return sizes


def test_calls_grow_while_the_state_is_quick() -> None:
    applier = Applier(lambda _first, _term, payloads: payloads, None, ManualClock(), 0.02)
    assert calls(applier, entries(5000)) == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024, 1024, 905]


def test_calls_settle_where_they_take_about_a_slice() -> None:
    clock = ManualClock()

    def slow(_first: int, _term: int, payloads: Sequence[bytes]) -> Sequence[bytes]:
        clock.advance(0.001 * len(payloads))
        return payloads

    sizes = calls(Applier(slow, None, clock, 0.02), entries(1000))
    assert max(sizes) <= 32
    assert sizes[-2] >= 8
    assert Applier(slow, None, clock, 0.02).run_entries == 1


def test_a_call_that_takes_longer_than_a_slice_is_followed_by_shorter_ones() -> None:
    clock = ManualClock()
    pace_s = 0.0

    def changing(_first: int, _term: int, payloads: Sequence[bytes]) -> Sequence[bytes]:
        clock.advance(pace_s * len(payloads))
        return payloads

    applier = Applier(changing, None, clock, 0.02)
    calls(applier, entries(200))
    pace_s = 0.015
    assert calls(applier, entries(400))[-2:] == [1, 1]


def test_a_term_or_an_entry_without_a_command_ends_a_call() -> None:
    told: list[tuple[int, int, int]] = []
    passed: list[tuple[int, int]] = []

    def apply(first: int, term: int, payloads: Sequence[bytes]) -> Sequence[bytes]:
        told.append((first, term, len(payloads)))
        return payloads

    applier = Applier(apply, lambda index, term: passed.append((index, term)), ManualClock(), 0.02)
    calls(applier, entries(100))
    told.clear()
    log = [*entries(3), Entry(4, 2, b""), *entries(2, 2, 5), *entries(2, 3, 7), Entry(9, 4, b""), Entry(10, 5, b"")]
    calls(applier, log)
    assert told == [(1, 1, 3), (5, 2, 2), (7, 3, 2)]
    assert passed == [(4, 2), (9, 4), (10, 5)]


def test_an_answer_for_each_entry_is_demanded() -> None:
    applier = Applier(lambda _first, _term, _payloads: [], None, ManualClock(), 0.02)
    with pytest.raises(RuntimeError, match="0 results for 1 entries from 1 on"):
        applier.apply(entries(1))
