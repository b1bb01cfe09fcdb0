"""Exactly-once subscriptions: every ack id that fails is named, with a reason that clients understand."""

from __future__ import annotations

import queue
from collections.abc import Callable

import grpc
import pytest
from google.cloud import pubsub_v1
from google.cloud.pubsub_v1.subscriber.exceptions import AcknowledgeError, AcknowledgeStatus
from google.rpc import error_details_pb2, status_pb2

from engine.emulator import limits
from tests.contract.pubsub.client import Pb, bodies, eventually
from tests.unit.emulator.conftest import PROJECT, Bench

INVALID = "PERMANENT_FAILURE_INVALID_ACK_ID"


@pytest.fixture
def exact(bench: Bench) -> str:
    return bench.emulator.create_subscription(PROJECT, "exact", "orders", enable_exactly_once_delivery=True)


def failures_of(call: Callable[[], object]) -> dict[str, str]:
    """The failures named in the status details of a refused call."""
    with pytest.raises(grpc.RpcError) as error:
        call()
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    packed = dict(error.value.trailing_metadata())["grpc-status-details-bin"]
    info = error_details_pb2.ErrorInfo()
    assert status_pb2.Status.FromString(packed).details[0].Unpack(info)
    assert info.reason == "EXACTLY_ONCE_ACKID_FAILURE"
    return dict(info.metadata)


def test_an_expired_id_fails_and_the_others_of_the_request_are_applied(bench: Bench, exact: str) -> None:
    bench.client.publish(bench.topic, b"1")
    old = bench.client.pull(exact)
    bench.clock.advance(11)
    bench.client.publish(bench.topic, b"2")
    fresh = bench.client.pull(exact)
    failures = failures_of(lambda: bench.client.ack(exact, [*old, *fresh]))
    assert failures == {old[0].ack_id: INVALID}
    bench.clock.advance(11)
    assert bench.client.pull(exact) == []


def test_extending_an_expired_id_fails(bench: Bench, exact: str) -> None:
    bench.client.publish(bench.topic, b"1")
    old = bench.client.pull(exact)
    bench.clock.advance(11)
    ids = [old[0].ack_id, "made up"]
    failures = failures_of(
        lambda: bench.client.ModifyAckDeadline(subscription=exact, ack_ids=ids, ack_deadline_seconds=20)
    )
    assert failures == dict.fromkeys(ids, INVALID)


def test_repeating_an_ack_succeeds(bench: Bench, exact: str) -> None:
    bench.client.publish(bench.topic, b"1")
    held = bench.client.pull(exact)
    bench.client.ack(exact, held)
    bench.client.ack(exact, held)


def test_acks_of_a_key_come_in_order(bench: Bench) -> None:
    name = bench.emulator.create_subscription(
        PROJECT, "both", "orders", enable_exactly_once_delivery=True, enable_message_ordering=True
    )
    bench.client.publish(bench.topic, b"1", b"2", ordering_key="k")
    one, two = bench.client.pull(name)
    failures = failures_of(lambda: bench.client.ack(name, [two]))
    assert failures == {two.ack_id: "TRANSIENT_FAILURE_UNORDERED_ACK_ID"}
    bench.client.ack(name, [one, two])


def test_a_stream_confirms_what_was_acked_and_extended_on_it(bench: Bench, exact: str) -> None:
    stream = bench.client.stream(exact)
    bench.client.publish(bench.topic, b"1", b"2")
    one, two = stream.wait_for(2)
    made_up = "0" * 23
    stream.send(ack_ids=[one.ack_id, made_up], modify_deadline_ack_ids=[two.ack_id], modify_deadline_seconds=[30])

    def confirmed() -> list[Pb]:
        return [response for response in stream.responses if response.HasField("modify_ack_deadline_confirmation")]

    extended = eventually(confirmed, "the extension is confirmed")[0].modify_ack_deadline_confirmation
    acked = next(item for item in stream.responses if item.HasField("acknowledge_confirmation"))
    assert list(acked.acknowledge_confirmation.ack_ids) == [one.ack_id]
    assert list(acked.acknowledge_confirmation.invalid_ack_ids) == [made_up]
    assert list(extended.ack_ids) == [two.ack_id]


def test_without_exactly_once_unknown_ids_are_passed_over(bench: Bench) -> None:
    bench.client.Acknowledge(subscription=bench.subscription, ack_ids=["made up"])
    bench.client.publish(bench.topic, b"1")
    assert bodies(bench.client.pull(bench.subscription)) == [b"1"]


def test_the_high_level_client_learns_what_became_of_its_acks(
    bench: Bench, exact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", bench.emulator.address)
    outcomes: queue.SimpleQueue[object] = queue.SimpleQueue()

    def callback(message: pubsub_v1.subscriber.message.Message) -> None:
        if message.data == b"late":
            bench.clock.advance(700)
        outcomes.put(message.ack_with_response())

    with pubsub_v1.SubscriberClient() as subscriber:
        streaming = subscriber.subscribe(exact, callback)
        bench.client.publish(bench.topic, b"good")
        assert outcomes.get(timeout=10).result(10) == AcknowledgeStatus.SUCCESS
        bench.client.publish(bench.topic, b"late")
        with pytest.raises(AcknowledgeError) as error:
            outcomes.get(timeout=10).result(10)
        assert error.value.error_code is AcknowledgeStatus.INVALID_ACK_ID
        streaming.cancel()
        streaming.result(10)


def test_only_so_many_acked_ids_are_remembered(bench: Bench, exact: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REMEMBERED_ACKS_MAX", 2)
    bench.client.publish(bench.topic, b"1", b"2", b"3")
    held = bench.client.pull(exact)
    bench.client.ack(exact, held)
    failures = failures_of(lambda: bench.client.ack(exact, held))
    assert failures == {held[0].ack_id: INVALID}
