"""A source against the local Pub/Sub: receiving, acknowledging, and going on whatever happens."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import grpc
from google.pubsub_v1.types import StreamingPullRequest

from engine.clock import ManualClock
from engine.emulator import Emulator
from engine.emulator import ManualClock as EmulatorClock
from tests.integration.pubsub.conftest import PROJECT, QUICK, Bench, eventually, message, send


def test_what_is_published_is_received_and_acknowledged(emulator, bench):
    source, listener = bench.source()
    send(bench.sink(), *(message(f"n{n}", colour="red") for n in range(1200 // 2))).result(10)
    eventually(lambda: source.status().acked == 600)
    assert listener.payloads == [message(f"n{n}", colour="red") for n in range(600)]
    assert {value for response in listener.responses for value in response.available_at} == {"5"}
    eventually(lambda: emulator.counters()["acked"] == 600)
    status = source.status()
    assert (status.state, status.received, status.streams_opened) == ("streaming", 600, 1)
    assert status.last_response_ms > 0


def test_a_message_of_nine_megabytes_passes(bench):
    source, listener = bench.source()
    big = message("x" * 9_400_000)
    send(bench.sink(), big).result(10)
    eventually(lambda: source.status().acked == 1)
    assert listener.payloads == [big]


def test_a_recycled_stream_is_opened_again_at_once_and_without_a_failing_state(emulator, bench):
    source, listener = bench.source()
    eventually(lambda: source.status().state == "streaming")
    assert emulator.faults.end_streams(text="The service was unable to fulfill your request.") == 1
    eventually(lambda: source.status().streams_opened == 2)
    send(bench.sink(), message("after")).result(10)
    eventually(lambda: listener.payloads == [message("after")])
    assert "failing" not in listener.names()


def test_a_stream_that_is_refused_again_and_again_backs_off(emulator, bench):
    fault = emulator.faults.fail("StreamingPull", "UNAVAILABLE", times=None)
    source, _listener = bench.source()
    eventually(lambda: source.status().state == "failing")
    before, began = emulator.faults.hits(fault), time.monotonic()
    eventually(lambda: time.monotonic() - began > 1.0)
    assert 1 <= emulator.faults.hits(fault) - before <= 12  # 0.15 to 0.3 s between attempts
    emulator.faults.clear()
    eventually(lambda: source.status().state == "streaming")
    assert source.status().reason is None


def test_a_missing_subscription_fails_with_its_name_and_recovers_once_it_is_there(emulator, bench):
    source, listener = bench.source("missing")
    eventually(lambda: source.status().state == "failing")
    status = source.status()
    assert status.failure is not None
    assert (status.failure.kind, status.failure.code) == ("channel", "NOT_FOUND")
    assert "projects/demo/subscriptions/missing does not exist" in (status.reason or "")
    emulator.create_subscription(PROJECT, "missing", "orders")
    eventually(lambda: source.status().state == "streaming")
    send(bench.sink(), message("late")).result(10)
    eventually(lambda: listener.payloads == [message("late")])


def test_a_deleted_subscription_is_noticed_by_the_open_stream(emulator, bench):
    source, _listener = bench.source()
    eventually(lambda: source.status().state == "streaming")
    emulator.faults.end_streams("NOT_FOUND", "Resource not found (resource=worker).")
    emulator.faults.fail("StreamingPull", "NOT_FOUND", "Resource not found (resource=worker).", times=None)
    eventually(lambda: source.status().state == "failing")
    assert "create it" in (source.status().reason or "")


def test_a_refusal_that_takes_its_time_does_not_make_the_state_flutter(emulator, bench):
    emulator.create_subscription(PROJECT, "slow", "orders")
    emulator.faults.fail("StreamingPull", "NOT_FOUND", "late", delay_s=0.15, times=None)
    source, listener = bench.source("slow")
    eventually(lambda: source.status().state == "failing")
    opened = source.status().streams_opened
    eventually(lambda: source.status().streams_opened >= opened + 3)
    assert listener.names().count("streaming") <= 1
    emulator.faults.clear()
    eventually(lambda: source.status().state == "streaming")


def test_a_denied_permission_says_which_role_is_missing(emulator, bench):
    emulator.faults.fail("StreamingPull", "PERMISSION_DENIED", "User not authorized.", times=3)
    source, _listener = bench.source()
    eventually(lambda: source.status().state == "failing")
    reason = source.status().reason or ""
    assert "roles/pubsub.subscriber" in reason
    assert "User not authorized." in reason
    eventually(lambda: source.status().state == "streaming")


def test_thousands_of_long_ack_ids_go_in_requests_that_the_service_takes(emulator, bench):
    source, _listener = bench.source()
    eventually(lambda: source.status().state == "streaming")
    long_ids = [f"{n:06d}" + "x" * 1178 for n in range(1000)]
    assert source.ack(long_ids).result(10) == 1000
    assert emulator.counters()["calls.Acknowledge"] >= 3  # 480 KiB a request
    before = emulator.counters()["calls.Acknowledge"]
    assert source.ack([f"{n:06d}" + "x" * 178 for n in range(6000)]).result(10) == 6000
    assert emulator.counters()["calls.Acknowledge"] - before == 6
    assert source.status().ack_requests_failed == 0


def test_acks_that_come_while_requests_are_in_flight_travel_together(emulator, bench):
    source, _listener = bench.source()
    eventually(lambda: source.status().state == "streaming")
    slow = emulator.faults.delay("Acknowledge", 30, times=2)
    futures = [source.ack([f"id-{n}"]) for n in range(300)]
    eventually(lambda: emulator.faults.hits(slow) == 2)
    emulator.faults.clear()
    assert [future.result(10) for future in futures] == [1] * 300
    assert emulator.counters()["calls.Acknowledge"] <= 4


def test_a_failed_ack_is_repeated(emulator, bench):
    source, _listener = bench.source()
    emulator.faults.fail("Acknowledge", "UNAVAILABLE", times=2)
    send(bench.sink(), message("once")).result(10)
    eventually(lambda: source.status().acked == 1)
    assert source.status().ack_requests_failed == 2
    assert emulator.counters()["acked"] == 1


def test_an_ack_that_never_succeeds_is_given_up_and_the_source_goes_on(emulator, bench):
    source, _listener = bench.source()
    emulator.faults.fail("Acknowledge", "INTERNAL", times=None)
    eventually(lambda: source.status().state == "streaming")
    assert source.ack(["some", "ids"]).result(10) == 0
    assert source.status().acks_given_up == 2
    emulator.faults.clear()
    send(bench.sink(), message("next")).result(10)
    eventually(lambda: source.status().acked == 1)


def test_an_extended_message_stays_leased_and_one_given_back_returns(emulator):
    clock = EmulatorClock()
    with Emulator(clock=clock) as manual:
        manual.create_topic(PROJECT, "orders")
        manual.create_subscription(PROJECT, "worker", "orders", ack_deadline_seconds=10)
        bench = Bench(manual.address)
        try:
            source, listener = bench.source()
            listener.acks = False
            send(bench.sink(), message("kept"), message("returned")).result(10)
            eventually(lambda: len(listener.ack_ids) == 2)
            kept, returned = listener.ack_ids
            assert source.extend([kept], 60).result(10) == 1
            assert source.nack([returned]).result(10) == 1
            eventually(lambda: len(listener.payloads) == 3)
            assert listener.payloads[2] == message("returned")
            source.ack([listener.ack_ids[2]]).result(10)
            clock.advance(30)
            send(bench.sink(), message("later")).result(10)
            eventually(lambda: len(listener.payloads) == 4)
            assert listener.payloads[3] == message("later")
            clock.advance(40)
            eventually(lambda: len(listener.payloads) >= 5)
            assert message("kept") in listener.payloads[4:]
        finally:
            bench.close()


def test_a_slow_listener_holds_the_stream_back(emulator, bench):
    source, listener = bench.source()
    listener.gate.clear()
    sink = bench.sink()
    send(sink, message("0")).result(10)
    eventually(lambda: len(listener.responses) == 1)
    for n in range(1, 5):
        send(sink, message(str(n))).result(10)
    eventually(lambda: emulator.counters()["delivered"] > 1)
    assert source.status().received == len(listener.payloads) == 1
    listener.gate.set()
    eventually(lambda: source.status().acked == 5)


def test_a_paused_source_receives_nothing_and_still_acknowledges(emulator, bench):
    source, listener = bench.source()
    listener.acks = False
    sink = bench.sink()
    send(sink, message("before")).result(10)
    eventually(lambda: len(listener.ack_ids) == 1)
    source.pause_stream()
    eventually(lambda: source.status().state == "paused")
    eventually(lambda: emulator.counters()["streams_open"] == 0)
    assert source.ack(listener.ack_ids).result(10) == 1
    send(sink, message("meanwhile")).result(10)
    source.resume_stream()
    eventually(lambda: message("meanwhile") in listener.payloads)
    assert listener.payloads == [message("before"), message("meanwhile")]
    assert [name for name in listener.names() if name != "connecting"] == ["streaming", "paused", "streaming"]


def test_after_stop_nothing_is_received_and_acks_still_arrive(emulator, bench):
    source, listener = bench.source()
    listener.acks = False
    sink = bench.sink()
    send(sink, message("before")).result(10)
    eventually(lambda: len(listener.ack_ids) == 1)
    source.stop(5)
    assert source.status().state == "stopped"
    send(sink, message("after")).result(10)
    assert source.ack(listener.ack_ids).result(10) == 1
    assert listener.payloads == [message("before")]
    source.close(1)
    assert source.ack(["late"]).result(10) == 0
    assert not any(thread.name == "source-worker" and thread.is_alive() for thread in threading.enumerate())


def test_a_dead_server_is_tried_again_without_a_hot_loop_and_found_when_it_comes():
    with Emulator() as first:
        address = first.address
    bench = Bench(address)
    try:
        source, listener = bench.source()
        eventually(lambda: source.status().state == "failing")
        assert "cannot be reached" in (source.status().reason or "")
        opened, began = source.status().streams_opened, time.monotonic()
        eventually(lambda: time.monotonic() - began > 1.0)
        assert source.status().streams_opened - opened <= 12
        with Emulator(address) as second:
            second.create_topic(PROJECT, "orders")
            second.create_subscription(PROJECT, "worker", "orders")
            eventually(lambda: source.status().state == "streaming")
            send(bench.sink(), message("hello")).result(10)
            eventually(lambda: listener.payloads == [message("hello")])
            source.close(1)
    finally:
        bench.close()


def test_a_listener_that_raises_costs_a_redelivery_and_no_more():
    clock = EmulatorClock()
    with Emulator(clock=clock) as manual:
        manual.create_topic(PROJECT, "orders")
        manual.create_subscription(PROJECT, "worker", "orders", ack_deadline_seconds=10)
        bench = Bench(manual.address)
        try:
            source, listener = bench.source()
            eventually(lambda: source.status().state == "streaming")
            listener.error = ValueError("a bug of the listener")
            send(bench.sink(), message("again")).result(10)
            eventually(lambda: source.status().streams_opened == 2)
            clock.advance(11)
            eventually(lambda: source.status().acked == 1)
            assert listener.payloads == [message("again")]
        finally:
            bench.close()


def test_a_stream_that_falls_silent_is_replaced_on_a_new_connection(emulator):
    clock = ManualClock()
    bench = Bench(emulator.address, clock=clock)
    try:
        source, listener = bench.source()
        eventually(lambda: clock.waiters() == 1)
        clock.advance(1)
        eventually(lambda: source.status().state == "streaming")
        first = source._connection
        emulator.faults.stall_streams()
        send(bench.sink(), message("unheard")).result(10)
        eventually(lambda: clock.waiters() == 1)
        clock.advance(85)
        eventually(lambda: clock.waiters() == 1)
        assert source.status().streams_opened == 1
        clock.advance(15)
        eventually(lambda: source.status().streams_opened == 2)
        assert source._connection is not first
        eventually(lambda: emulator.counters()["calls.StreamingPull"] == 2)
        assert "failing" not in listener.names()
        emulator.faults.resume_streams()
        eventually(lambda: listener.payloads == [message("unheard")])
    finally:
        bench.close()


def test_the_stream_opens_with_its_window_and_then_sends_heartbeats():
    requests: list[bytes] = []

    def streaming_pull(incoming, _context):
        for request in incoming:
            requests.append(request)
        yield from ()

    handler = grpc.method_handlers_generic_handler(
        "google.pubsub.v1.Subscriber", {"StreamingPull": grpc.stream_stream_rpc_method_handler(streaming_pull)}
    )
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    bench = Bench(f"127.0.0.1:{port}", limits=replace(QUICK, heartbeat_s=0.05))
    try:
        source, _listener = bench.source()
        eventually(lambda: len(requests) >= 4)
        first = StreamingPullRequest.deserialize(requests[0])
        assert first.subscription == "projects/demo/subscriptions/worker"
        assert first.stream_ack_deadline_seconds == QUICK.ack_deadline_s
        assert first.max_outstanding_messages == QUICK.stream_window_messages
        assert first.max_outstanding_bytes == QUICK.stream_window_bytes
        assert requests[1:4] == [b""] * 3
        assert source.status().state == "streaming"
    finally:
        bench.close()
        server.stop(0).wait()
