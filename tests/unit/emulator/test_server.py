"""Starting, stopping, addresses, the process, and keepalive."""

from __future__ import annotations

import signal
import subprocess
import sys

import grpc
import pytest

from engine.emulator import Emulator, ManualClock, SystemClock
from tests.contract.pubsub.client import Client
from tests.unit.emulator.conftest import PROJECT


def test_two_servers_never_share_a_port() -> None:
    with Emulator() as first, pytest.raises(RuntimeError):
        Emulator(first.address).start()


def test_a_server_starts_once_and_stops_as_often_as_one_likes() -> None:
    emulator = Emulator()
    emulator.start()
    with pytest.raises(RuntimeError, match="started already"):
        emulator.start()
    emulator.stop()
    emulator.stop()


def test_the_address_is_free_again_after_a_stop() -> None:
    with Emulator() as first:
        address = first.address
    with Emulator(address) as second:
        assert second.address == address


def test_creating_twice_is_fine_and_creating_on_nothing_is_not() -> None:
    with Emulator() as emulator:
        assert emulator.create_topic(PROJECT, "orders") == emulator.create_topic(PROJECT, "orders")
        name = emulator.create_subscription(PROJECT, "worker", "orders")
        assert name == emulator.create_subscription(PROJECT, "worker", f"projects/{PROJECT}/topics/orders")
        with pytest.raises(Exception, match="Resource not found"):
            emulator.create_subscription(PROJECT, "other", "unknown")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_process_prints_where_it_listens_and_ends_cleanly(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "engine.emulator", "--host-port", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().removeprefix("listening on ").strip()
        client = Client(address)
        client.CreateTopic(name=f"projects/{PROJECT}/topics/orders")
        client.close()
        process.send_signal(number)
        _, errors = process.communicate(timeout=10)
    assert process.returncode == 0
    assert "Traceback" not in errors


def test_the_process_says_why_it_cannot_listen() -> None:
    with Emulator() as emulator:
        command = [sys.executable, "-m", "engine.emulator", "--host-port", emulator.address]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert ended.returncode == 1
    assert "cannot listen" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_clock_moves_forward_only() -> None:
    clock = ManualClock(1_000)
    clock.advance(1)
    assert clock.now_ns() == 1_000_001_000
    with pytest.raises(ValueError, match="moves forward"):
        clock.advance(-1)
    assert SystemClock().wait_s(0) == 0.0


def test_counters_tell_what_happened(emulator: Emulator, client: Client) -> None:
    topic = emulator.create_topic(PROJECT, "orders")
    name = emulator.create_subscription(PROJECT, "worker", "orders")
    client.publish(topic, b"1", b"2", b"3")
    held = client.pull(name)
    client.ack(name, held[:1])
    client.nack(name, held[1:2])
    counters = emulator.counters()
    assert {key: counters[key] for key in ("published", "delivered", "acked", "nacked", "backlog", "outstanding")} == {
        "published": 3,
        "delivered": 3,
        "acked": 1,
        "nacked": 1,
        "backlog": 1,
        "outstanding": 1,
    }
    assert (counters["calls.Publish"], counters["calls.Pull"], counters["calls.Acknowledge"]) == (1, 1, 1)


def test_an_unknown_method_is_unimplemented(emulator: Emulator) -> None:
    with grpc.insecure_channel(emulator.address) as channel, pytest.raises(grpc.RpcError) as error:
        channel.unary_unary("/google.pubsub.v1.Publisher/Invented")(b"", timeout=5)
    assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED
