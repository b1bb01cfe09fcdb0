"""StreamingPull: one receiver's stream, its flow control, and its end, which is never an OK.

The handler's thread writes responses; a thread of its own reads what the client sends (acks, deadlines, heartbeats).
A client that closes its sending half goes on receiving.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator

import grpc
from google.pubsub_v1 import types

from engine.emulator import limits
from engine.emulator.broker import Broker
from engine.emulator.clock import NS_PER_S
from engine.emulator.errors import Refused, bad_argument, exhausted, invalid, unavailable
from engine.emulator.leases import Consumer
from engine.emulator.names import project_of
from engine.emulator.receiving import parse, require_modack_seconds, require_small
from engine.emulator.subscription import Delivery, Subscription
from engine.emulator.wire import Pb, SplitStreamingPull, is_ack_id, received

logger = logging.getLogger(__name__)

RESPONSE: Pb = types.StreamingPullResponse.pb()


class Stream:
    """One open StreamingPull call. Its fields are guarded by the server's lock."""

    def __init__(self, subscription: Subscription, consumer: Consumer, deadline_ns: int, protocol: int) -> None:
        self.subscription = subscription
        self.consumer = consumer
        self.answers_pings = protocol >= 1
        """From protocol version 1 on a client gives a stream up whose server leaves a ping unanswered for 15 s."""
        self.deadline_ns = deadline_ns
        """How long each delivery on this stream is leased."""
        self.confirmations: list[bytes] = []
        """Serialised answers to acks and pings on the stream, waiting to be written."""
        self.stalled = False
        """Delivers nothing and says nothing: a fault."""
        self.ended: Refused | None = None

    def end(self, why: Refused) -> None:
        """End the stream with `why`, as soon as its thread looks."""
        if self.ended is None:
            self.ended = why
        self.subscription.changed.notify_all()


