"""The gRPC server: `Emulator` in a process of one's own, `serve` as a process."""

from __future__ import annotations

import gc
import logging
import signal
import threading
from concurrent import futures
from types import FrameType, TracebackType
from typing import Any, Self

import grpc
from google.protobuf import json_format

from engine.emulator import limits
from engine.emulator.broker import TOPIC, Broker
from engine.emulator.clock import Clock, ManualClock, SystemClock
from engine.emulator.control import CONTROL_METHOD, Control
from engine.emulator.dispatch import Dispatch, unary_handler
from engine.emulator.errors import Refused, unavailable
from engine.emulator.faults import Faults
from engine.emulator.methods import pubsub_handlers
from engine.emulator.streams import Streams
from engine.emulator.subscription_calls import SUBSCRIPTION, SubscriptionCalls
from engine.emulator.timekeeper import Timekeeper
from engine.emulator.topic_calls import TopicCalls

logger = logging.getLogger(__name__)

_OPTIONS = (
    # With the default of 1 two servers bind one port and each gets some of the calls.
    ("grpc.so_reuseport", 0),
    # A request of 10,000,000 bytes is legal; the default of 4 MiB would refuse it.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Clients ping idle connections; by default gRPC sends them away for it.
    ("grpc.http2.min_ping_interval_without_data_ms", limits.KEEPALIVE_PING_MS_MIN),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", limits.KEEPALIVE_PING_MS_MIN),
    ("grpc.keepalive_permit_without_calls", 1),
)


class Emulator:
    """A local Pub/Sub in this process. Start it, point clients at `address`, stop it; usable as a context manager.

    `host_port` takes port 0 for a free one. `clock` is the system's unless a ManualClock is given. With
    `project_autocreate` a topic that is named and does not exist is made. `stream_life_s` is the age at which a
    stream is ended with UNAVAILABLE, as the service does every half hour.
    """

    def __init__(
        self,
        host_port: str = "127.0.0.1:0",
        clock: Clock | None = None,
        project_autocreate: bool = False,
        *,
        stream_life_s: float = limits.STREAM_LIFE_S,
        pull_wait_s: float = limits.PULL_WAIT_S,
        backlog_bytes_max: int = limits.BACKLOG_BYTES_MAX,
    ) -> None:
        self.clock: Clock = SystemClock() if clock is None else clock
        self.faults = Faults()
        self._host_port = host_port
        self._broker = Broker(self.clock, project_autocreate=project_autocreate, backlog_bytes_max=backlog_bytes_max)
        self._streams = Streams(self._broker, stream_life_s)
        self._pull_wait_s = pull_wait_s
        self.faults.bind_streams(self._streams.end_all, self._streams.stall, self._streams.resume)
        self._timekeeper = Timekeeper(self._broker)
        self._server: grpc.Server | None = None
        self._pool: futures.ThreadPoolExecutor | None = None
        self._port = 0

    @property
    def address(self) -> str:
        """host:port that clients connect to; known once started."""
        return f"{self._host_port.rpartition(':')[0]}:{self._port}"

    def start(self) -> None:
        """Bind the port and serve; RuntimeError when the port is taken."""
        if self._server is not None:
            raise RuntimeError("this local Pub/Sub has been started already")
        self._pool = futures.ThreadPoolExecutor(limits.SERVER_THREADS_MAX, thread_name_prefix="emulator-call")
        self._server = grpc.server(self._pool, options=_OPTIONS)
        handlers = pubsub_handlers(self._broker, self._streams, self._pull_wait_s, self.faults)
        control = Control(self._control_calls())
        # Faults never meet a control call, or nothing could lift a fault on all methods.
        handlers[CONTROL_METHOD] = unary_handler("Control", control.answer, Faults(), self._broker.runtime)
        self._server.add_generic_rpc_handlers((Dispatch(handlers),))
        self._port = self._server.add_insecure_port(self._host_port)
        self._server.start()
        self._timekeeper.start()

    def stop(self, grace_s: float = 0.5) -> None:
        """End every stream with UNAVAILABLE, let calls finish for `grace_s`, then cut them."""
        if self._server is None:
            return
        server, self._server = self._server, None
        pool, self._pool = self._pool, None
        self.faults.clear()
        self._streams.end_all(unavailable())
        server.stop(grace_s).wait()
        if pool is not None:
            pool.shutdown(wait=False)
        self._timekeeper.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def counters(self) -> dict[str, int]:
        """Totals since the start (published, delivered, acked, expired, calls.METHOD, …), and what is held now."""
        return self._broker.counters()

    def create_topic(self, project: str, topic: str) -> str:
        """Create a topic unless it exists; returns its full name."""
        name = f"projects/{project}/topics/{topic}"
        try:
            TopicCalls(self._broker).create_resource(TOPIC(name=name))
        except Refused as refused:
            if refused.code is not grpc.StatusCode.ALREADY_EXISTS:
                raise
        return name

    def create_subscription(self, project: str, subscription: str, topic: str, **options: Any) -> str:
        """Create a subscription unless it exists; returns its full name.

        `topic` is an id or a full name; `options` are fields of Subscription as in protobuf's JSON, e.g.
        `ack_deadline_seconds=10, retry_policy={"minimum_backoff": "1s"}`.
        """
        name = f"projects/{project}/subscriptions/{subscription}"
        topic_name = topic if "/" in topic else f"projects/{project}/topics/{topic}"
        resource = json_format.ParseDict({"name": name, "topic": topic_name, **options}, SUBSCRIPTION())
        try:
            SubscriptionCalls(self._broker).create_resource(resource)
        except Refused as refused:
            if refused.code is not grpc.StatusCode.ALREADY_EXISTS:
                raise
        return name

    def _control_calls(self) -> dict[str, Any]:
        """What the control service offers: the faults, the clock, the counters and the two conveniences."""
        faults = self.faults
        return {
            "fail": faults.fail,
            "refuse": faults.refuse,
            "poison": faults.poison,
            "delay": faults.delay,
            "drop": faults.drop,
            "end_streams": faults.end_streams,
            "stall_streams": faults.stall_streams,
            "resume_streams": faults.resume_streams,
            "clear": faults.clear,
            "hits": faults.hits,
            "now_ns": self.clock.now_ns,
            "advance": self._advance,
            "counters": self.counters,
            "create_topic": self.create_topic,
            "create_subscription": self.create_subscription,
        }

    def _advance(self, seconds: float) -> None:
        if not isinstance(self.clock, ManualClock):
            raise ValueError("the clock is the system's: start with --manual-clock to move it")
        self.clock.advance(seconds)


def _calm_collector() -> None:
    """Let the garbage collector run seldom: going through the backlog doubles the cost of Publish.

    Messages form no cycles and are freed by their reference counts. Only for a process of our own.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(limits.COLLECTOR_ALLOCATIONS, 50, 100)


def serve(host_port: str, clock: Clock | None = None) -> int:
    """Serve in the foreground until SIGTERM or SIGINT; 0 after a clean stop, 1 when the address cannot be bound.

    Prints one line when it listens. Must run in the main thread, because it handles signals.
    """
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    emulator = Emulator(host_port, clock)
    _calm_collector()
    try:
        emulator.start()
    except RuntimeError as error:
        logger.error("The local Pub/Sub cannot listen on %s: %s", host_port, error, extra={"action": "bind_failed"})
        return 1
    previous = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        print(f"listening on {emulator.address}", flush=True)
        stop.wait()
    finally:
        emulator.stop()
        for number, handler in previous.items():
            signal.signal(number, handler)
    return 0
