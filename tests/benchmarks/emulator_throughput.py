"""What the local Pub/Sub can carry: publishes/s, deliveries with acks/s, and the server's CPU per message.

    python -m tests.benchmarks.emulator_throughput [--messages 200000]

The server and the client are processes of their own; the client uses raw stubs, batches of 500, 250-byte bodies and two
attributes. Run it on a quiet machine; `all at once` publishes and receives at the same time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path

import grpc
from google.pubsub_v1 import types

from engine.emulator import ControlClient

BATCH = 500
IN_FLIGHT = 4
WARM_UP = 20_000


def cpu_s(pid: int) -> float:
    """CPU seconds that process `pid` has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


class Client:
    """Raw stubs on one channel."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", -1)])
        channel = self._channel
        self.publish = channel.unary_unary("/google.pubsub.v1.Publisher/Publish")
        self.acknowledge = channel.unary_unary(
            "/google.pubsub.v1.Subscriber/Acknowledge",
            request_serializer=types.AcknowledgeRequest.pb().SerializeToString,
        )
        self.streaming_pull = channel.stream_stream(
            "/google.pubsub.v1.Subscriber/StreamingPull",
            request_serializer=types.StreamingPullRequest.pb().SerializeToString,
            response_deserializer=types.StreamingPullResponse.pb().FromString,
        )


def publish_all(client: Client, topic: str, count: int) -> float:
    """Publish `count` messages, a few requests in flight; returns the seconds taken."""
    message = types.PubsubMessage.pb()(
        data=bytes(250), attributes={"available_at": "1764531234.123", "kind": "order-created"}
    )
    request = types.PublishRequest.pb()(topic=topic, messages=[message] * BATCH).SerializeToString()
    started = time.perf_counter()
    calls: deque[grpc.Future] = deque()
    for _ in range(count // BATCH):
        if len(calls) >= IN_FLIGHT:
            calls.popleft().result()
        calls.append(client.publish.future(request))
    for call in calls:
        call.result()
    return time.perf_counter() - started


def receive_all(client: Client, subscription: str, count: int) -> float:
    """Receive and acknowledge `count` messages; returns the seconds taken."""
    done = threading.Event()
    first = types.StreamingPullRequest.pb()(
        subscription=subscription, stream_ack_deadline_seconds=60, max_outstanding_messages=10_000
    )

    def requests():
        yield first
        done.wait()

    started = time.perf_counter()
    stream = client.streaming_pull(requests())
    calls: deque[grpc.Future] = deque()
    received = 0
    for response in stream:
        ids = [message.ack_id for message in response.received_messages]
        received += len(ids)
        if len(calls) >= IN_FLIGHT:
            calls.popleft().result()
        request = types.AcknowledgeRequest.pb()(subscription=subscription, ack_ids=ids)
        calls.append(client.acknowledge.future(request))
        if received >= count:
            break
    for call in calls:
        call.result()
    taken = time.perf_counter() - started
    done.set()
    stream.cancel()
    return taken


def main() -> int:
    """Run and print one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=200_000)
    count = parser.parse_args().messages // BATCH * BATCH
    server = subprocess.Popen(
        [sys.executable, "-m", "engine.emulator", "--host-port", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    )
    try:
        address = server.stdout.readline().split()[-1]
        with ControlClient(address) as control:
            topic = control.create_topic("bench", "source")
            subscription = control.create_subscription("bench", "sink", "source")
        client = Client(address)
        publish_all(client, topic, WARM_UP)
        receive_all(client, subscription, WARM_UP)
        cpu = cpu_s(server.pid)
        publishing_s = publish_all(client, topic, count)
        published_cpu = cpu_s(server.pid)
        receiving_s = receive_all(client, subscription, count)
        received_cpu = cpu_s(server.pid)
        reader = threading.Thread(target=receive_all, args=(client, subscription, count))
        started = time.perf_counter()
        reader.start()
        publish_all(client, topic, count)
        reader.join()
        both_s = time.perf_counter() - started
        both_cpu = cpu_s(server.pid)
    finally:
        server.terminate()
        server.wait()
    print(f"{'':24}{'messages/s':>12}{'server CPU us/message':>24}")
    rows = [
        ("publish", publishing_s, published_cpu - cpu),
        ("deliver and ack", receiving_s, received_cpu - published_cpu),
        ("all at once", both_s, both_cpu - received_cpu),
    ]
    for name, seconds, used in rows:
        print(f"{name:24}{count / seconds:12,.0f}{used / count * 1e6:24.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
