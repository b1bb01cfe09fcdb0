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
        if self.cancelled():
            return  # Cancelled before it could be followed.
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
        self._calls: dict[Future[list[str]], Connection] = {}
        """Calls without an answer, and the connection that each of them is on."""
        self._closed = False

    def publish(self, request: bytes, count: int, deadline_s: float) -> Future[list[str]]:
        """Start a Publish call with a ready-made request of `count` messages.

        Without an answer after `deadline_s` seconds the call ends as DEADLINE_EXCEEDED; it does not wait for a broken
        connection, which fails at once. Callbacks of the future run in gRPC's thread. A credential that cannot be used
        is in the future as well, and is tried anew with the next call.
        """
        published = PublishCall()
        try:
            stub = self._stub_for(published)
            call = stub.future(request, timeout=deadline_s, metadata=self._metadata)
        except Exception as error:
            published.set_exception(error)
            self._forget(published)
            return published
        published.follow(call)
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
            busy = connection is not None and self._uses(connection)
        self.cancel_all()
        if connection is not None and not busy:
            connection.close()

    def _forget(self, call: Future[list[str]]) -> None:
        """A call has its answer; the last one on a connection that was replaced meanwhile lets it go."""
        with self._lock:
            connection = self._calls.pop(call, None)
            self._answered.notify_all()
            left = connection is not None and connection is not self._connection and not self._uses(connection)
        if connection is None:
            return
        if not call.cancelled() and call.exception() is None:
            connection.answered()
        if left:
            # Not here: in gRPC's thread a connection may wait for itself to end.
            connection.timer.after(0.0, connection.close)

    def _uses(self, connection: Connection) -> bool:
        return any(used is connection for used in self._calls.values())

    def _stub_for(self, call: Future[list[str]]) -> Any:
        """What to make a call with, on a connection that stays until the call has its answer."""
        self._ready()
        with self._lock:
            if self._connection is None:
                raise NotConnected(f"{self.topic} is closed")
            self._calls[call] = self._connection
            return self._stub

    def _ready(self) -> None:
        """See to it that there is a connection; raises while there is none."""
        connection = self._connection
        if connection is not None and not connection.renewed():
            return
        if self._closed:
            raise NotConnected(f"{self.topic} is closed")
        if self._connections.is_quick(self._config):
            self._connect()
            return
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

    def _connect(self) -> None:
        """Connect anew; the former connection goes when the calls on it have their answers."""
        connection = self._connections.publisher(self._config)
        stub = connection.unary("Publisher/Publish", parse_publish_response)
        with self._lock:
            closed = self._closed
            old = connection if closed else self._connection
            if not closed:
                self._connection, self._stub = connection, stub
            busy = old is not None and self._uses(old)
        if old is not None and not busy:
            old.close()
        if closed:
            raise NotConnected(f"{self.topic} is closed")
