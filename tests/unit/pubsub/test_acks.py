"""The queue of acks: what it sends, when, and what it tells its callers."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

import grpc
import pytest
from google.protobuf import any_pb2
from google.pubsub_v1.types import AcknowledgeRequest, ModifyAckDeadlineRequest
from google.rpc import code_pb2, error_details_pb2, status_pb2

from engine.clock import ManualClock
from engine.config import PubSubLimits
from engine.pubsub.acks import ACK, AckQueue
from engine.pubsub.errors import NotConnected

LIMITS = PubSubLimits()


class Refusal(grpc.RpcError, grpc.Call):
    """A status as gRPC gives it, with details."""

    def __init__(self, code, details="", trailing=()):
        super().__init__(details)
        self._code, self._details, self._trailing = code, details, trailing

    def code(self):
        return self._code

    def details(self):
        return self._details

    def trailing_metadata(self):
        return self._trailing

    def initial_metadata(self):
        return ()

    def is_active(self):
        return False

    def time_remaining(self):
        return None

    def cancel(self):
        return False

    def add_callback(self, callback):
        return False


class Server:
    """Notes requests and answers them when told to."""

    def __init__(self, limits=LIMITS):
        self.calls = []
        self.later = []
        self.queue = AckQueue("projects/p/subscriptions/s", limits, self.send, self.after)

    def send(self, method, request):
        call = Future()
        self.calls.append((method, request, call))
        return call

    def after(self, delay_s, action):
        self.later.append((delay_s, action))

    def ids(self, number):
        method, request, _call = self.calls[number]
        kind = AcknowledgeRequest if method.endswith("Acknowledge") else ModifyAckDeadlineRequest
        return list(kind.deserialize(request).ack_ids)

    def answer(self, number, error=None):
        call = self.calls[number][2]
        if error is None:
            call.set_result(b"")
        else:
            call.set_exception(error)


def exactly_once(verdicts):
    """The refusal of an exactly-once subscription: an ErrorInfo that names ids."""
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.ErrorInfo(reason="INVALID_ACK_ID", metadata=verdicts))
    status = status_pb2.Status(code=code_pb2.INVALID_ARGUMENT, message="Some ids were invalid.", details=[detail])
    trailing = (("grpc-status-details-bin", status.SerializeToString()),)
    return Refusal(grpc.StatusCode.INVALID_ARGUMENT, "Some ids were invalid.", trailing)


def test_requests_go_out_at_once_until_two_are_in_flight_and_then_ids_gather():
    server = Server()
    futures = [server.queue.add([f"id{n}"], ACK) for n in range(6)]
    assert [server.ids(n) for n in range(len(server.calls))] == [["id0"], ["id1"]]
    server.answer(0)
    assert server.ids(2) == ["id2", "id3", "id4", "id5"]
    server.answer(1)
    server.answer(2)
    assert [future.result(0) for future in futures] == [1] * 6
    assert server.queue.counts.acked == 6


def test_one_call_of_many_ids_is_cut_by_count_and_resolves_when_all_have_arrived():
    server = Server()
    future = server.queue.add([f"{n}" for n in range(2500)], ACK)
    assert [len(server.ids(n)) for n in range(2)] == [1000, 1000]
    server.answer(0)
    assert len(server.ids(2)) == 500
    server.answer(1)
    assert not future.done()
    server.answer(2)
    assert future.result(0) == 2500


@pytest.mark.parametrize("size", [150, 184, 600, 5000, 600_000])
def test_no_request_exceeds_the_bytes_that_the_service_takes(size):
    server = Server(replace(LIMITS, acks_in_flight_max=1))
    future = server.queue.add([f"{n:06d}".ljust(size, "x") for n in range(1200)][: 3 if size > 10_000 else None], ACK)
    number = 0
    while not future.done():
        _method, request, _call = server.calls[number]
        assert len(request) <= max(LIMITS.ack_bytes_max + 100, size + 100)
        server.answer(number)
        number += 1
    assert future.result(0) == (3 if size > 10_000 else 1200)


def test_leases_and_acks_never_share_a_request_and_keep_their_order():
    server = Server(replace(LIMITS, acks_in_flight_max=1))
    for ids, lease_s in ((["a"], ACK), (["b"], 30), (["c"], 30), (["d"], 0), (["e"], ACK)):
        server.queue.add(ids, lease_s)
    for number in range(4):
        server.answer(number)
    seen = [(method.rpartition("/")[2], server.ids(n)) for n, (method, _r, _c) in enumerate(server.calls)]
    assert seen == [
        ("Acknowledge", ["a"]),
        ("ModifyAckDeadline", ["b", "c"]),
        ("ModifyAckDeadline", ["d"]),
        ("Acknowledge", ["e"]),
    ]
    assert ModifyAckDeadlineRequest.deserialize(server.calls[1][1]).ack_deadline_seconds == 30


def test_a_failed_request_is_repeated_later_and_later_and_then_given_up():
    server = Server()
    future = server.queue.add(["a", "b"], ACK)
    for attempt in range(LIMITS.ack_attempts_max):
        server.answer(attempt, Refusal(grpc.StatusCode.UNAVAILABLE))
        if server.later:
            server.later.pop()[1]()
    assert len(server.calls) == LIMITS.ack_attempts_max
    assert future.result(0) == 0
    assert server.queue.counts.given_up == 2
    assert server.queue.counts.failed_requests == LIMITS.ack_attempts_max


def test_without_a_connection_ids_wait_for_one():
    server = Server()
    real, server.queue._send = server.queue._send, lambda method, request: (_ for _ in ()).throw(NotConnected())
    future = server.queue.add(["a"], ACK)
    server.queue._send = real
    server.later.pop()[1]()
    server.answer(0)
    assert future.result(0) == 1


def test_an_exactly_once_subscription_tells_which_ids_failed():
    server = Server()
    first, second = server.queue.add(["a"], ACK), server.queue.add(["b"], ACK)
    third = server.queue.add(["gone", "fine", "again"], ACK)
    server.answer(0)
    server.answer(1)
    verdicts = {"gone": "PERMANENT_FAILURE_INVALID_ACK_ID", "again": "TRANSIENT_FAILURE_SERVICE_UNAVAILABLE"}
    server.answer(2, exactly_once(verdicts))
    assert not third.done()
    server.later.pop()[1]()
    assert server.ids(3) == ["again"]
    server.answer(3)
    assert (first.result(0), second.result(0), third.result(0)) == (1, 1, 2)
    assert (server.queue.counts.acked, server.queue.counts.given_up) == (4, 1)


def test_a_refused_request_that_names_no_ids_is_not_repeated():
    server = Server()
    future = server.queue.add(["a"], ACK)
    server.answer(0, Refusal(grpc.StatusCode.INVALID_ARGUMENT, "malformed"))
    assert future.result(0) == 0
    assert not server.later


def test_the_queue_is_bounded():
    server = Server(replace(LIMITS, ack_queue_max=10, acks_in_flight_max=1))
    server.queue.add(["in flight"], ACK)
    kept = server.queue.add([str(n) for n in range(10)], ACK)
    refused = server.queue.add(["one too many"], ACK)
    assert refused.result(0) == 0
    server.answer(0)
    server.answer(1)
    assert kept.result(0) == 10


def test_nothing_to_acknowledge_is_done_at_once():
    server = Server()
    assert server.queue.add([], ACK).result(0) == 0
    assert server.queue.add([""], ACK).result(0) == 0
    assert not server.calls


def test_closing_resolves_what_waits_and_drain_waits_for_what_is_in_flight():
    server = Server(replace(LIMITS, acks_in_flight_max=1))
    flying = server.queue.add(["a"], ACK)
    waiting = server.queue.add(["b"], ACK)
    assert not server.queue.drain(0.0, ManualClock())
    server.queue.close()
    assert waiting.result(0) == 0
    server.answer(0)
    assert flying.result(0) == 1
    assert server.queue.drain(0.0, ManualClock())
    assert server.queue.add(["c"], ACK).result(0) == 0
