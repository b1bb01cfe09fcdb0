"""Pull and StreamingPull: leases, acks, redelivery, flow control, refusals."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.contract.pubsub.client import Client, bodies, status_of
from tests.contract.pubsub.conftest import Service


def test_pull_takes_what_is_asked_for_and_an_ack_ends_it(service: Service) -> None:
    topic = service.topic()
    name = service.subscription(topic)
    service.client.publish(topic, b"1", b"2", b"3")
    first = service.client.pull(name, 2)
    assert len(first) <= 2
    rest = service.client.pull_until(name, 3 - len(first))
    service.client.ack(name, [*first, *rest])
    assert sorted(bodies([*first, *rest])) == [b"1", b"2", b"3"]
    assert service.client.pull(name) == []


def test_a_leased_message_is_not_delivered_again(service: Service) -> None:
    topic = service.topic()
    name = service.subscription(topic)
    service.client.publish(topic, b"1")
    assert len(service.client.pull_until(name, 1)) == 1
    assert service.client.pull(name) == []


def test_a_nacked_message_comes_back_at_once_with_another_ack_id(service: Service) -> None:
    topic = service.topic()
    name = service.subscription(topic)
    service.client.publish(topic, b"1")
    first = service.client.pull_until(name, 1)
    service.client.nack(name, first)
    again = service.client.pull_until(name, 1)
    assert again[0].message == first[0].message
    assert again[0].ack_id != first[0].ack_id


def test_an_expired_lease_brings_the_message_back(service: Service) -> None:
    topic = service.topic()
    name = service.subscription(topic)
    service.client.publish(topic, b"1")
    held = service.client.pull_until(name, 1)
    service.client.ModifyAckDeadline(subscription=name, ack_ids=[held[0].ack_id], ack_deadline_seconds=1)
    started = time.monotonic()
    assert bodies(service.client.pull_until(name, 1)) == [b"1"]
    assert 0.5 < time.monotonic() - started < 4


def test_acks_can_be_repeated(service: Service) -> None:
    topic = service.topic()
    name = service.subscription(topic)
    service.client.publish(topic, b"1")
    held = service.client.pull_until(name, 1)
    for _ in range(2):
        service.client.ack(name, held)
    assert service.client.pull(name) == []


def test_delivery_attempts_are_not_counted_without_a_dead_letter_policy(service: Service) -> None:
    topic = service.topic()
    name = service.subscription(topic)
    service.client.publish(topic, b"1")
    service.client.nack(name, service.client.pull_until(name, 1))
    assert service.client.pull_until(name, 1)[0].delivery_attempt == 0


def test_a_message_that_always_fails_ends_in_the_dead_letter_topic(service: Service) -> None:
    topic, dead = service.topic(), service.topic()
    grave = service.subscription(dead)
    policy = {"dead_letter_topic": dead, "max_delivery_attempts": 5}
    name = service.subscription(topic, dead_letter_policy=policy)
    service.client.publish(topic, b"1", color="red")
    attempts = []
    for _ in range(5):
        held = service.client.pull_until(name, 1)
        attempts.append(held[0].delivery_attempt)
        service.client.nack(name, held)
    assert service.client.pull(name) == []
    buried = service.client.pull_until(grave, 1)[0].message
    assert (buried.data, buried.attributes["color"]) == (b"1", "red")
    assert buried.attributes["CloudPubSubDeadLetterSourceDeliveryCount"] == "5"
    assert buried.attributes["CloudPubSubDeadLetterSourceSubscription"] == name.rpartition("/")[2]
    assert buried.attributes["CloudPubSubDeadLetterSourceSubscriptionProject"] == service.project
    assert buried.attributes["CloudPubSubDeadLetterSourceTopicPublishTime"].endswith("Z")
    assert attempts == [1, 2, 3, 4, 5]


def test_a_stream_delivers_what_is_there_and_what_comes(service: Service) -> None:
    topic = service.topic()
    name = service.subscription(topic)
    service.client.publish(topic, b"before")
    stream = service.client.stream(name)
    stream.wait_for(1)
    service.client.publish(topic, b"after")
    assert bodies(stream.wait_for(2)) == [b"before", b"after"]


def test_a_message_goes_to_one_stream_only(service: Service) -> None:
    topic = service.topic()
    name = service.subscription(topic)
    streams = [service.client.stream(name) for _ in range(2)]
    for number in range(20):
        service.client.publish(topic, b"%d" % number)
    deadline = time.monotonic() + 10
    while sum(len(stream.messages) for stream in streams) < 20 and time.monotonic() < deadline:
        time.sleep(0.01)
    got = [message.message.message_id for stream in streams for message in stream.messages]
    assert len(got) == len(set(got)) == 20


def test_acks_on_the_stream_and_by_call_free_its_window(service: Service) -> None:
    topic = service.topic()
    name = service.subscription(topic)
    stream = service.client.stream(name, max_outstanding_messages=2)
    for number in range(6):
        service.client.publish(topic, b"%d" % number)
    held = stream.wait_for(2)
    stream.send(ack_ids=[message.ack_id for message in held[:2]])
    held = stream.wait_for(4)
    service.client.ack(name, held[2:4])
    assert len(stream.wait_for(6)) == 6


def test_a_nack_on_the_stream_redelivers(service: Service) -> None:
    topic = service.topic()
    name = service.subscription(topic)
    stream = service.client.stream(name)
    service.client.publish(topic, b"1")
    held = stream.wait_for(1)
    stream.send(modify_deadline_ack_ids=[held[0].ack_id], modify_deadline_seconds=[0])
    assert bodies(stream.wait_for(2)) == [b"1", b"1"]


def test_a_message_of_nine_megabytes_passes(service: Service) -> None:
    topic = service.topic()
    name = service.subscription(topic)
    service.client.publish(topic, bytes(9_000_000))
    stream = service.client.stream(name)
    assert len(stream.wait_for(1)[0].message.data) == 9_000_000


BAD_STREAMS: dict[str, tuple[dict[str, int], str]] = {
    "deadline below 10 s": ({"stream_ack_deadline_seconds": 9}, "INVALID_ARGUMENT"),
    "deadline above 600 s": ({"stream_ack_deadline_seconds": 601}, "INVALID_ARGUMENT"),
    "no deadline": ({"stream_ack_deadline_seconds": 0}, "INVALID_ARGUMENT"),
}


@pytest.mark.parametrize("case", BAD_STREAMS)
def test_a_stream_with_bad_settings_is_refused(service: Service, case: str) -> None:
    settings, code = BAD_STREAMS[case]
    name = service.subscription(service.topic())
    assert service.client.stream(name, **settings).wait_for_end()[0] == code


def test_a_stream_of_an_unknown_subscription_is_refused(service: Service) -> None:
    stream = service.client.stream(f"projects/{service.project}/subscriptions/unknown")
    assert stream.wait_for_end()[0] == "NOT_FOUND"


def test_a_stream_ends_with_its_subscription(service: Service) -> None:
    topic = service.topic()
    name = service.subscription(topic)
    service.client.publish(topic, b"1")
    stream = service.client.stream(name)
    stream.wait_for(1)
    service.client.DeleteSubscription(subscription=name)
    assert stream.wait_for_end()[0] == "NOT_FOUND"


def test_a_later_request_that_names_the_subscription_again_ends_the_stream(service: Service) -> None:
    name = service.subscription(service.topic())
    stream = service.client.stream(name)
    stream.send(subscription=name)
    assert stream.wait_for_end()[0] == "INVALID_ARGUMENT"


def test_deadlines_that_do_not_match_their_ids_end_the_stream(service: Service) -> None:
    topic = service.topic()
    name = service.subscription(topic)
    service.client.publish(topic, b"1")
    stream = service.client.stream(name)
    held = stream.wait_for(1)
    stream.send(modify_deadline_ack_ids=[held[0].ack_id], modify_deadline_seconds=[1, 2])
    assert stream.wait_for_end()[0] == "INVALID_ARGUMENT"


BAD_CALLS: dict[str, Callable[[Client, str], object]] = {
    "no messages asked for": lambda client, name: client.Pull(subscription=name, max_messages=0),
    "deadline above 600 s": lambda client, name: client.ModifyAckDeadline(
        subscription=name, ack_ids=["x"], ack_deadline_seconds=601
    ),
    "negative deadline": lambda client, name: client.ModifyAckDeadline(
        subscription=name, ack_ids=["x"], ack_deadline_seconds=-1
    ),
    "no ids to ack": lambda client, name: client.Acknowledge(subscription=name),
    "no ids to extend": lambda client, name: client.ModifyAckDeadline(subscription=name, ack_deadline_seconds=10),
    "more than 512 KiB of ids": lambda client, name: client.Acknowledge(subscription=name, ack_ids=["x" * 600] * 1000),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_calls_are_refused(service: Service, case: str) -> None:
    name = service.subscription(service.topic())
    assert status_of(lambda: BAD_CALLS[case](service.client, name))[0] == "INVALID_ARGUMENT"
