"""The source of one channel: its stream in a thread of its own, reopened for ever, and the acks that belong to it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import structlog

from engine.clock import Clock
from engine.config import PubSubLimits
from engine.model import SourceConfig
from engine.pubsub.acks import ACK, AckQueue
from engine.pubsub.backoff import Backoff
from engine.pubsub.connection import Connection, Connections, routing
from engine.pubsub.errors import Failure, FailureKind, NotConnected, classify
from engine.pubsub.fields import WireError
from engine.pubsub.stream import Ending, Stream
from engine.pubsub.wire import Received, parse_response

_log = structlog.get_logger(__name__)

StateName = Literal["connecting", "streaming", "failing", "paused", "stopped"]
_NEVER_MS: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """How a source is doing."""

    state: StateName
    reason: str | None = None
    """A sentence, while failing."""
    failure: Failure | None = None
    since_ms: int
    """Wall clock at which `state` began."""
    received: int = 0
    streams_opened: int = 0
    last_response_ms: int = _NEVER_MS
    """0: none yet."""
    acked: int = 0
    acks_given_up: int = 0
    ack_requests_failed: int = 0


class Source:
    """Receives the messages of one subscription.

    `on_messages` is called in the source's thread with what one response brought; while it blocks nothing more is read,
    which is the back-pressure. `on_state` is called at every change of state, from the source's or gRPC's threads; it
    must not block. A source never gives up: whatever happens, it opens the stream again, later and later.
    """

    def __init__(
        self,
        config: SourceConfig,
        connections: Connections,
        limits: PubSubLimits,
        clock: Clock,
        *,
        on_messages: Callable[[Received], None],
        on_state: Callable[[SourceState], None],
        rng: random.Random,
    ) -> None:
        self.subscription = config.subscription
        self._config = config
        self._connections = connections
        self._limits = limits
        self._clock = clock
        self._on_messages = on_messages
        self._on_state = on_state
        self._backoff = Backoff(limits, clock, rng)
        self._metadata = routing("subscription", self.subscription)
        self._acks = AckQueue(self.subscription, limits, self._send, connections.timer.after)
        self._condition = threading.Condition()
        self._state = SourceState(state="connecting", since_ms=clock.now_ms())
        self._connection: Connection | None = None
        self._stubs: dict[str, Any] = {}
        self._stream: Stream | None = None
        self._paused = False
        self._stopping = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"source-{config.subscription_id}", daemon=True)

    # -- control ------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to receive."""
        self._thread.start()

    def pause_stream(self) -> None:
        """Close the stream until `resume_stream`: what is not accepted must not be delivered and then ignored."""
        self._order(paused=True)

    def resume_stream(self) -> None:
        """Open the stream again."""
        self._order(paused=False)

    def stop(self, timeout_s: float) -> None:
        """End the stream; acks still work until `close`. Waits for a running `on_messages` up to `timeout_s`."""
        with self._condition:
            self._stopping = True
        self._order(paused=self._paused)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        if self._thread.is_alive():
            _log.warning(
                "The source is stopped, but its last messages are still being taken over.",
                action="source_stop_late",
                subscription=self.subscription,
            )
        self._enter("stopped")

    def close(self, timeout_s: float = 1.0) -> None:
        """Stop if need be, let acks arrive for up to `timeout_s`, give up the others, let the connection go."""
        if not self._stopping:
            self.stop(timeout_s)
        self._acks.drain(timeout_s, self._clock)
        self._acks.close()
        with self._condition:
            self._closed = True
            connection, self._connection = self._connection, None
            self._stubs = {}
        if connection is not None:
            connection.close()

    def status(self) -> SourceState:
        """The state with its counters."""
        counts = self._acks.counts
        with self._condition:
            return replace(
                self._state,
                acked=counts.acked,
                acks_given_up=counts.given_up,
                ack_requests_failed=counts.failed_requests,
            )

    # -- acks ---------------------------------------------------------------------------------

    def ack(self, ack_ids: Sequence[str]) -> Future[int]:
        """Acknowledge; resolves with how many arrived, never raises (the rest is redelivered and recognised)."""
        return self._acks.add(ack_ids, ACK)

    def extend(self, ack_ids: Sequence[str], seconds: int) -> Future[int]:
        """Keep messages leased until `seconds` from now (10 to 600)."""
        return self._acks.add(ack_ids, seconds)

    def nack(self, ack_ids: Sequence[str]) -> Future[int]:
        """Give messages back: they are redelivered at once, or after the subscription's retry policy."""
        return self._acks.add(ack_ids, 0)

    def _send(self, method: str, request: bytes) -> Any:
        """Start a unary call on the connection of the moment."""
        with self._condition:
            connection, stub = self._connection, self._stubs.get(method)
        if connection is None or stub is None:
            raise NotConnected(f"{self.subscription} is not connected")
        call = stub.future(request, timeout=self._limits.ack_timeout_s, metadata=self._metadata)
        call.add_done_callback(lambda done: None if done.cancelled() or done.exception() else connection.answered())
        return call

    # -- the thread ---------------------------------------------------------------------------

    def _order(self, *, paused: bool) -> None:
        """Tell the thread what is wanted, and end what it is doing if that is not wanted any more."""
        with self._condition:
            self._paused = paused
            stream = self._stream if paused or self._stopping else None
            self._condition.notify_all()
        if stream is not None:
            stream.end(Ending.ASKED)

    def _run(self) -> None:
        """Until stopped: a stream, a pause for back-off, the next stream."""
        while self._wait_while_paused():
            fingerprint = self._connections.fingerprint(self._config)
            try:
                self._receive()
                failure = Failure(kind=FailureKind.TRANSIENT, code="OK", reason="The service ended the stream.")
            except WireError as error:
                failure = Failure(
                    kind=FailureKind.TRANSIENT, code="UNREADABLE", reason=f"A response is damaged: {error}"
                )
            except Exception as error:
                failure = classify(error, self.subscription)
            self._recover(failure, fingerprint)

    def _wait_while_paused(self) -> bool:
        """Wait until receiving is wanted; False: stop."""
        with self._condition:
            paused = self._paused and not self._stopping
        if paused:
            self._enter("paused")
            with self._condition:
                while self._paused and not self._stopping:
                    self._condition.wait()
                stopping = self._stopping
            if not stopping:
                self._backoff.reset()
                self._enter("connecting")
        return not self._stopping

    def _receive(self) -> None:
        """Open a stream and hand on what it brings until it ends; raises what ended it."""
        connection = self._connect()
        # A refusal may take its time: who was refused before believes only a stream that lasts.
        failing = self._state.state == "failing"
        confirm_s = self._limits.stream_settled_s if failing else self._limits.stream_confirm_s
        stream = Stream(
            connection,
            self.subscription,
            self._metadata,
            self._limits,
            self._clock,
            confirm_s=confirm_s,
            on_confirmed=self._confirmed,
        )
        with self._condition:
            self._stream = stream
            self._state = replace(self._state, streams_opened=self._state.streams_opened + 1)
            unwanted = self._unwanted()
        if unwanted:
            stream.end(Ending.ASKED)
        try:
            for data in stream.responses():
                self._hand_on(data)
        finally:
            with self._condition:
                self._stream = None
            self._backoff.stream_ended(stream.lived_s(), stream.ending)

    def _hand_on(self, data: bytes) -> None:
        """One response: count it and give its messages to the listener."""
        received = parse_response(data)
        with self._condition:
            self._state = replace(
                self._state,
                received=self._state.received + len(received.ack_ids),
                last_response_ms=self._clock.now_ms(),
            )
        self._confirmed()
        if not received.ack_ids:
            return
        try:
            self._on_messages(received)
        except Exception:
            _log.exception(
                "Received messages could not be taken over; they come again.",
                action="listener_raised",
                subscription=self.subscription,
                messages=len(received.ack_ids),
            )
            raise

    def _connect(self) -> Connection:
        """The connection in hand, or a new one if there is none or its credentials were renewed."""
        with self._condition:
            old = self._connection
        if old is not None and not old.renewed():
            return old
        connection = self._connections.subscriber(self._config)
        stubs = {method: connection.unary(method) for method in _ACK_METHODS}
        with self._condition:
            if not self._closed:
                self._connection, self._stubs = connection, stubs
        if self._closed:
            connection.close()
            raise NotConnected(f"{self.subscription} was closed while it was being connected")
        if old is not None:
            old.close()
        return connection

    def _confirmed(self) -> None:
        """The service accepted the stream, or at least did not refuse it."""
        with self._condition:
            # gRPC's thread may come late: then the stream that it speaks of is over.
            if self._stream is None or self._unwanted() or self._state.state == "streaming":
                return
            failing = self._state.state == "failing"
            entered = self._change("streaming", None)
        self._tell(entered)
        if failing:
            _log.info("The source receives again.", action="source_recovered", subscription=self.subscription)

    def _recover(self, failure: Failure, fingerprint: str) -> None:
        """After a stream's end: say what is wrong, and wait before the next attempt as long as is right."""
        if self._unwanted():
            return
        delay_s = self._backoff.next_delay_s(failure.kind)
        if delay_s == 0.0:
            _log.debug("The stream is opened again.", action="stream_reopened", subscription=self.subscription)
            return
        self._fail(failure, delay_s)
        waited_until_s = self._clock.elapsed_s() + delay_s
        while (left_s := waited_until_s - self._clock.elapsed_s()) > 0:
            with self._condition:
                if self._unwanted():
                    return
                self._clock.wait(self._condition, min(left_s, self._limits.key_file_poll_s))
            if self._connections.fingerprint(self._config) != fingerprint:
                return

    def _fail(self, failure: Failure, delay_s: float) -> None:
        """Show a failure; the log has a line when it begins or changes, not for every attempt."""
        with self._condition:
            known = self._state.failure is not None and self._state.failure.code == failure.code
        log = _log.debug if known else _log.warning
        log(
            "The source cannot receive; it goes on trying.",
            action="source_failing",
            subscription=self.subscription,
            code=failure.code,
            reason=failure.reason,
            retry_in_s=round(delay_s, 1),
        )
        self._enter("failing", failure)

    def _enter(self, state: StateName, failure: Failure | None = None) -> None:
        """Change the state and tell."""
        with self._condition:
            if self._state.state == "stopped" or (self._stopping and state != "stopped"):
                return
            if self._state.state == state and self._state.failure == failure:
                return
            entered = self._change(state, failure)
        self._tell(entered)

    def _change(self, state: StateName, failure: Failure | None) -> SourceState:
        """The new state, taken on; the lock is held."""
        since_ms = self._state.since_ms if self._state.state == state else self._clock.now_ms()
        reason = failure.reason if failure else None
        self._state = replace(self._state, state=state, reason=reason, failure=failure, since_ms=since_ms)
        return self._state

    def _tell(self, entered: SourceState) -> None:
        """Hand a new state to the owner; whatever it makes of it, the source goes on."""
        try:
            self._on_state(entered)
        except Exception:
            _log.exception(
                "A change of state could not be handed on.",
                action="source_state_unheard",
                subscription=self.subscription,
                state=entered.state,
            )

    def _unwanted(self) -> bool:
        """Whether receiving is not wanted at the moment."""
        return self._paused or self._stopping


_ACK_METHODS: Final = ("Subscriber/Acknowledge", "Subscriber/ModifyAckDeadline")
