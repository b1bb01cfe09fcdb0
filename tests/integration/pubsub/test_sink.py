"""A sink against the local Pub/Sub: each call is made once, ends in time and says why it failed."""

from __future__ import annotations

import time

import grpc
import pytest

from engine.emulator import Emulator
from engine.pubsub.errors import FailureKind, classify
from tests.integration.pubsub.conftest import PROJECT, Bench, eventually, message, send


def test_publishing_gives_one_id_for_each_message_in_order(bench):
    _source, listener = bench.source()
    ids = send(bench.sink(), message("a"), message("b"), message("c")).result(10)
    assert len(set(ids)) == 3
    eventually(lambda: [i for r in listener.responses for i in r.message_ids] == ids)


def test_messages_of_one_ordering_key_arrive_in_the_order_of_publishing(bench):
    _source, listener = bench.source()
    sink = bench.sink()
    for n in range(20):
        send(sink, *(message(f"{n}.{k}", key="k") for k in range(5))).result(10)
    eventually(lambda: len(listener.payloads) == 100)
    assert listener.payloads == [message(f"{n}.{k}", key="k") for n in range(20) for k in range(5)]


def test_mixed_ordering_keys_are_refused_as_a_message_failure(bench):
    error = send(bench.sink(), message("a", key="x"), message("b", key="y")).exception(10)
    assert error is not None
    assert classify(error, "projects/demo/topics/orders").kind is FailureKind.MESSAGE


def test_one_poisonous_message_refuses_the_whole_request(emulator, bench):
    emulator.faults.poison("poison")
    sink = bench.sink()
    error = send(sink, message("good"), message("bad", poison="1")).exception(10)
    assert error is not None
    failure = classify(error, sink.topic)
    assert (failure.kind, failure.code) == (FailureKind.MESSAGE, "INVALID_ARGUMENT")
    assert emulator.counters().get("published", 0) == 0


def test_a_missing_topic_is_a_failure_of_the_channel(bench):
    sink = bench.sink("nowhere")
    error = send(sink, message("x")).exception(10)
    assert error is not None
    failure = classify(error, sink.topic)
    assert (failure.kind, failure.code) == (FailureKind.CHANNEL, "NOT_FOUND")
    assert "projects/demo/topics/nowhere does not exist" in failure.reason


def test_a_call_without_an_answer_ends_at_its_deadline(emulator, bench):
    emulator.faults.drop("Publish")
    began = time.monotonic()
    error = send(bench.sink(), message("x"), deadline_s=0.4).exception(10)
    assert isinstance(error, grpc.RpcError)
    assert classify(error, "t").code == "DEADLINE_EXCEEDED"
    assert 0.3 < time.monotonic() - began < 5


def test_nothing_is_repeated_behind_the_releaser_s_back(emulator, bench):
    fault = emulator.faults.fail("Publish", "UNAVAILABLE", times=5)
    error = send(bench.sink(), message("x")).exception(10)
    assert error is not None
    assert classify(error, "t").kind is FailureKind.TRANSIENT
    assert emulator.faults.hits(fault) == 1
    assert emulator.counters()["calls.Publish"] == 1


def test_a_dead_server_fails_at_once_instead_of_using_up_the_deadline():
    with Emulator() as gone:
        address = gone.address
    bench = Bench(address)
    try:
        began = time.monotonic()
        error = send(bench.sink(), message("x"), deadline_s=30).exception(10)
        assert error is not None
        assert classify(error, "t").kind is FailureKind.TRANSIENT
        assert time.monotonic() - began < 5
    finally:
        bench.close()


def test_cancelling_ends_every_call_in_flight(emulator, bench):
    held = emulator.faults.drop("Publish", times=None)
    sink = bench.sink()
    calls = [send(sink, message(str(n)), deadline_s=60) for n in range(3)]
    eventually(lambda: emulator.faults.hits(held) == 3)
    assert sink.in_flight() == 3
    sink.cancel_all()
    eventually(lambda: all(call.cancelled() for call in calls))
    eventually(lambda: sink.in_flight() == 0)


def test_a_closed_sink_refuses(bench):
    sink = bench.sink()
    send(sink, message("x")).result(10)
    sink.close()
    error = send(sink, message("y")).exception(10)
    assert error is not None
    assert classify(error, sink.topic).kind is FailureKind.TRANSIENT


def test_an_endpoint_of_its_own_is_reached_in_plain_text(emulator):
    emulator.create_topic(PROJECT, "orders")
    bench = Bench(None)
    try:
        assert send(bench.sink(endpoint=f"http://{emulator.address}"), message("x")).result(10)
    finally:
        bench.close()


@pytest.mark.parametrize("many", [1, 45])
def test_channels_share_connections_but_never_too_many(emulator, many):
    bench = Bench(emulator.address)
    try:
        sinks = [bench.sink() for _ in range(many)]
        for sink in sinks:
            send(sink, message("x")).result(10)
        assert len(bench.connections._shared) == (1 if many == 1 else 2)
        for sink in sinks:
            sink.close()
        assert bench.connections._shared == []
    finally:
        bench.close()


def test_calls_on_a_connection_that_is_replaced_meanwhile_are_answered(emulator, bench):
    slow = emulator.faults.delay("Publish", 0.5, times=1)
    sink = bench.sink()
    first = send(sink, message("first"))
    eventually(lambda: emulator.faults.hits(slow) == 1)
    shared = bench.connections.publisher(sink._config)
    shared.retire()
    shared.close()

    second = send(sink, message("second"))

    assert len(second.result(10)) == len(first.result(10)) == 1
    assert emulator.counters()["published"] == 2
    eventually(lambda: len(bench.connections._shared) == 1)
