"""What fails is said where it fails, stays there, and mends by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.blackbox.processes import wait_for
from tests.blackbox.pubsub import message, subscription_path, topic_path
from tests.integration.relay.conftest import MakeRelay
from tests.integration.relay.site import Relay, at, now_ms, numbered

REMEDY_S = 30.0


@pytest.fixture
def healthy(make_relay: MakeRelay) -> Relay:
    """A second channel on the same node."""
    return make_relay()


def assert_unaffected(healthy: Relay) -> None:
    """It relays, promptly."""
    due_ms = now_ms() + 100
    body = f"healthy {due_ms}".encode()
    healthy.send(body, due_ms=due_ms)
    arrival = healthy.out.wait_data([body], 5)[-1]
    assert arrival.publish_us / 1000 - due_ms < 1000
    assert healthy.document_now()["state"] == "active"


def wait_failed(relay: Relay, *words: str) -> None:
    """The channel has failed and its reason has the words."""
    reason = relay.wait_state("failed")["reason"]
    for word in words:
        assert word in reason


def test_a_deleted_target_topic_fails_its_channel_alone_and_mends_when_it_is_back(
    relay: Relay, healthy: Relay, faults: Any
) -> None:
    relay.pubsub.delete_topic(relay.target)
    bodies = numbered("no topic", 50)
    relay.send(*bodies)
    wait_failed(relay, relay.target)
    assert_unaffected(healthy)
    assert relay.stats()["pending"] + relay.stats()["in_flight"] >= len(bodies)
    # Between topic and subscription a message would go to nobody: the topic is not to be found until both are there.
    away = faults.fail("Publish", "NOT_FOUND", resource=topic_path(relay.target), times=None)
    relay.pubsub.create_topic(relay.target)
    relay.pubsub.create_subscription(f"{relay.id}-again", relay.target)
    faults.clear(away)
    with relay.pubsub.collect(f"{relay.id}-again") as out:
        assert len(out.wait_data(bodies, REMEDY_S)) == len(bodies)
    relay.wait_state("active", REMEDY_S)


def test_a_missing_subscription_fails_its_channel_alone_and_mends_when_it_is_there(
    make_relay: MakeRelay, healthy: Relay
) -> None:
    relay = make_relay(create=False)
    relay.pubsub.delete_subscription(relay.source)
    relay.create()
    wait_failed(relay, relay.source)
    assert_unaffected(healthy)
    relay.pubsub.create_subscription(relay.source, relay.source)
    relay.send(b"at last")
    relay.out.wait_data([b"at last"], REMEDY_S)
    relay.wait_state("active", REMEDY_S)


def test_a_refused_permission_to_publish_fails_its_channel_alone_and_mends_when_granted(
    relay: Relay, healthy: Relay, faults: Any
) -> None:
    fault = faults.fail(
        "Publish",
        "PERMISSION_DENIED",
        "User not authorized to perform this action.",
        resource=topic_path(relay.target),
        times=None,
    )
    relay.send(b"patience")
    wait_failed(relay, "not authorized")
    assert_unaffected(healthy)
    faults.clear(fault)
    relay.out.wait_data([b"patience"], REMEDY_S)
    relay.wait_state("active", REMEDY_S)


def test_a_refused_permission_to_listen_fails_its_channel_alone_and_mends_when_granted(
    relay: Relay, healthy: Relay, faults: Any
) -> None:
    fault = faults.fail(
        "StreamingPull",
        "PERMISSION_DENIED",
        "User not authorized to perform this action.",
        resource=subscription_path(relay.source),
        times=None,
    )
    faults.end_streams(subscription=subscription_path(relay.source))
    wait_failed(relay, "not authorized")
    assert_unaffected(healthy)
    faults.clear(fault)
    relay.send(b"again")
    relay.out.wait_data([b"again"], REMEDY_S)
    relay.wait_state("active", REMEDY_S)


def test_an_unreadable_key_file_fails_its_channel_alone(make_relay: MakeRelay, healthy: Relay, tmp_path: Path) -> None:
    path = tmp_path / "no such key.json"
    relay = make_relay(source={"key_file": str(path)}, create=False)
    relay.create()
    wait_failed(relay, str(path))
    assert_unaffected(healthy)
    relay.node.rest.patch(relay.path, {"source": {"config": {"key_file": None}}}).ok(200)
    relay.send(b"without a key")
    relay.out.wait_data([b"without a key"], REMEDY_S)


def test_a_target_that_is_away_for_a_moment_delays_and_loses_nothing(relay: Relay, faults: Any) -> None:
    fault = faults.fail("Publish", "UNAVAILABLE", resource=topic_path(relay.target), times=5)
    bodies = numbered("patient", 20)
    relay.send(*bodies)
    arrivals = relay.out.wait_data(bodies, 15)
    assert faults.hits(fault) == 5
    assert len(arrivals) == len(bodies)


def test_one_poison_message_is_set_aside_and_the_good_ones_around_it_pass(relay: Relay, faults: Any) -> None:
    faults.fail(
        "Publish",
        "INVALID_ARGUMENT",
        "this message is poison",
        resource=topic_path(relay.target),
        attribute="poison",
        times=None,
    )
    good = numbered("good", 300)
    due = at(now_ms() + 500)
    messages = [message(body, available_at=due) for body in good]
    messages.insert(150, message(b"bad", poison="this one", available_at=due))
    relay.publish(messages)
    arrivals = relay.out.wait_data(good, 15)
    relay.wait_stat("quarantined", 1)
    assert len(arrivals) == len(good)
    (aside,) = relay.messages("quarantined", 1)
    assert "this message is poison" in aside["reason"]
    assert aside["attributes"]["poison"] == "this one"
    relay.wait_state("active")


def test_streams_that_end_are_opened_again_without_loss(relay: Relay, faults: Any) -> None:
    bodies = numbered("streams", 300)
    for start in range(0, len(bodies), 100):
        relay.send(*bodies[start : start + 100])
        wait_for(lambda: faults.end_streams(subscription=subscription_path(relay.source)) > 0, 10, "a stream is open")
    relay.out.wait_data(bodies, 25)
    relay.wait_stat("accepted", len(bodies))
    assert len(relay.out) == len(bodies)


def test_a_subscription_that_a_channel_reads_is_not_given_to_another(relay: Relay) -> None:
    answer = relay.node.rest.post("/channels", {**relay.document, "id": f"{relay.id}-2"})
    assert answer.status == 409
    assert relay.id in answer.body["detail"]
    assert answer.body["reason"].isupper()
