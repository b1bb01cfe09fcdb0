"""What happens when publishing fails: order is kept, back-off is bounded, the poisonous are set aside, none is lost."""

from __future__ import annotations

from tests.integration.flows.conftest import Stand, until

OUT = "projects/demo/topics/out-topic"


def quarantined(stand: Stand) -> int:
    count: int = stand.stats()["quarantined"]
    return count


def test_ordered_messages_keep_their_order_through_a_failure(stand: Stand) -> None:
    fault = stand.emulator.faults.fail("Publish", "UNAVAILABLE", resource=OUT, times=None)
    stand.publish_in(1.0, 1.0, 2.0, ordering_key="k")
    stand.publish_in(1.0, ordering_key="other")
    stand.accepted(4)

    stand.clock.advance(3.0)
    until(lambda: stand.emulator.faults.hits(fault) >= 1, "a call was refused")
    stand.emulator.faults.clear()
    until(lambda: stand.clock.advance(0.5) or len(stand.receive()) == 4, "all have arrived")

    assert [m.data for m in stand.receive() if m.ordering_key == "k"] == [b"0", b"1", b"2"]


def test_while_the_target_refuses_it_is_asked_seldom_and_the_reason_is_shown(stand: Stand) -> None:
    fault = stand.emulator.faults.fail("Publish", "PERMISSION_DENIED", "no publishing here", resource=OUT, times=None)
    for _ in range(3):
        stand.publish_in(*([1.0] * 1000))
    stand.accepted(3000)

    stand.clock.advance(1.0)
    channel = until(
        lambda: (c := stand.client.channel("default"))["state"] == "failed" and c, "the channel is shown as failed"
    )
    assert OUT in channel["reason"]
    for _ in range(60):
        stand.clock.advance(1.0)
        stand.stats()
    assert stand.emulator.faults.hits(fault) <= 20

    stand.emulator.faults.clear()
    until(lambda: stand.clock.advance(30) or len(stand.receive()) == 3000, "all have arrived")
    assert stand.client.channel("default")["state"] == "active"


def test_a_poisonous_message_is_set_aside_and_those_behind_it_keep_their_order(stand: Stand) -> None:
    stand.emulator.faults.fail("Publish", "INVALID_ARGUMENT", resource=OUT, attribute="poison", times=None)
    now_s = stand.clock.now_ms() // 1000
    stand.publish(
        *[
            (str(i).encode(), {"available_at": str(now_s + 1), **({"poison": "1"} if i in {7, 8, 63} else {})})
            for i in range(100)
        ],
        ordering_key="k",
    )
    stand.accepted(100)

    stand.clock.advance(1.0)
    until(lambda: len(stand.receive()) == 97, "the good ones have arrived")

    assert stand.bodies() == [str(i).encode() for i in range(100) if i not in {7, 8, 63}]
    until(lambda: quarantined(stand) == 3, "the others are set aside")


def test_after_its_attempts_a_message_goes_to_the_quarantine(stand: Stand) -> None:
    stand.client.update_channel(
        "default", {"policy": {"retry": {"attempts": 3, "min_backoff": 1, "max_backoff": 1}}}, actor="test"
    )
    fault = stand.emulator.faults.fail("Publish", "UNAVAILABLE", resource=OUT, times=None)
    stand.publish_in(1.0, 1.0)
    stand.accepted(2)
    stand.clock.advance(1.0)

    until(lambda: stand.clock.advance(1.0) or quarantined(stand) == 2, "both are set aside")

    assert stand.emulator.faults.hits(fault) == 3
    assert stand.stats()["pending"] == 0


def test_after_the_last_attempt_of_one_message_the_next_ones_are_released(stand: Stand) -> None:
    stand.client.update_channel(
        "default", {"policy": {"retry": {"attempts": 2, "min_backoff": 1, "max_backoff": 1}}}, actor="test"
    )
    stand.emulator.faults.fail("Publish", "UNAVAILABLE", resource=OUT, times=2)
    stand.publish_in(1.0)
    stand.accepted(1)
    until(lambda: stand.clock.advance(1.0) or quarantined(stand) == 1, "it is set aside")

    stand.publish_in(1.0)
    stand.accepted(2)

    until(lambda: stand.clock.advance(1.0) or stand.bodies() == [b"0"], "the next one has arrived")
    until(lambda: stand.client.channel("default")["reason"] is None, "publishing works again")


def test_a_message_that_could_not_be_answered_for_is_published_again(stand: Stand) -> None:
    """The service took it, but its answer was lost: at least once means a copy, recognisable by its id."""
    fault = stand.emulator.faults.fail("Publish", "UNAVAILABLE", resource=OUT, times=1, after=True)
    stand.publish_in(1.0)
    stand.accepted(1)
    stand.clock.advance(1.0)
    until(lambda: stand.emulator.faults.hits(fault) == 1, "the answer was lost")

    until(lambda: stand.clock.advance(1.0) or len(stand.receive()) == 2, "the copy has arrived")

    assert len({message.attributes["scheduler-message-id"] for message in stand.receive()}) == 1


def test_a_paused_channel_holds_what_is_due_and_resumes_by_itself(stand: Stand) -> None:
    until_s = stand.clock.now_ms() / 1000 + 60
    stand.client.pause_channel("default", side="release", until=until_s, reason="upgrade", actor="ops")
    stand.publish_in(1.0)
    stand.accepted(1)

    for _ in range(29):
        stand.clock.advance(2.0)
    assert stand.bodies() == []
    assert stand.client.channel("default")["paused"]["release"]["by"] == "ops"
    until(lambda: stand.clock.advance(1.0) or stand.bodies() == [b"0"], "it is resumed")

    assert stand.client.channel("default")["paused"] == {"listen": None, "release": None}
