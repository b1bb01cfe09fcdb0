"""The destination of one channel: Publish calls on bytes, asynchronous, each made once and with a deadline."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

from engine.clock import Clock, wait_until
from engine.config import PubSubLimits
from engine.errors import SchedulerError
from engine.model import DestinationConfig
from engine.pubsub.connection import Connection, Connections, routing
from engine.pubsub.errors import NotConnected
from engine.pubsub.wire import parse_publish_response


class PublishMismatch(SchedulerError):
    """The service answered with more or fewer ids than messages were sent: nobody knows what it took."""


class PublishCall(Future[list[str]]):
    """One Publish call: gives the message ids, or raises what `errors.classify` knows."""

    def __init__(self) -> None:
        super().__init__()
        self._call: Any = None

    def follow(self, call: Any) -> None:
        """The gRPC call that this future stands for; from here on `cancel` ends it."""
        self._call = call

    def begin(self, count: int) -> None:
        """Take the call's answer for `count` messages as soon as it is there."""
        self._call.add_done_callback(lambda done: self._settle(done, count))

    def cancel(self) -> bool:
        """Cancel the call; the service may have taken the messages all the same."""
        return super().cancel() if self._call is None else bool(self._call.cancel())

    def _settle(self, call: Any, count: int) -> None:
        """In gRPC's thread: the answer is there."""
        if call.cancelled():
            super().cancel()
        elif (error := call.exception()) is not None:
            self.set_exception(error)
        elif len(ids := call.result()) != count:
            self.set_exception(PublishMismatch(f"{len(ids)} ids came back for {count} messages"))
        else:
            self.set_result(ids)


class Sink:
    """Publishes to one topic.

    A call is made once: neither gRPC nor this class repeats it, since only the releaser knows whether it still may.
    Failures are in the future; `errors.classify` says what they mean. Any thread may call.
    """

    def __init__(self, config: DestinationConfig, connections: Connections, limits: PubSubLimits, clock: Clock) -> None:
        self.topic = config.topic
        self._config = config
        self._connections = connections
        self._limits = limits
        self._clock = clock
        self._metadata = routing("topic", self.topic)
        self._lock = threading.Lock()
        self._answered = threading.Condition(self._lock)
        self._connection: Connection | None = None
        self._stub: Any = None
        self._connecting = False
        self._refusal: BaseException | None = None
        self._calls: set[Future[list[str]]] = set()
        self._closed = False

    def publish(self, request: bytes, count: int, deadline_s: float) -> Future[list[str]]:
        """Start a Publish call with a ready-made request of `count` messages.

        Without an answer after `deadline_s` seconds the call ends as DEADLINE_EXCEEDED; it does not wait for a broken
        connection, which fails at once. Callbacks of the future run in gRPC's thread. A credential that cannot be used
        is in the future as well, and is tried anew with the next call.
        """
        published = PublishCall()
        try:
            stub = self._ready()
            call = stub.future(request, timeout=deadline_s, metadata=self._metadata)
        except Exception as error:
            published.set_exception(error)
            return published
        published.follow(call)
        with self._lock:
            self._calls.add(published)
        published.add_done_callback(self._forget)
        published.begin(count)
        return published

    def in_flight(self) -> int:
        """Calls without an answer."""
        with self._lock:
            return len(self._calls)

    def cancel_all(self) -> None:
        """Cancel every call in flight: leadership was lost. The service may have taken some of them all the same."""
        with self._lock:
            calls = list(self._calls)
        for call in calls:
            call.cancel()

    def drain(self, timeout_s: float) -> bool:
        """Wait until every call has its answer, at most `timeout_s`; say whether it is so."""
        with self._answered:
            return wait_until(self._clock, self._answered, lambda: not self._calls, timeout_s)

    def close(self) -> None:
        """Cancel what is in flight and let the connection go."""
        with self._lock:
            self._closed = True
            connection, self._connection, self._stub = self._connection, None, None
        self.cancel_all()
        if connection is not None:
            connection.close()

    def _forget(self, call: Future[list[str]]) -> None:
        """A call has its answer."""
        with self._lock:
            self._calls.discard(call)
            self._answered.notify_all()
            connection = self._connection
        if connection is not None and not call.cancelled() and call.exception() is None:
            connection.answered()

    def _ready(self) -> Any:
        """The stub to publish with; raises while there is no connection."""
        connection = self._connection
        if connection is not None and not connection.renewed():
            return self._stub
        if self._closed:
            raise NotConnected(f"{self.topic} is closed")
        if self._connections.is_quick(self._config):
            return self._connect()
        # The machine's own credentials may take seconds to find: not in the thread that releases for all channels.
        with self._lock:
            refusal, self._refusal = self._refusal, None
            begin = refusal is None and not self._connecting
            self._connecting = self._connecting or begin
        if refusal is not None:
            raise refusal
        if begin:
            threading.Thread(target=self._connect_aside, name="sink-connect", daemon=True).start()
        raise NotConnected(f"{self.topic} is being connected")

    def _connect_aside(self) -> None:
        """In a thread of its own: connect, or keep the reason why not for the next publish."""
        refusal: BaseException | None = None
        try:
            self._connect()
        except Exception as error:
            refusal = error
        with self._lock:
            self._refusal = refusal
            self._connecting = False

    def _connect(self) -> Any:
        """Connect anew and give the stub; calls in flight on the old connection end with it only if cancelled."""
        connection = self._connections.publisher(self._config)
        stub = connection.unary("Publisher/Publish", parse_publish_response)
        with self._lock:
            closed = self._closed
            old = connection if closed else self._connection
            if not closed:
                self._connection, self._stub = connection, stub
        if old is not None:
            old.close()
        if closed:
            raise NotConnected(f"{self.topic} is closed")
        return stub
