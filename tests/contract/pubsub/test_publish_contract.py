"""Publish: what is accepted, what is refused and how."""

from __future__ import annotations

import pytest

from tests.contract.pubsub.client import bodies, pb, status_of
from tests.contract.pubsub.conftest import Service

MESSAGE = pb("PubsubMessage")


def test_a_message_comes_out_as_it_went_in(service: Service) -> None:
    topic = service.topic()
    subscription = service.subscription(topic)
    sent = MESSAGE(data=b"\x00\xffbody", attributes={"a": "1", "ключ": "значение", "empty": ""}, ordering_key="k")
    ids = service.client.Publish(topic=topic, messages=[sent]).message_ids
    got = service.client.pull_until(subscription, 1)[0].message
    assert got.message_id == ids[0]
    assert got.publish_time.seconds > 1_600_000_000
    got.ClearField("message_id")
    got.ClearField("publish_time")
    assert got == sent


def test_ids_come_in_request_order_and_are_unique(service: Service) -> None:
    topic = service.topic()
    subscription = service.subscription(topic)
    ids = [*service.client.publish(topic, b"1", b"2", b"3"), *service.client.publish(topic, b"4")]
    assert len(set(ids)) == 4
    got = {message.message.message_id: message.message.data for message in service.client.pull_until(subscription, 4)}
    assert [got[number] for number in ids] == [b"1", b"2", b"3", b"4"]


def test_the_clients_message_id_and_publish_time_are_ignored(service: Service) -> None:
    topic = service.topic()
    subscription = service.subscription(topic)
    message = MESSAGE(data=b"x", message_id="mine")
    message.publish_time.FromJsonString("2001-02-03T04:05:06.789Z")
    ids = service.client.Publish(topic=topic, messages=[message]).message_ids
    got = service.client.pull_until(subscription, 1)[0].message
    assert ids[0] == got.message_id != "mine"
    assert got.publish_time.seconds > 1_600_000_000
    assert got.publish_time.nanos != 789_000_000


def test_a_message_of_attributes_alone_is_legal(service: Service) -> None:
    topic = service.topic()
    subscription = service.subscription(topic)
    service.client.publish(topic, b"", only="attributes")
    got = service.client.pull_until(subscription, 1)[0].message
    assert (got.data, dict(got.attributes)) == (b"", {"only": "attributes"})


def test_publishing_without_subscriptions_is_answered(service: Service) -> None:
    assert len(service.client.publish(service.topic(), b"lost")) == 1


def test_every_subscription_gets_what_is_published_after_its_creation(service: Service) -> None:
    topic = service.topic()
    service.client.publish(topic, b"before")
    subscriptions = [service.subscription(topic) for _ in range(2)]
    service.client.publish(topic, b"after")
    assert [bodies(service.client.pull_until(name, 1)) for name in subscriptions] == [[b"after"], [b"after"]]


def test_one_empty_message_refuses_the_whole_request(service: Service) -> None:
    topic = service.topic()
    subscription = service.subscription(topic)
    code, _ = status_of(lambda: service.client.Publish(topic=topic, messages=[MESSAGE(data=b"good"), MESSAGE()]))
    assert code == "INVALID_ARGUMENT"
    assert service.client.pull(subscription) == []


LIMITS = {
    "no messages": ([], "INVALID_ARGUMENT"),
    "1001 messages": ([MESSAGE(data=b"x")] * 1001, "INVALID_ARGUMENT"),
    "more than 10,000,000 bytes": ([MESSAGE(data=bytes(10_000_000))], "INVALID_ARGUMENT"),
    "101 attributes": ([MESSAGE(attributes={f"k{number}": "v" for number in range(101)})], "INVALID_ARGUMENT"),
    "key of 257 bytes": ([MESSAGE(attributes={"k" * 257: "v"})], "INVALID_ARGUMENT"),
    "value of 1025 bytes": ([MESSAGE(attributes={"k": "v" * 1025})], "INVALID_ARGUMENT"),
    "empty key": ([MESSAGE(attributes={"": "v"})], "INVALID_ARGUMENT"),
    "reserved key": ([MESSAGE(attributes={"googly": "v"})], "INVALID_ARGUMENT"),
    "ordering key of 1025 bytes": ([MESSAGE(data=b"x", ordering_key="k" * 1025)], "INVALID_ARGUMENT"),
    "two ordering keys": (
        [MESSAGE(data=b"x", ordering_key="a"), MESSAGE(data=b"x", ordering_key="b")],
        "FAILED_PRECONDITION",
    ),
    "with and without ordering key": (
        [MESSAGE(data=b"x", ordering_key="a"), MESSAGE(data=b"x")],
        "FAILED_PRECONDITION",
    ),
}


@pytest.mark.parametrize("case", LIMITS)
def test_what_exceeds_a_limit_is_refused(service: Service, case: str) -> None:
    messages, expected = LIMITS[case]
    topic = service.topic()
    assert status_of(lambda: service.client.Publish(topic=topic, messages=messages))[0] == expected


ALLOWED = {
    "1000 messages": [MESSAGE(data=b"x")] * 1000,
    "9,900,000 bytes": [MESSAGE(data=bytes(9_900_000))],
    "100 attributes": [MESSAGE(attributes={f"k{number}": "v" for number in range(100)})],
    "key of 256 bytes": [MESSAGE(attributes={"k" * 256: "v"})],
    "value of 1024 bytes": [MESSAGE(attributes={"k": "v" * 1024})],
    "ordering key of 1024 bytes": [MESSAGE(data=b"x", ordering_key="k" * 1024)],
    "one ordering key": [MESSAGE(data=b"x", ordering_key="a")] * 2,
}


@pytest.mark.parametrize("case", ALLOWED)
def test_what_just_keeps_a_limit_passes(service: Service, case: str) -> None:
    messages = ALLOWED[case]
    topic = service.topic()
    assert len(service.client.Publish(topic=topic, messages=messages).message_ids) == len(messages)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("projects/demo/topics/unknown", "NOT_FOUND"),
        ("unknown", "INVALID_ARGUMENT"),
        ("projects/demo/topics/", "INVALID_ARGUMENT"),
        ("projects/demo/topics/1abc", "INVALID_ARGUMENT"),
    ],
)
def test_publishing_to_what_is_no_topic_is_refused(service: Service, name: str, code: str) -> None:
    assert status_of(lambda: service.client.publish(name, b"x"))[0] == code
