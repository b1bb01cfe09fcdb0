"""The checker convicts: each broken promise is found, and a clean run is not accused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.blackbox.pubsub import Arrival
from tests.integration.crash.checker import faults_in

DUE_MS = 1_700_000_000_000
KILL_US = (DUE_MS + 1000) * 1000
IN_FLIGHT_S = 0.5


def arrival(*, after_ms: int = 0, message_id: str = "id-1", data: bytes = b"data", **attributes: str) -> Arrival:
    """A copy published `after_ms` after its due time."""
    return Arrival(
        data=data,
        attributes={
            "colour": "blue",
            "scheduler-message-id": message_id,
            "scheduler-due": "x",
            "scheduler-released": "x",
            "scheduler-source-message-id": "7",
            "scheduler-channel": "default",
            **attributes,
        },
        ordering_key="",
        publish_us=(DUE_MS + after_ms) * 1000,
        arrived_us=(DUE_MS + after_ms) * 1000,
    )


@pytest.fixture
def load() -> Any:
    return SimpleNamespace(published={b"data": ({"colour": "blue"}, DUE_MS, "7")})


def test_a_message_that_came_once_is_in_order(load: Any) -> None:
    assert faults_in(load, [arrival()], [KILL_US], IN_FLIGHT_S) == []


def test_a_repeat_of_what_was_in_flight_at_a_kill_is_in_order(load: Any) -> None:
    assert faults_in(load, [arrival(after_ms=900), arrival(after_ms=1500)], [KILL_US], IN_FLIGHT_S) == []


@pytest.mark.parametrize(
    ("arrivals", "fault"),
    [
        ([], "lost"),
        ([arrival(data=b"other"), arrival()], "not ours"),
        ([arrival(after_ms=-1)], "early"),
        ([arrival(colour="red")], "changed"),
        ([arrival(more="")], "changed"),
        ([arrival(**{"scheduler-source-message-id": "8"})], "another source message"),
        ([arrival(after_ms=900), arrival(after_ms=1500, message_id="id-2")], "stored twice"),
        ([arrival(after_ms=1200), arrival(after_ms=1500)], "without a kill"),
        ([arrival(after_ms=100), arrival(after_ms=1500)], "s after its release"),
    ],
)
def test_a_broken_promise_is_found(load: Any, arrivals: list[Arrival], fault: str) -> None:
    faults = faults_in(load, arrivals, [KILL_US], IN_FLIGHT_S)
    assert any(fault in sentence for sentence in faults), faults
