"""The timeline against a sorted list."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.state.timeline import Timeline

T0_MS = 1_700_000_000_000 - 1_700_000_000_000 % (1 << 20)
dues = st.one_of(
    st.integers(-200, 200),
    st.integers((1 << 20) - 70, (1 << 20) + 70),
    st.integers(-(1 << 41), 1 << 41),
    st.sampled_from([0, 63, 64, 127, (1 << 20) - 1, 1 << 20]),
).map(lambda offset: T0_MS + offset)
keys = st.tuples(dues, st.integers(0, 40))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(keys, max_size=60)),
        st.tuples(st.just("load"), st.lists(keys, min_size=1, max_size=60)),
        st.tuples(st.just("burst"), st.tuples(dues, st.integers(1, 3000))),
        st.tuples(st.just("take"), st.tuples(dues, st.integers(1, 400))),
    ),
    max_size=25,
)


@settings(max_examples=150, deadline=None, print_blob=True)
@given(steps)
def test_what_is_taken_is_what_a_sorted_list_without_doubles_would_give(steps: list[Any]) -> None:
    timeline = Timeline()
    model: set[tuple[int, int]] = set()
    for verb, argument in steps:
        if verb == "take":
            now_ms, limit = argument
            due = sorted(key for key in model if key[0] <= now_ms)[:limit]
            model.difference_update(due)
            taken_dues, taken_seqs = timeline.take(now_ms, limit)
            assert list(zip(taken_dues, taken_seqs, strict=True)) == due
        elif verb == "burst":
            due_ms, n = argument
            timeline.load(np.full(n, due_ms, dtype=np.int64), np.arange(n)[::-1])
            model.update((due_ms, seq) for seq in range(n))
        else:
            columns = [key[0] for key in argument], [key[1] for key in argument]
            if verb == "add":
                timeline.add(*columns)
            else:
                timeline.load(*map(np.array, columns))
            model.update(argument)
        assert timeline.head_ms() == min((due_ms for due_ms, _ in model), default=None)
        assert len(timeline) >= len(model)
        assert (len(timeline) == 0) == (not model)
    assert list(zip(*timeline.take(1 << 62, 1 << 62), strict=True)) == sorted(model)
    assert len(timeline) == 0
