"""The service's own sentences for what a Publish may not be, and the bound on memory."""

from __future__ import annotations

import pytest

from engine.emulator import Emulator
from tests.contract.pubsub.client import Client, pb, status_of
from tests.unit.emulator.conftest import PROJECT, Bench

MESSAGE = pb("PubsubMessage")

TEXTS = {
    "empty": (
        [MESSAGE(data=b"x"), MESSAGE()],
        "INVALID_ARGUMENT",
        "One or more messages in the publish request is empty. Each message must contain either non-empty data, or at "
        "least one attribute.",
    ),
    "none": (
        [],
        "INVALID_ARGUMENT",
        "The value for message_count is too small. You passed 0 in the request, but the minimum value is 1.",
    ),
    "many": (
        [MESSAGE(data=b"x")] * 1100,
        "INVALID_ARGUMENT",
        "The value for 1100 is too large. You passed message_count in the request, but the maximum value is 1000.",
    ),
    "mixed": (
        [MESSAGE(data=b"x", ordering_key="a"), MESSAGE(data=b"x", ordering_key="b")],
        "FAILED_PRECONDITION",
        "In a single publish request, all messages must have no ordering key or they must all have the same ordering "
        "key. [code=539b]",
    ),
}


@pytest.mark.parametrize("case", TEXTS)
def test_a_refusal_is_said_as_the_service_says_it(bench: Bench, case: str) -> None:
    messages, code, text = TEXTS[case]
    assert status_of(lambda: bench.client.Publish(topic=bench.topic, messages=messages)) == (code, text)


def test_the_size_of_the_whole_request_counts(bench: Bench) -> None:
    message = MESSAGE(data=bytes(5_000_000))
    size = pb("PublishRequest")(topic=bench.topic, messages=[message] * 2).ByteSize()
    assert size > 10_000_000
    code, text = status_of(lambda: bench.client.Publish(topic=bench.topic, messages=[message] * 2))
    assert code == "INVALID_ARGUMENT"
    assert text == (
        f"The value for {size} is too large. You passed request_size in the request, but the maximum value is 10000000."
    )


def test_an_unknown_topic_is_named(bench: Bench) -> None:
    name = f"projects/{PROJECT}/topics/unknown"
    assert status_of(lambda: bench.client.publish(name, b"x")) == (
        "NOT_FOUND",
        "Resource not found (resource=unknown).",
    )


def test_the_attributes_of_client_libraries_pass_though_their_names_are_googles(bench: Bench) -> None:
    bench.client.publish(bench.topic, b"x", googclient_traceparent="00-1")
    assert bench.client.pull(bench.subscription)[0].message.attributes["googclient_traceparent"] == "00-1"


def test_message_ids_grow(bench: Bench) -> None:
    ids = [int(bench.client.publish(bench.topic, b"x")[0]) for _ in range(5)]
    ids += map(int, bench.client.publish(bench.topic, *[b"x"] * 1000))
    assert ids == sorted(set(ids))


def test_backlogs_take_no_more_memory_than_allowed_and_acks_make_room() -> None:
    with Emulator(backlog_bytes_max=100_000) as emulator:
        topic = emulator.create_topic(PROJECT, "orders")
        name = emulator.create_subscription(PROJECT, "worker", "orders")
        client = Client(emulator.address)
        client.publish(topic, bytes(60_000))
        code, text = status_of(lambda: client.publish(topic, bytes(60_000)))
        assert code == "RESOURCE_EXHAUSTED"
        assert "100000 are allowed" in text
        client.ack(name, client.pull(name))
        client.publish(topic, bytes(60_000))
        client.close()


def test_what_nobody_subscribes_to_takes_no_memory(emulator: Emulator, client: Client) -> None:
    client.publish(emulator.create_topic(PROJECT, "lonely"), bytes(1_000_000))
    assert emulator.counters()["held_bytes"] == 0


@pytest.mark.parametrize("way", ["filter", "delete", "detach", "seek", "topic"])
def test_every_way_out_of_a_subscription_frees_its_memory(bench: Bench, way: str) -> None:
    name = bench.subscription
    if way == "filter":
        bench.client.DeleteSubscription(subscription=name)
        bench.emulator.create_subscription(PROJECT, "picky", "orders", filter="attributes:nothing")
    bench.client.publish(bench.topic, b"1", b"2", b"3")
    bench.client.pull(name, 1) if way != "filter" else None
    if way == "delete":
        bench.client.DeleteSubscription(subscription=name)
    if way == "detach":
        bench.client.DetachSubscription(subscription=name)
    if way == "seek":
        bench.client.Seek(subscription=name, time={"seconds": bench.clock.now_ns() // 10**9 + 9})
    if way == "topic":
        bench.client.DeleteTopic(topic=bench.topic)
        bench.client.ack(name, bench.client.pull(name))
        bench.clock.advance(11)
        bench.client.ack(name, bench.client.pull(name))
    assert bench.emulator.counters()["held_bytes"] == 0


def test_a_topic_is_made_on_first_use_when_that_is_asked_for() -> None:
    with Emulator(project_autocreate=True) as emulator:
        client = Client(emulator.address)
        client.publish(f"projects/{PROJECT}/topics/fresh", b"x")
        assert client.GetTopic(topic=f"projects/{PROJECT}/topics/fresh").name.endswith("fresh")
        client.close()
