"""The life of a stream: recycling, properties, malformed requests, and how soon a message is on its way."""

from __future__ import annotations

import statistics
import time

import pytest

from engine.emulator import Emulator
from tests.contract.pubsub.client import Client, bodies, eventually, status_of
from tests.unit.emulator.conftest import PROJECT, Bench


def test_a_stream_is_ended_with_unavailable_after_its_time() -> None:
    with Emulator(stream_life_s=0.2) as emulator:
        emulator.create_topic(PROJECT, "orders")
        name = emulator.create_subscription(PROJECT, "worker", "orders")
        client = Client(emulator.address)
        code, text = client.stream(name).wait_for_end()
        client.close()
    assert code == "UNAVAILABLE"
    assert text.endswith("[code=8a75]")


def test_stopping_the_server_ends_streams_with_unavailable() -> None:
    emulator = Emulator()
    emulator.start()
    emulator.create_topic(PROJECT, "orders")
    name = emulator.create_subscription(PROJECT, "worker", "orders")
    client = Client(emulator.address)
    stream = client.stream(name)
    eventually(lambda: emulator.counters()["streams_open"] == 1, "the stream is open")
    emulator.stop()
    assert stream.wait_for_end()[0] == "UNAVAILABLE"
    client.close()


def test_every_response_tells_the_subscriptions_properties(bench: Bench) -> None:
    name = bench.emulator.create_subscription(
        PROJECT, "exact", "orders", enable_message_ordering=True, enable_exactly_once_delivery=True
    )
    stream = bench.client.stream(name)
    bench.client.publish(bench.topic, b"x")
    stream.wait_for(1)
    properties = stream.responses[0].subscription_properties
    assert properties.message_ordering_enabled
    assert properties.exactly_once_delivery_enabled


def test_a_malformed_ack_id_ends_the_stream(bench: Bench) -> None:
    stream = bench.client.stream(bench.subscription)
    stream.send(ack_ids=["made up"])
    assert stream.wait_for_end()[0] == "INVALID_ARGUMENT"


def test_a_stream_that_is_refused_at_once_leaves_nothing_behind(bench: Bench) -> None:
    stream = bench.client.stream(bench.subscription, ack_ids=["made up"])
    assert stream.wait_for_end()[0] == "INVALID_ARGUMENT"
    assert bench.emulator.counters()["streams_open"] == 0


@pytest.mark.parametrize(
    "later",
    [
        {"max_outstanding_messages": 5},
        {"stream_ack_deadline_seconds": 5},
        {"protocol_version": 1},
        {"modify_deadline_ack_ids": ["x"]},
        {"ack_ids": ["x" * 600] * 1000},
    ],
)
def test_a_later_request_that_is_not_allowed_ends_the_stream(bench: Bench, later: dict[str, object]) -> None:
    stream = bench.client.stream(bench.subscription)
    stream.send(**later)
    assert stream.wait_for_end()[0] == "INVALID_ARGUMENT"


def test_heartbeats_are_taken(bench: Bench) -> None:
    stream = bench.client.stream(bench.subscription)
    stream.send()
    bench.client.publish(bench.topic, b"x")
    assert bodies(stream.wait_for(1)) == [b"x"]
    assert stream.error is None


def test_a_ping_is_answered_where_the_client_waits_for_it(bench: Bench) -> None:
    """Clients of protocol version 1 give a stream up that is silent for 15 s after a ping."""
    stream = bench.client.stream(bench.subscription, protocol_version=1)
    stream.send()
    eventually(lambda: len(stream.responses) == 1, "the ping is answered")
    stream.send(stream_ack_deadline_seconds=20)
    eventually(lambda: len(stream.responses) == 2, "a ping that changes the deadline is answered")
    bench.client.publish(bench.topic, b"x")
    assert bodies(stream.wait_for(1)) == [b"x"]
    assert len(stream.responses) == 3
    assert not any(response.received_messages for response in stream.responses[:2])


