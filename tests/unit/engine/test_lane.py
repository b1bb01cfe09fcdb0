"""What one lane hands out: each message once, in the order of (due, seq)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from engine.config import FlowLimits
from engine.lane import Lane
from engine.model import Channel
from engine.pubsub.sink import Sink

FLOW = FlowLimits()
NOW_MS = 1_767_225_600_000


def lane() -> Lane:
    return Lane(cast(Channel, None), cast(Sink, None), bound=1 << 40)


def loaded(lane: Lane, *keys: tuple[int, int]) -> None:
    columns: Any = np.array(keys, dtype=np.int64)
    lane.timeline.load(columns[:, 0].copy(), columns[:, 1].copy())


def test_what_was_offered_and_loaded_at_the_same_time_is_taken_once() -> None:
    one = lane()
    one.offer([1, 2, 3], [NOW_MS - 10] * 3, NOW_MS, FLOW)
    loaded(one, (NOW_MS - 10, 1), (NOW_MS - 10, 2), (NOW_MS - 10, 3), (NOW_MS - 20, 4))

    assert one.take(NOW_MS, 500) == [4, 1, 2, 3]
    assert one.take(NOW_MS, 500) == []


def test_a_double_on_the_edge_of_a_batch_is_taken_once() -> None:
    one = lane()
    one.offer([1, 2], [NOW_MS - 10] * 2, NOW_MS, FLOW)
    loaded(one, (NOW_MS - 10, 1), (NOW_MS - 10, 2))

    taken = [seq for _ in range(4) for seq in one.take(NOW_MS, 1)]

    assert taken == [1, 2]


def test_nothing_more_is_taken_while_as_much_as_allowed_is_published_and_not_confirmed() -> None:
    one = Lane(cast(Channel, SimpleNamespace(paused_release=None)), cast(Sink, None), bound=1 << 40)
    assert one.may_take(FLOW)

    one.unconfirmed = FLOW.unconfirmed_messages_max

    assert not one.may_take(FLOW)
