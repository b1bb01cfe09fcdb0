"""Injected faults: what strikes, when, how often, and what lifts it; in this process and from another."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from engine.emulator import ControlClient, Emulator
from tests.contract.pubsub.client import Client, bodies, eventually, pb, status_of
from tests.unit.emulator.conftest import PROJECT, Bench


def test_a_fault_strikes_as_often_as_it_is_told_and_then_no_more(bench: Bench) -> None:
    fault = bench.emulator.faults.fail("Publish", "RESOURCE_EXHAUSTED", "too much", times=2)
    for _ in range(2):
        assert status_of(lambda: bench.client.publish(bench.topic, b"x")) == ("RESOURCE_EXHAUSTED", "too much")
    bench.client.publish(bench.topic, b"good")
    assert bench.emulator.faults.hits(fault) == 2
    assert bodies(bench.client.pull(bench.subscription)) == [b"good"]


def test_a_fault_lets_calls_pass_before_it_strikes(bench: Bench) -> None:
    bench.emulator.faults.fail("Publish", skip=2)
    outcomes = []
    for _ in range(4):
        try:
            bench.client.publish(bench.topic, b"x")
            outcomes.append("ok")
        except grpc.RpcError:
            outcomes.append("failed")
    assert outcomes == ["ok", "ok", "failed", "ok"]


def test_a_fault_strikes_only_its_method_and_its_resource(bench: Bench) -> None:
    other = bench.emulator.create_topic(PROJECT, "other")
    bench.emulator.faults.fail("Publish", resource=other, times=None)
    bench.client.publish(bench.topic, b"x")
    bench.client.GetTopic(topic=other)
    assert status_of(lambda: bench.client.publish(other, b"x"))[0] == "UNAVAILABLE"


def test_a_fault_after_the_call_loses_the_answer_and_not_the_effect(bench: Bench) -> None:
    bench.emulator.faults.fail("Publish", "DEADLINE_EXCEEDED", after=True)
    assert status_of(lambda: bench.client.publish(bench.topic, b"x"))[0] == "DEADLINE_EXCEEDED"
    assert bodies(bench.client.pull(bench.subscription)) == [b"x"]


def test_poison_refuses_the_whole_request_that_carries_it(bench: Bench) -> None:
    bench.emulator.faults.poison("poison", "yes")
    good = pb("PubsubMessage")(data=b"good", attributes={"poison": "no"})
    bad = pb("PubsubMessage")(data=b"bad", attributes={"poison": "yes"})
    code, _ = status_of(lambda: bench.client.Publish(topic=bench.topic, messages=[good, bad]))
    assert code == "INVALID_ARGUMENT"
    bench.client.Publish(topic=bench.topic, messages=[good])
    assert bodies(bench.client.pull(bench.subscription)) == [b"good"]


def test_refuse_answers_nothing_until_cleared(bench: Bench) -> None:
    bench.emulator.faults.refuse()
    assert status_of(lambda: bench.client.GetTopic(topic=bench.topic))[0] == "UNAVAILABLE"
    assert bench.client.stream(bench.subscription).wait_for_end()[0] == "UNAVAILABLE"
    bench.emulator.faults.clear()
    assert bench.client.GetTopic(topic=bench.topic).name == bench.topic


def test_a_delayed_call_takes_effect_late(bench: Bench) -> None:
    bench.emulator.faults.delay("Publish", 0.2)
    started = time.monotonic()
    bench.client.publish(bench.topic, b"x")
    assert time.monotonic() - started >= 0.2
    assert bodies(bench.client.pull(bench.subscription)) == [b"x"]


def test_a_dropped_call_is_answered_only_when_the_fault_is_lifted(bench: Bench) -> None:
    fault = bench.emulator.faults.drop("Acknowledge")
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(bench.client.Acknowledge, subscription=bench.subscription, ack_ids=["x"])
        eventually(lambda: bench.emulator.faults.hits(fault) == 1, "the call is held")
        assert not call.done()
        bench.emulator.faults.clear(fault)
        assert isinstance(call.exception(5), grpc.RpcError)


def test_a_dropped_call_frees_its_thread_when_the_client_gives_up(bench: Bench) -> None:
    bench.emulator.faults.drop("Publish")
    call = bench.client.channel.unary_unary("/google.pubsub.v1.Publisher/Publish")
    with pytest.raises(grpc.RpcError) as error:
        call(pb("PublishRequest")(topic=bench.topic).SerializeToString(), timeout=0.2)
    assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert len(bench.client.publish(bench.topic, b"x")) == 1


def test_streams_can_be_ended_all_or_by_subscription(bench: Bench) -> None:
    other = bench.emulator.create_subscription(PROJECT, "other", "orders")
    streams = [bench.client.stream(bench.subscription), bench.client.stream(other)]
    eventually(lambda: bench.emulator.counters()["streams_open"] == 2, "both streams open")
    assert bench.emulator.faults.end_streams(subscription=other) == 1
    assert streams[1].wait_for_end() == (
        "UNAVAILABLE",
        "The service was unable to fulfill your request. Please try again. [code=8a75]",
    )
    assert bench.emulator.faults.end_streams("PERMISSION_DENIED", "no more") == 1
    assert streams[0].wait_for_end() == ("PERMISSION_DENIED", "no more")


def test_stalled_streams_are_silent_until_resumed_and_pull_goes_on(bench: Bench) -> None:
    other = bench.emulator.create_subscription(PROJECT, "other", "orders")
    bench.emulator.faults.stall_streams(bench.subscription)
    stalled, free = bench.client.stream(bench.subscription), bench.client.stream(other)
    bench.client.publish(bench.topic, b"x")
    free.wait_for(1)
    assert stalled.messages == []
    assert bodies(bench.client.pull(bench.subscription)) == [b"x"]
    bench.client.publish(bench.topic, b"y")
    bench.emulator.faults.resume_streams()
    assert bodies(stalled.wait_for(1)) == [b"y"]


def test_a_fault_of_an_unknown_status_is_refused(bench: Bench) -> None:
    with pytest.raises(ValueError, match="no gRPC status"):
        bench.emulator.faults.fail("Publish", "BROKEN")


@pytest.fixture
def remote() -> Iterator[ControlClient]:
    command = [sys.executable, "-m", "engine.emulator", "--host-port", "127.0.0.1:0", "--manual-clock"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("listening on 127.0.0.1:")
        with ControlClient(line.split()[-1]) as control:
            yield control
        process.terminate()
        assert process.wait(10) == 0


def test_a_server_in_another_process_is_controlled_over_the_wire(remote: ControlClient) -> None:
    topic = remote.create_topic(PROJECT, "orders")
    name = remote.create_subscription(PROJECT, "worker", "orders", ack_deadline_seconds=60)
    assert remote.create_topic(PROJECT, "orders") == topic
    assert remote.create_subscription(PROJECT, "worker", "orders") == name
    client = Client(remote.address)
    fault = remote.faults.fail("Publish", "ABORTED", "not now", times=1)
    assert status_of(lambda: client.publish(topic, b"x")) == ("ABORTED", "not now")
    assert remote.faults.hits(fault) == 1
    remote.faults.clear()
    client.publish(topic, b"x")
    assert len(client.pull(name)) == 1
    before = remote.clock.now_ns()
    remote.clock.advance(59)
    assert client.pull(name) == []
    remote.clock.advance(1.5)
    assert remote.clock.now_ns() - before == 60_500_000_000
    assert bodies(client.pull(name)) == [b"x"]
    stream = client.stream(name)
    eventually(lambda: remote.counters()["streams_open"] == 1, "the stream is open")
    assert remote.faults.end_streams() == 1
    assert stream.wait_for_end()[0] == "UNAVAILABLE"
    for held in (remote.faults.poison("bad"), remote.faults.delay("Pull", 0.01), remote.faults.drop("Seek")):
        remote.faults.clear(held)
    remote.faults.stall_streams()
    remote.faults.resume_streams()
    counters = remote.counters()
    assert (counters["published"], counters["delivered"], counters["expired"]) == (1, 2, 1)
    client.close()


def test_control_goes_on_while_every_call_is_refused(remote: ControlClient) -> None:
    fault = remote.faults.refuse()
    assert remote.faults.hits(fault) == 0
    remote.faults.clear(fault)


@pytest.mark.parametrize("call", [{"call": "nothing"}, {"call": "fail", "args": {"method": "*", "code": "X"}}, {}, []])
def test_a_control_call_that_makes_no_sense_is_refused_with_a_reason(emulator: Emulator, call: object) -> None:
    import json

    with grpc.insecure_channel(emulator.address) as channel, pytest.raises(grpc.RpcError) as error:
        channel.unary_unary("/emulator.Control/Call")(json.dumps(call).encode(), timeout=5)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.value.details().startswith("Control call refused")


def test_the_systems_clock_cannot_be_moved() -> None:
    with Emulator() as emulator, ControlClient(emulator.address) as control:
        with pytest.raises(grpc.RpcError) as error:
            control.clock.advance(1)
        assert "--manual-clock" in error.value.details()