def test_a_ping_is_not_answered_where_the_client_does_not_know_of_it(bench: Bench) -> None:
    stream = bench.client.stream(bench.subscription)
    stream.send()
    stream.send(modify_deadline_ack_ids=["0" * 23], modify_deadline_seconds=[10])
    bench.client.publish(bench.topic, b"x")
    assert bodies(stream.wait_for(1)) == [b"x"]
    assert len(stream.responses) == 1


def test_a_stalled_stream_leaves_pings_unanswered(bench: Bench) -> None:
    bench.client.publish(bench.topic, b"before")
    held = bench.client.pull(bench.subscription)
    bench.emulator.faults.stall_streams()
    stream = bench.client.stream(bench.subscription, protocol_version=1)
    for _ in range(50):
        stream.send()
    stream.send(ack_ids=[held[0].ack_id])
    eventually(lambda: bench.emulator.counters()["acked"] == 1, "all pings have been read")
    assert stream.responses == []
    bench.emulator.faults.resume_streams()
    bench.client.publish(bench.topic, b"x")
    assert bodies(stream.wait_for(1)) == [b"x"]
    assert len(stream.responses) == 2, "one answer for all pings"


def test_a_client_that_stops_sending_goes_on_receiving(bench: Bench) -> None:
    stream = bench.client.stream(bench.subscription)
    stream._requests.put(None)
    bench.client.publish(bench.topic, b"x")
    assert bodies(stream.wait_for(1)) == [b"x"]
    assert stream.error is None


def test_detaching_ends_the_stream(bench: Bench) -> None:
    stream = bench.client.stream(bench.subscription)
    eventually(lambda: bench.emulator.counters()["streams_open"] == 1, "the stream is open")
    bench.client.DetachSubscription(subscription=bench.subscription)
    assert stream.wait_for_end()[0] == "FAILED_PRECONDITION"
    assert status_of(lambda: bench.client.pull(bench.subscription))[0] == "FAILED_PRECONDITION"


def test_a_message_is_on_its_way_within_a_millisecond_or_two(bench: Bench) -> None:
    stream = bench.client.stream(bench.subscription)
    eventually(lambda: bench.emulator.counters()["streams_open"] == 1, "the stream is open")
    delays = []
    for number in range(30):
        started = time.perf_counter()
        bench.client.publish(bench.topic, b"x")
        while len(stream.messages) <= number:
            time.sleep(0.000_05)
        delays.append(time.perf_counter() - started)
    # Publish, delivery and the test's own threads together; the median alone is steady on a shared machine.
    assert statistics.median(delays) < 0.02


def test_deadlines_pass_by_the_systems_clock_too() -> None:
    with Emulator() as emulator:
        topic = emulator.create_topic(PROJECT, "orders")
        name = emulator.create_subscription(PROJECT, "worker", "orders")
        client = Client(emulator.address)
        stream = client.stream(name)
        client.publish(topic, b"x")
        held = stream.wait_for(1)
        client.ModifyAckDeadline(subscription=name, ack_ids=[held[0].ack_id], ack_deadline_seconds=1)
        started = time.monotonic()
        stream.wait_for(2, deadline_s=5)
        assert 0.8 < time.monotonic() - started < 1.8
        client.close()


def test_what_is_held_back_comes_when_it_is_due_and_not_at_the_next_housekeeping() -> None:
    with Emulator() as emulator:
        topic = emulator.create_topic(PROJECT, "orders")
        policy = {"minimum_backoff": "0.050s", "maximum_backoff": "0.050s"}
        name = emulator.create_subscription(PROJECT, "worker", "orders", retry_policy=policy)
        client = Client(emulator.address)
        stream = client.stream(name)
        client.publish(topic, b"x")
        delays = []
        for number in range(1, 6):
            held = stream.wait_for(number)
            started = time.monotonic()
            client.nack(name, held[-1:])
            stream.wait_for(number + 1)
            delays.append(time.monotonic() - started)
        client.close()
    assert 0.045 < statistics.median(delays) < 0.4
