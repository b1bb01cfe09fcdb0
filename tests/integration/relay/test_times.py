"""Times that are wrong, missing or shared between topics."""

from __future__ import annotations

from tests.blackbox.pubsub import message
from tests.integration.relay.conftest import MakeRelay
from tests.integration.relay.site import Relay, at, now_ms

WRONG = {
    b"words": "tomorrow",
    b"milliseconds": "1767225600000",
    b"empty": "",
    b"nan": "NaN",
    b"space": " 1767225600",
    b"hex": "0x10",
    b"no offset": "2031-01-01T00:00:00",
    b"far": "9999999999",
}


def test_wrong_and_missing_times_are_set_aside_with_a_reason_and_hold_nobody_up(relay: Relay) -> None:
    messages = [message(body, available_at=value) for body, value in WRONG.items()]
    messages.append(message(b"missing", colour="blue"))
    messages.append(message(b"right", available_at=at(now_ms())))
    relay.publish(messages)
    relay.out.wait_data([b"right"], 10)
    relay.wait_stat("quarantined", len(WRONG) + 1)
    listed = relay.messages("quarantined", len(WRONG) + 1)
    reasons = {m["attributes"].get("available_at"): m["reason"] for m in listed}
    assert "looks like milliseconds: 1767225600000 is year 5797" in reasons["1767225600000"]
    assert all(reasons.values())
    assert None in reasons, "the message without a time is among them"
    assert relay.messages("pending", 0) == []
    assert len(relay.out) == 1


def test_one_topic_as_source_and_target_with_the_two_filters_does_not_loop(make_relay: MakeRelay) -> None:
    relay = make_relay(shared_topic=True, filters=("attributes:available_at", "NOT attributes:available_at"))
    relay.send(b"round", due_ms=now_ms() + 300)
    relay.out.wait_data([b"round"], 10)
    # Had it looped, its second round would have been accepted before this one.
    relay.send(b"second")
    relay.out.wait_data([b"second"], 10)
    assert relay.stats()["accepted"] == 2
    assert [a.data for a in relay.out.arrivals] == [b"round", b"second"]


def test_one_topic_without_filters_discards_what_comes_round(make_relay: MakeRelay) -> None:
    relay = make_relay(shared_topic=True, policy={"missing_time": "release"})
    relay.send(b"round")
    relay.wait_stat("discarded", 1)
    released = [a for a in relay.out.arrivals if "scheduler-message-id" in a.attributes]
    assert [a.data for a in released] == [b"round"]
    assert relay.stats()["pending"] == 0
    assert relay.stats()["quarantined"] == 0


def test_rfc_3339_decimals_and_delays_are_understood(relay: Relay) -> None:
    relay.publish(
        [
            message(b"zone", available_at="2020-01-01T00:00:00+05:30"),
            message(b"decimal", available_at="1577836800.123"),
            message(b"negative", available_at="-5"),
        ]
    )
    relay.out.wait_data([b"zone", b"decimal", b"negative"], 10)
    dues = {a.data: a.attributes["scheduler-due"] for a in relay.out.arrivals}
    assert dues[b"zone"] == "2019-12-31T18:30:00.000Z"
    assert dues[b"decimal"] == "2020-01-01T00:00:00.123Z"
    assert dues[b"negative"] == "1969-12-31T23:59:55.000Z"