class Streams:
    """All open streams of the server."""

    def __init__(self, broker: Broker, stream_life_s: float) -> None:
        self._broker = broker
        self._runtime = broker.runtime
        self._life_s = stream_life_s
        self._open: set[Stream] = set()
        self._stalled: list[str] = []
        """Subscriptions whose streams stall; an empty name stands for all."""

    # Faults and shutdown

    def end_all(self, why: Refused, subscription: str = "") -> int:
        """End every open stream, or those of one subscription; returns how many."""
        with self._runtime.lock:
            streams = [stream for stream in self._open if subscription in ("", stream.subscription.name)]
            for stream in streams:
                stream.end(why)
            return len(streams)

    def stall(self, subscription: str = "") -> None:
        """Let streams, also future ones, stay open and silent."""
        with self._runtime.lock:
            self._stalled.append(subscription)
            self._apply_stall()

    def resume(self) -> None:
        """End every stall."""
        with self._runtime.lock:
            self._stalled.clear()
            self._apply_stall()

    def _apply_stall(self) -> None:
        for stream in self._open:
            stream.stalled = self._is_stalled(stream.subscription.name)
            stream.subscription.changed.notify_all()

    def _is_stalled(self, subscription: str) -> bool:
        return any(name in ("", subscription) for name in self._stalled)

    # The call

    def streaming_pull(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """Serve one call until the client leaves or the stream is ended."""
        try:
            first = next(requests)
        except StopIteration:
            raise invalid("The first request of a StreamingPull must name a subscription.") from None
        with self._runtime.lock:
            stream = self._start(parse(SplitStreamingPull, first))
        try:
            if not context.add_callback(lambda: self._leave(stream)):
                return
            reader = threading.Thread(
                target=self._read, args=(stream, requests), name="emulator-stream-reader", daemon=True
            )
            reader.start()
            yield from self._write(stream, context)
        finally:
            self._leave(stream)
        if stream.ended is not None:
            raise stream.ended

    def _start(self, call: Pb) -> Stream:
        subscription = self._broker.subscription(call.subscription)
        subscription.require_usable()
        seconds = call.stream_ack_deadline_seconds
        if not limits.ACK_DEADLINE_S_MIN <= seconds <= limits.ACK_DEADLINE_S_MAX:
            raise bad_argument("stream_ack_deadline_seconds")
        if len(self._open) >= limits.STREAMS_MAX:
            project = project_of(subscription.name)
            raise exhausted(f'You have exceeded your StreamingPull connection quota (project="{project}")')
        consumer = Consumer(call.max_outstanding_messages, call.max_outstanding_bytes)
        stream = Stream(subscription, consumer, seconds * NS_PER_S, call.protocol_version)
        stream.stalled = self._is_stalled(subscription.name)
        self._take_requests(stream, call)
        self._open.add(stream)
        subscription.consumers.add(consumer)
        subscription.active_ns = self._runtime.clock.now_ns()
        self._runtime.counters["streams_opened"] += 1
        return stream

    def _leave(self, stream: Stream) -> None:
        with self._runtime.lock:
            if stream in self._open:
                self._open.discard(stream)
                stream.subscription.consumers.discard(stream.consumer)
                stream.subscription.active_ns = self._runtime.clock.now_ns()
            stream.subscription.changed.notify_all()

    # Writing

    def _write(self, stream: Stream, context: grpc.ServicerContext) -> Iterator[bytes]:
        recycle_at = time.monotonic() + self._life_s
        while True:
            with self._runtime.lock:
                delivery = self._next(stream, context, recycle_at)
                properties = self._properties(stream.subscription)
                confirmations, stream.confirmations = stream.confirmations, []
            if delivery is None and not confirmations:
                return
            for confirmation in confirmations:
                yield confirmation + properties
            if delivery is not None:
                yield received(delivery.messages, delivery.ids, delivery.attempts) + properties

    def _next(self, stream: Stream, context: grpc.ServicerContext, recycle_at: float) -> Delivery | None:
        """Wait for messages; None when there are only confirmations to write, or when the stream has ended."""
        subscription, consumer = stream.subscription, stream.consumer
        clock = self._runtime.clock
        while True:
            if subscription.gone is not None and stream.ended is None:
                stream.ended = subscription.gone
            if stream.ended is not None or not context.is_active() or stream not in self._open:
                return None
            left_s = recycle_at - time.monotonic()
            if left_s <= 0:
                stream.ended = unavailable()
                return None
            if not stream.stalled:
                if stream.confirmations:
                    return None
                delivery = subscription.lease(consumer, self._share(subscription), clock.now_ns() + stream.deadline_ns)
                if delivery is not None:
                    return delivery
            consumer.wants = not stream.stalled
            consumer.starved = not consumer.open
            subscription.changed.wait(min(left_s, threading.TIMEOUT_MAX))
            consumer.wants = consumer.starved = False

    def _share(self, subscription: Subscription) -> int:
        """How many messages one stream takes: all, or a fair part while others wait too."""
        if subscription.backlog.keys:
            return limits.RESPONSE_MESSAGES_MAX
        waiting = 1 + sum(1 for consumer in subscription.consumers if consumer.wants and consumer.open)
        fair = -(-subscription.backlog.ready_count // waiting)
        return min(limits.RESPONSE_MESSAGES_MAX, max(1, fair))

    @staticmethod
    def _properties(subscription: Subscription) -> bytes:
        settings = subscription.settings
        response = RESPONSE()
        response.subscription_properties.exactly_once_delivery_enabled = settings.exactly_once
        response.subscription_properties.message_ordering_enabled = settings.ordering
        serialized: bytes = response.SerializeToString()
        return serialized

    # Reading

    def _read(self, stream: Stream, requests: Iterator[bytes]) -> None:
        """Take the client's later requests until it leaves."""
        try:
            for request in requests:
                require_small(request)
                call = parse(SplitStreamingPull, request)
                with self._runtime.lock:
                    self._check_later(call)
                    self._take_requests(stream, call)
                    self._answer_ping(stream, call)
        except Refused as refused:
            with self._runtime.lock:
                stream.end(refused)
        except grpc.RpcError:
            return  # The call is over; gRPC says so by raising this in the iterator.
        except Exception:
            logger.exception("A stream's reader failed; the stream ends", extra={"action": "stream_reader_failed"})
            with self._runtime.lock:
                stream.end(unavailable())

    @staticmethod
    def _check_later(call: Pb) -> None:
        if call.subscription:
            raise invalid("A StreamingPull names its subscription only in its first request.")
        if call.max_outstanding_messages or call.max_outstanding_bytes:
            raise invalid("Flow control of a StreamingPull is set only by its first request.")
        if call.protocol_version:
            raise invalid("The protocol version of a StreamingPull is set only by its first request.")
        seconds = call.stream_ack_deadline_seconds
        if seconds and not limits.ACK_DEADLINE_S_MIN <= seconds <= limits.ACK_DEADLINE_S_MAX:
            raise bad_argument("stream_ack_deadline_seconds")

    def _take_requests(self, stream: Stream, call: Pb) -> None:
        """Apply acks, deadlines and a changed stream deadline. Holds the lock."""
        if call.stream_ack_deadline_seconds:
            stream.deadline_ns = call.stream_ack_deadline_seconds * NS_PER_S
        acks, modified, seconds = (
            list(call.ack_ids),
            list(call.modify_deadline_ack_ids),
            list(call.modify_deadline_seconds),
        )
        if len(modified) != len(seconds):
            raise invalid("modify_deadline_ack_ids and modify_deadline_seconds must have the same length.")
        if not all(is_ack_id(ack_id) for ack_id in (*acks, *modified)):
            raise bad_argument("ack_ids")
        for value in seconds:
            require_modack_seconds(value)
        subscription = stream.subscription
        if acks:
            self._confirm(stream, "acknowledge_confirmation", acks, subscription.ack(acks))
        by_seconds: dict[int, list[bytes]] = {}
        for ack_id, value in zip(modified, seconds, strict=True):
            by_seconds.setdefault(value, []).append(ack_id)
        for value, ids in by_seconds.items():
            self._confirm(stream, "modify_ack_deadline_confirmation", ids, subscription.modify_deadline(ids, value))

    @staticmethod
    def _answer_ping(stream: Stream, call: Pb) -> None:
        """Say something to a request that is no more than a sign of life; whatever waits already says it too."""
        if stream.answers_pings and not (call.ack_ids or call.modify_deadline_ack_ids or stream.confirmations):
            stream.confirmations.append(b"")
            stream.subscription.changed.notify_all()

    def _confirm(self, stream: Stream, kind: str, ids: list[bytes], failures: dict[str, str]) -> None:
        """Exactly once: say on the stream which ids were applied."""
        if not stream.subscription.settings.exactly_once:
            return
        response = RESPONSE()
        confirmation = getattr(response, kind)
        good = [ack_id.decode() for ack_id in ids if ack_id.decode() not in failures]
        confirmation.ack_ids.extend(good)
        invalid_ids = [ack_id for ack_id, why in failures.items() if why.startswith("PERMANENT")]
        confirmation.invalid_ack_ids.extend(invalid_ids)
        if kind == "acknowledge_confirmation":
            unordered = [ack_id for ack_id, why in failures.items() if "UNORDERED" in why]
            confirmation.unordered_ack_ids.extend(unordered)
        stream.confirmations.append(response.SerializeToString())
        stream.subscription.changed.notify_all()
