"""What `manage.py demo` does: one node with the local Pub/Sub, a sample channel, a producer and a consumer.

The producer and the consumer are plain `google-cloud-pubsub`, as anyone's own programs would be. The node is a child
process with a session of its own, so that Ctrl-C reaches this process alone and the end has an order.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import queue
import random
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

PROJECT: Final = "demo"
CHANNEL: Final = "demo"
SOURCE: Final = "demo-in"
TARGET: Final = "demo-out"

NOT_INHERITED: Final = ("ADMIN_", "API_", "CLUSTER_", "PUBSUB_", "LISTENER_", "PUBLISHER_", "DATABASE_")

START_S: Final = 60.0
STOP_S: Final = 30.0
POLL_S: Final = 0.05
PERIOD_S: Final = 0.5
"""One message is due at every step of this length, so that at least one arrives each second."""
BLOCK: Final = 8
"""The messages of so many steps are published in random order during the block before: delays of 0.5 to 8 s."""
SHELF_MINUTES: Final = (2, 10, 60, 24 * 60)
"""A few messages for later, so that there is something to see among the pending ones."""
LOG_TAIL_CHARS: Final = 3000


class DemoError(Exception):
    """The demo cannot go on; the message says why and what the node wrote last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The usual ones, or free ones where those are taken."""

    api: int
    cluster: int
    pubsub: int

    @classmethod
    def choose(cls, environ: Mapping[str, str]) -> Ports:
        """Those of the environment or the defaults, if they are free."""
        return cls(
            api=_usable(int(environ.get("API_PORT") or 5569)),
            cluster=_usable(int(environ.get("CLUSTER_NODE_PORT") or 5559)),
            pubsub=_usable(8085),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A message as the demo's consumer got it."""

    text: str
    published_s: float
    due_s: float
    released_s: float


def run(environ: Mapping[str, str], write: Callable[[str], None], seconds: float | None) -> None:
    """Run the demo until `seconds` after ready, or until KeyboardInterrupt; DemoError when the node fails."""
    with contextlib.ExitStack() as stack:
        directory = environ.get("STORAGE_PATH") or stack.enter_context(
            tempfile.TemporaryDirectory(prefix="scheduler-demo-")
        )
        ports = Ports.choose(environ)
        storage = Path(directory).resolve()
        storage.mkdir(parents=True, exist_ok=True)
        password = secrets.token_urlsafe(9)
        # Logins, tokens, certificates and channels of a real node are not the demo's.
        own = {name: value for name, value in environ.items() if not name.startswith(NOT_INHERITED)}
        node = _Node(storage, ports, {**own, "ADMIN_USERNAME": "admin", "ADMIN_PASSWORD": password})
        stack.callback(node.stop)
        # Imported while the node starts: it takes about a second, which other commands need not wait for.
        from google.cloud import pubsub_v1

        node.wait_ready()
        write(_welcome(ports, password, storage, kept=bool(environ.get("STORAGE_PATH"))))
        deadline_s = None if seconds is None else time.monotonic() + seconds
        os.environ["PUBSUB_EMULATOR_HOST"] = f"127.0.0.1:{ports.pubsub}"
        traffic = stack.enter_context(_traffic(pubsub_v1))
        node.create_channel()
        late_ms = _watch(node, traffic, write, deadline_s)
        write(_summary(late_ms))


def _watch(node: _Node, traffic: _Traffic, write: Callable[[str], None], deadline_s: float | None) -> list[float]:
    """Publish and print arrivals until the time is up; the lateness of each."""
    late_ms: list[float] = []
    with contextlib.suppress(KeyboardInterrupt):
        traffic.shelve()
        while deadline_s is None or time.monotonic() < deadline_s:
            node.require_alive()
            traffic.publish_due()
            for arrival in traffic.arrivals(POLL_S):
                late_ms.append((arrival.released_s - arrival.due_s) * 1000)
                write(_line(arrival, late_ms[-1]))
    return late_ms


