"""Acknowledgements and lease changes of one source: unary requests in chunks, few in flight, gathered while busy."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

import structlog

from engine.clock import Clock, wait_until
from engine.config import PubSubLimits
from engine.pubsub import schema
from engine.pubsub.errors import FailureKind, NotConnected, classify
from engine.pubsub.failed_ids import failed_ids

_log = structlog.get_logger(__name__)

ACK: Final = -1
"""The lease of a message that is done with: acknowledged."""

Send = Callable[[str, bytes], Any]
"""Starts the call of a Subscriber method with a request and gives its gRPC future; may raise."""
Later = Callable[[float, Callable[[], None]], None]
"""Does something after a delay in seconds."""


class _Submission:
    """What one caller asked for."""

    __slots__ = ("done", "future", "remaining")

    def __init__(self, count: int) -> None:
        self.future: Future[int] = Future()
        self.remaining = count
        self.done = 0


@dataclass(slots=True)
class _Part:
    """Ids of one submission that wait or travel together."""

    submission: _Submission
    ids: list[str]


@dataclass(slots=True)
class _Chunk:
    """One request."""

    lease_s: int
    parts: list[_Part]
    attempts: int = 0

    def ids(self) -> list[str]:
        """All ids, in order."""
        return [i for part in self.parts for i in part.ids]


@dataclass(slots=True)
class AckCounts:
    """What became of the ids, since the start."""

    acked: int = 0
    extended: int = 0
    failed_requests: int = 0
    given_up: int = 0
    """Ids whose request failed too often: their messages are redelivered and recognised as duplicates."""


class AckQueue:
    """Sends ids in requests that the service takes, and tells each caller how many arrived.

    A request goes out at once while fewer than two are in flight; meanwhile ids gather. A failed request is repeated a
    few times with back-off, then given up: redelivery and the dedupe window cover that. Futures never raise.
    Callers may be any threads; calls are made, and futures resolved, without the lock held.
    """

    def __init__(self, subscription: str, limits: PubSubLimits, send: Send, later: Later) -> None:
        self._subscription = subscription
        self._limits = limits
        self._send = send
        self._later = later
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._unfinished = 0
        self._waiting: deque[tuple[int, _Part]] = deque()
        self._repeats: deque[_Chunk] = deque()
        self._waiting_ids = 0
        self._in_flight = 0
        self._closed = False
        self.counts = AckCounts()

    def add(self, ids: Sequence[str], lease_s: int) -> Future[int]:
        """Acknowledge (`ACK`) or extend to `lease_s` from now (0: give back); resolves with how many arrived."""
        wanted = [i for i in ids if i]
        submission = _Submission(len(wanted))
        with self._lock:
            refused = self._closed or self._waiting_ids + len(wanted) > self._limits.ack_queue_max
            if refused:
                self.counts.given_up += len(wanted)
            elif wanted:
                self._waiting.append((lease_s, _Part(submission, wanted)))
                self._waiting_ids += len(wanted)
                self._unfinished += 1
        if refused or not wanted:
            submission.future.set_result(0)
        else:
            self._pump()
        return submission.future

    def close(self) -> None:
        """Give up what waits and take nothing more; what is in flight may still arrive."""
        with self._lock:
            self._closed = True
            parts = [part for _lease_s, part in self._waiting]
            parts += [part for chunk in self._repeats for part in chunk.parts]
            self._waiting.clear()
            self._repeats.clear()
            self._waiting_ids = 0
        for part in parts:
            self._finish(part, arrived=0, lease_s=0)

    def drain(self, timeout_s: float, clock: Clock) -> bool:
        """Wait until every id was answered for, at most `timeout_s`; say whether it is so."""
        with self._changed:
            return wait_until(clock, self._changed, lambda: not self._unfinished, timeout_s)

    def _pump(self) -> None:
        """Send while there is something to send and room for it."""
        while True:
            with self._lock:
                if self._in_flight >= self._limits.acks_in_flight_max:
                    return
                chunk = self._repeats.popleft() if self._repeats else self._take()
                if chunk is None:
                    return
                self._in_flight += 1
            self._start(chunk)

    def _take(self) -> _Chunk | None:
        """The next request's worth of waiting ids of one kind; the lock is held."""
        if not self._waiting:
            return None
        chunk = _Chunk(self._waiting[0][0], [])
        room = self._limits.ack_ids_max
        room_bytes = self._limits.ack_bytes_max
        while room and self._waiting and self._waiting[0][0] == chunk.lease_s:
            part = self._waiting[0][1]
            fitting = _fitting(part.ids, room, room_bytes)
            if not fitting and chunk.parts:
                break
            fitting = max(fitting, 1)
            taken = part.ids[:fitting]
            chunk.parts.append(_Part(part.submission, taken))
            room -= fitting
            room_bytes -= sum(map(_wire_size, taken))
            if fitting == len(part.ids):
                self._waiting.popleft()
            else:
                del part.ids[:fitting]
                break
        self._waiting_ids -= sum(len(part.ids) for part in chunk.parts)
        return chunk

    def _start(self, chunk: _Chunk) -> None:
        """Send one request."""
        chunk.attempts += 1
        if chunk.lease_s == ACK:
            method = "Subscriber/Acknowledge"
            request = schema.AcknowledgeRequest(subscription=self._subscription, ack_ids=chunk.ids())
        else:
            method = "Subscriber/ModifyAckDeadline"
            request = schema.ModifyAckDeadlineRequest(
                subscription=self._subscription, ack_deadline_seconds=chunk.lease_s, ack_ids=chunk.ids()
            )
        try:
            call = self._send(method, request.SerializeToString())
        except Exception as error:  # A closed channel raises ValueError, a missing connection NotConnected.
            self._failed(chunk, error)
            return
        call.add_done_callback(lambda done: self._answered(chunk, done))

    def _answered(self, chunk: _Chunk, call: Any) -> None:
        """In gRPC's thread: the request has its answer."""
        error = NotConnected() if call.cancelled() else call.exception()
        if error is not None:
            self._failed(chunk, error)
            return
        with self._lock:
            self._in_flight -= 1
        for part in chunk.parts:
            self._finish(part, arrived=len(part.ids), lease_s=chunk.lease_s)
        self._pump()

    def _failed(self, chunk: _Chunk, error: BaseException) -> None:
        """Repeat later what may still succeed, give up the rest."""
        with self._lock:
            self.counts.failed_requests += 1
        failure = classify(error, self._subscription)
        verdicts = failed_ids(error)
        retry = failure.kind is not FailureKind.MESSAGE or bool(verdicts)
        if verdicts:
            self._settle_individually(chunk, verdicts)
        with self._lock:
            self._in_flight -= 1
            again = bool(chunk.parts) and retry and not self._closed and chunk.attempts < self._limits.ack_attempts_max
        if again:
            delay_s = min(self._limits.backoff_min_s * 2 ** (chunk.attempts - 1), self._limits.ack_timeout_s)
            self._later(delay_s, lambda: self._repeat(chunk))
        else:
            for part in chunk.parts:
                self._finish(part, arrived=0, lease_s=chunk.lease_s)
            if chunk.parts:
                _log.warning(
                    "An acknowledgement was given up; its messages come again and are recognised.",
                    action="ack_given_up",
                    subscription=self._subscription,
                    messages=sum(len(part.ids) for part in chunk.parts),
                    reason=failure.reason,
                )
        self._pump()

    def _settle_individually(self, chunk: _Chunk, verdicts: dict[str, bool]) -> None:
        """With exactly-once delivery the answer names the ids that failed: the others arrived."""
        left = []
        for part in chunk.parts:
            lost = [i for i in part.ids if verdicts.get(i) is False]
            again = [i for i in part.ids if verdicts.get(i)]
            arrived = len(part.ids) - len(lost) - len(again)
            settled = part.ids[: arrived + len(lost)]  # Only their number counts here.
            if settled:
                self._finish(_Part(part.submission, settled), arrived=arrived, lease_s=chunk.lease_s)
            if again:
                left.append(_Part(part.submission, again))
        chunk.parts = left

    def _repeat(self, chunk: _Chunk) -> None:
        """In the timer's thread: the pause is over."""
        with self._lock:
            closed = self._closed
            if not closed:
                self._repeats.append(chunk)
        if closed:
            for part in chunk.parts:
                self._finish(part, arrived=0, lease_s=chunk.lease_s)
        else:
            self._pump()

    def _finish(self, part: _Part, *, arrived: int, lease_s: int) -> None:
        """Count a part off its submission; the last one resolves the caller's future."""
        submission = part.submission
        with self._lock:
            if lease_s == ACK:
                self.counts.acked += arrived
            else:
                self.counts.extended += arrived
            self.counts.given_up += len(part.ids) - arrived
            submission.done += arrived
            submission.remaining -= len(part.ids)
            finished = submission.remaining == 0
            if finished:
                self._unfinished -= 1
                self._changed.notify_all()
        if finished:
            submission.future.set_result(submission.done)


def _wire_size(ack_id: str) -> int:
    """Bytes of one id in a request: ids are ASCII; tag and length take up to four more."""
    return len(ack_id) + 4


def _fitting(ids: list[str], room: int, room_bytes: int) -> int:
    """How many of the first ids fit into a request."""
    count = 0
    for ack_id in ids[:room]:
        room_bytes -= _wire_size(ack_id)
        if room_bytes < 0:
            break
        count += 1
    return count
