"""Pull, Acknowledge and ModifyAckDeadline."""

from __future__ import annotations

import time

import grpc
from google.protobuf.message import DecodeError
from google.pubsub_v1 import types

from engine.emulator import limits
from engine.emulator.broker import Broker
from engine.emulator.errors import Refused, bad_argument, invalid
from engine.emulator.leases import Consumer
from engine.emulator.subscription import Delivery, Subscription
from engine.emulator.wire import Pb, SplitAcknowledge, SplitModifyAckDeadline, received

PULL_REQUEST: Pb = types.PullRequest.pb()

_FAILED_IDS = (
    "Some acknowledgement ids in the request were invalid. This could be because the acknowledgement ids have expired "
    "or the acknowledgement ids were malformed."
)


def parse(message_class: Pb, request: bytes) -> Pb:
    """Parse a request; INVALID_ARGUMENT when it is no protobuf of its kind."""
    try:
        return message_class.FromString(request)
    except DecodeError as error:
        raise invalid(f"The request cannot be parsed: {error}") from error


def require_small(request: bytes) -> None:
    """Refuse a request with too many ack ids, as the service does: by its size."""
    if len(request) > limits.ACK_REQUEST_BYTES_MAX:
        raise invalid(f"Request payload size exceeds the limit: {limits.ACK_REQUEST_BYTES_MAX} bytes.")


def require_modack_seconds(seconds: int) -> None:
    """Refuse a deadline out of range."""
    if not 0 <= seconds <= limits.MODACK_S_MAX:
        raise bad_argument("ack_deadline_seconds")


def failed_ids(failures: dict[str, str]) -> Refused:
    """Exactly once: the ids that failed, each with its reason; the others have been applied."""
    return Refused(grpc.StatusCode.INVALID_ARGUMENT, _FAILED_IDS, failures)


class Receiving:
    """The unary calls of a receiver."""

    def __init__(self, broker: Broker, pull_wait_s: float) -> None:
        self._broker = broker
        self._runtime = broker.runtime
        self._pull_wait_s = pull_wait_s

    def pull(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Answer with what is there, or wait a little for a first message; an empty answer is normal."""
        call = parse(PULL_REQUEST, request)
        if call.max_messages <= 0:
            raise bad_argument("max_messages")
        wait_s = 0.0 if call.return_immediately else self._pull_wait_s
        with self._runtime.lock:
            subscription = self._broker.subscription(call.subscription)
            delivery = self._wait(subscription, call.max_messages, wait_s, context)
        if delivery is None:
            return b""
        return received(delivery.messages, delivery.ids, delivery.attempts)

    def _wait(
        self, subscription: Subscription, count_max: int, wait_s: float, context: grpc.ServicerContext
    ) -> Delivery | None:
        clock = self._runtime.clock
        consumer = Consumer()
        give_up = time.monotonic() + wait_s
        count_max = min(count_max, limits.RESPONSE_MESSAGES_MAX)
        while context.is_active():
            subscription.require_usable()
            now_ns = clock.now_ns()
            subscription.active_ns = now_ns
            delivery = subscription.lease(consumer, count_max, now_ns + subscription.settings.ack_deadline_ns)
            left_s = give_up - time.monotonic()
            if delivery is not None or left_s <= 0:
                return delivery
            subscription.changed.wait(left_s)
        return None

    def acknowledge(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """End deliveries. Ids that hold no lease are passed over, except by an exactly-once subscription."""
        require_small(request)
        call = parse(SplitAcknowledge, request)
        ids = list(call.ack_ids)
        if not ids:
            raise invalid("You have not specified an ack ID in the request.")
        with self._runtime.lock:
            failures = self._broker.subscription(call.subscription).ack(ids)
        if failures:
            raise failed_ids(failures)
        return b""

    def modify_ack_deadline(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Extend deliveries, or give them back at once with 0 seconds."""
        require_small(request)
        call = parse(SplitModifyAckDeadline, request)
        ids = list(call.ack_ids)
        if not ids:
            raise invalid("You have not specified an ack ID in the request.")
        require_modack_seconds(call.ack_deadline_seconds)
        with self._runtime.lock:
            failures = self._broker.subscription(call.subscription).modify_deadline(ids, call.ack_deadline_seconds)
        if failures:
            raise failed_ids(failures)
        return b""
