"""What is taken in, when, and what stays at the source."""

from __future__ import annotations

from engine.config import Limits, StateLimits
from tests.integration.flows.conftest import Stand, until

NO_ROOM = Limits(state=StateLimits(disk_reserve_bytes=1 << 60, disk_reserve_percent=101))
"""A reserve larger than any disk."""


def test_with_only_the_reserve_left_on_disk_nothing_is_accepted_and_releasing_goes_on(stand: Stand) -> None:
    stand.publish_in(10.0)
    stand.accepted(1)
    stand.restart(NO_ROOM)
    stand.publish_in(20.0)

    stand.clock.advance(30.0)
    until(lambda: len(stand.receive()) == 1, "what was there is released")
    stand.at_rest()
    assert stand.stats()["accepted"] == 1
    warnings = [line for line in stand.client.health()["ready"] if line["status"] == "warn"]
    assert [line["name"] for line in warnings] == ["disk-reserve"]

    stand.restart()
    until(lambda: len(stand.receive()) == 2, "with room again the other is accepted and released")


def test_a_message_delivered_again_after_its_release_is_known(stand: Stand) -> None:
    drop = stand.emulator.faults.fail(
        "Acknowledge", "UNAVAILABLE", resource="projects/demo/subscriptions/in-sub", times=None
    )
    stand.publish_in(1.0)
    stand.accepted(1)
    stand.clock.advance(1.0)
    until(lambda: len(stand.receive()) == 1, "it is released though its ack did not arrive")

    stand.restart()
    stand.emulator.faults.clear(drop)
    until(lambda: stand.stats()["duplicates"] == 1, "it was delivered again and recognised")

    assert len(stand.receive()) == 1


def test_what_cannot_be_accepted_for_long_goes_back_to_the_source(stand: Stand) -> None:
    stand.restart(NO_ROOM)
    stand.publish_in(1.0)
    until(lambda: stand.emulator.counters()["delivered"] == 1, "it was delivered")

    until(lambda: stand.clock.advance(5.0) or not stand.emulator.counters()["streams_open"], "the stream is closed")
    assert stand.stats()["accepted"] == 0

    stand.restart()
    until(lambda: stand.clock.advance(1.0) or len(stand.receive()) == 1, "with room it is accepted and released")