class _Node:
    """The child: `run_scheduler --dev`."""

    def __init__(self, storage: Path, ports: Ports, environ: Mapping[str, str]) -> None:
        self._log = storage / "demo-node.log"
        self._api_port = ports.api
        own = f"127.0.0.1:{ports.cluster}"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own manage.py
                [sys.executable, str(Path(__file__).resolve().parents[1] / "manage.py"), "run_scheduler", "--dev"],
                env={
                    "LOG_LEVEL": "warning",
                    **environ,
                    "STORAGE_PATH": str(storage),
                    "API_HOST": "127.0.0.1",
                    "API_PORT": str(ports.api),
                    "CLUSTER_NODE_HOST": "127.0.0.1",
                    "CLUSTER_NODE_PORT": str(ports.cluster),
                    "CLUSTER_INITIAL_NODES": own,
                    "PUBSUB_EMULATOR_HOST": f"127.0.0.1:{ports.pubsub}",
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        """Until `/readyz` answers 200."""
        deadline_s = time.monotonic() + START_S
        while True:
            self.require_alive()
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self._call("GET", "/readyz")[0] == 200:
                    return
            if time.monotonic() > deadline_s:
                raise DemoError(f"the node was not ready within {START_S:.0f} s.\n{self._tail()}")
            time.sleep(POLL_S)

    def require_alive(self) -> None:
        """DemoError when the node has ended."""
        code = self._process.poll()
        if code is not None:
            raise DemoError(f"the node ended with {code}.\n{self._tail()}")

    def create_channel(self) -> None:
        """The sample channel; one that an earlier demo left in STORAGE_PATH will do."""
        status, body = self._call(
            "POST",
            "/channels",
            {
                "id": CHANNEL,
                "name": "Demo",
                "source": {"driver": "pubsub", "config": {"project_id": PROJECT, "subscription_id": SOURCE}},
                "destination": {"driver": "pubsub", "config": {"project_id": PROJECT, "topic_id": TARGET}},
            },
        )
        if status not in (201, 409):
            raise DemoError(f"the sample channel was refused with {status}: {body}")

    def stop(self) -> None:
        """SIGTERM, and SIGKILL for what does not heed it."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _call(self, method: str, path: str, document: Any = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self._api_port, timeout=5)
        try:
            body = None if document is None else json.dumps(document)
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read().decode(errors="replace")
        finally:
            connection.close()

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-LOG_TAIL_CHARS:]


class _Traffic:
    """A producer that keeps every step supplied, and a consumer."""

    def __init__(self, publisher: Any, received: queue.SimpleQueue[Arrival]) -> None:
        self._publisher = publisher
        self._topic = publisher.topic_path(PROJECT, SOURCE)
        self._received = received
        self._began_s = time.time() + PERIOD_S
        self._order: list[int] = []
        self._published = 0

    def publish_due(self) -> None:
        """Publish what is to be published by now: the first block at once, then one message each step."""
        while self._published < BLOCK or self._began_s + (self._published - BLOCK) * PERIOD_S <= time.time():
            block, place = divmod(self._published, BLOCK)
            if place == 0:
                self._order = random.sample(range(BLOCK), BLOCK)
            step = block * BLOCK + self._order[place]
            self._publish(f"hello {step + 1}", self._began_s + (step + 1) * PERIOD_S)
            self._published += 1

    def shelve(self) -> None:
        """Publish the messages for later."""
        for minutes in SHELF_MINUTES:
            self._publish(f"for later: {minutes} minutes", time.time() + minutes * 60)

    def arrivals(self, timeout_s: float) -> Iterator[Arrival]:
        """What has come, waiting a moment for the first."""
        with contextlib.suppress(queue.Empty):
            yield self._received.get(timeout=timeout_s)
            while True:
                yield self._received.get_nowait()

    def _publish(self, text: str, due_s: float) -> None:
        self._publisher.publish(self._topic, text.encode(), available_at=f"{due_s:.3f}", sent=f"{time.time():.3f}")


@contextlib.contextmanager
def _traffic(pubsub_v1: Any) -> Iterator[_Traffic]:
    """Topics and subscriptions on the local Pub/Sub, and the two clients; they end with the block."""
    from google.api_core.exceptions import AlreadyExists

    publisher, subscriber = pubsub_v1.PublisherClient(), pubsub_v1.SubscriberClient()
    received: queue.SimpleQueue[Arrival] = queue.SimpleQueue()

    def receive(message: Any) -> None:
        message.ack()
        received.put(
            Arrival(
                text=message.data.decode(errors="replace"),
                published_s=float(message.attributes.get("sent") or "nan"),
                due_s=_seconds(message.attributes["scheduler-due"]),
                released_s=message.publish_time.timestamp(),
            )
        )

    with subscriber, contextlib.closing(publisher.transport):
        for name in (SOURCE, TARGET):
            topic, subscription = publisher.topic_path(PROJECT, name), subscriber.subscription_path(PROJECT, name)
            with contextlib.suppress(AlreadyExists):
                publisher.create_topic(name=topic)
            with contextlib.suppress(AlreadyExists):
                subscriber.create_subscription(name=subscription, topic=topic)
        pulling = subscriber.subscribe(subscriber.subscription_path(PROJECT, TARGET), receive)
        try:
            yield _Traffic(publisher, received)
        finally:
            pulling.cancel()
            pulling.result()
            publisher.stop()


def _usable(port: int) -> int:
    """`port` if nobody has it, else a free one."""
    for candidate in (port, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", candidate))
                found: int = probe.getsockname()[1]
                return found
    raise DemoError("this machine has no free port")


def _seconds(rfc3339: str) -> float:
    return datetime.fromisoformat(rfc3339).timestamp()


def _welcome(ports: Ports, password: str, storage: Path, *, kept: bool) -> str:
    base = f"http://127.0.0.1:{ports.api}"
    return f"""
  The Event Scheduler is ready.

    admin    {base}/admin/
    login    admin / {password}
    API      {base}/channels
    Pub/Sub  PUBSUB_EMULATOR_HOST=127.0.0.1:{ports.pubsub}   (local, project {PROJECT!r}: {SOURCE} → {TARGET})
    data     {storage}{"" if kept else "   (removed at the end; set STORAGE_PATH to keep it)"}

  A producer publishes messages that are due half a second to eight seconds later;
  each line below is one of them arriving. Ctrl-C ends the demo.
"""


def _line(arrival: Arrival, late_ms: float) -> str:
    clock = time.strftime("%H:%M:%S", time.localtime(arrival.due_s)) + f".{round(arrival.due_s % 1 * 1000) % 1000:03d}"
    held_s = arrival.due_s - arrival.published_s
    return f"  {arrival.text:<12} held {held_s:5.2f} s   due {clock}   late {late_ms:.1f} ms"


def _summary(late_ms: list[float]) -> str:
    if not late_ms:
        return "\n  No message arrived."
    middle = sorted(late_ms)[len(late_ms) // 2]
    return (
        f"\n  {len(late_ms)} messages arrived: half of them within {middle:.1f} ms, the latest {max(late_ms):.1f} ms."
    )
