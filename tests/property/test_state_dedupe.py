"""Duplicates against an exact oracle: hash collisions, restarts and boundaries never make a false one."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model import Policy
from engine.state.checksum import Hashes, Integers
from engine.state.seen import key_hashes
from tests.unit.state.builders import SMALL, T0_MS, World, accept, create

MINUTE_MS, STEP_MS, WINDOW_MS = 100, 80, 250
LIMITS = replace(SMALL, listening_minute_ms=MINUTE_MS, listening_step_ms=STEP_MS)


def weak(uid: int, subscription: str, id_hashes: Hashes, publish_us: Integers) -> Hashes:
    """Only four different hashes: nearly every id collides with another."""
    return key_hashes(uid, subscription, id_hashes, publish_us) & np.uint64(3)


steps = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 10, 30, 79, 200, 100_000]),
        st.sampled_from([1, 1, 2]),
        st.sampled_from(["S", "S", "T"]),
        st.lists(st.tuples(st.integers(0, 15), st.integers(0, 1)), max_size=8),
        st.sampled_from(["", "", "boundary", "boundary", "freeze", "reopen"]),
    ),
    max_size=40,
)


class Oracle:
    """What a channel knows, by the rule's own words."""

    def __init__(self) -> None:
        self.known: dict[object, int] = {}
        self.listened_ms = 0
        self.stamp_ms: int | None = None

    def accept(self, stamp_ms: int, keys: list[object]) -> int:
        """Take the keys in; returns how many were duplicates."""
        if self.stamp_ms is not None:
            self.listened_ms += min(stamp_ms - self.stamp_ms, STEP_MS)
        self.stamp_ms = stamp_ms
        ended = (self.listened_ms - WINDOW_MS) // MINUTE_MS
        self.known = {key: minute for key, minute in self.known.items() if minute >= ended}
        duplicates = 0
        for key in keys:
            if key in self.known:
                duplicates += 1
            else:
                self.known[key] = self.listened_ms // MINUTE_MS
        return duplicates


@pytest.mark.parametrize("key_hash", [weak, key_hashes])
@settings(max_examples=50, deadline=None, print_blob=True)
@given(steps=steps)
def test_the_duplicates_are_those_of_an_exact_oracle(key_hash, steps) -> None:
    with tempfile.TemporaryDirectory() as directory:
        world = World(Path(directory), LIMITS, key_hash=key_hash)
        policy = Policy(dedupe_window_ms=WINDOW_MS)
        world.do(create("a", policy=policy), create("b", subscription="b", policy=policy))
        oracles = {1: Oracle(), 2: Oracle()}
        stamp_ms = T0_MS
        for delta_ms, uid, subscription, keys, event in steps:
            stamp_ms += delta_ms
            names = [str(name) for name, _ in keys]
            answer = world.do(
                accept(*names, uid=uid, stamp_ms=stamp_ms, subscription=subscription,
                       publishes_us=[publish for _, publish in keys])
            )  # fmt: skip
            expected = oracles[uid].accept(stamp_ms, [(subscription, *key) for key in keys])
            assert (answer.duplicates, answer.pending) == (expected, len(keys) - expected)
            if event == "boundary":
                world.state.boundary()
            elif event == "freeze":
                world.state.freeze()
            elif event == "reopen":
                world.reopen()
        world.state.close()
