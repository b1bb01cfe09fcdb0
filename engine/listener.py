"""The receiving flow of one channel: pull → accept → ack. Runs only on the leader.

Responses arrive in the source's thread, are planned there (`intake`) and submitted as Accept entries at once while
fewer than K are in flight; meanwhile they gather. An entry's messages are acked only when it has committed and *its
own* result says that all of them are safe. What cannot be committed is not acked: Pub/Sub delivers it again, and the
duplicates are recognised.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from engine.clock import Clock, wait_until
from engine.commands import Accept, Accepted, Rejected, encode
from engine.config import FlowLimits, PubSubLimits
from engine.errors import RequestError, Unavailable
from engine.intake import merge_accepts, plan_accept
from engine.metrics import Metrics
from engine.model import Channel
from engine.pubsub.received import Received
from engine.pubsub.source import Source, SourceState

log = structlog.get_logger(__name__)

OpenSource = Callable[[Callable[[Received], None]], Source]


@dataclass(slots=True)
class _Batch:
    """Messages of one response (or a slice of it) on their way to the log."""

    accept: Accept
    ack_ids: list[str]
    size_bytes: int
    received_s: float
    extended_s: float


class Listener:
    """Receives for one channel until it is stopped."""

    def __init__(
        self,
        channel: Channel,
        open_source: OpenSource,
        *,
        submit: Callable[[bytes], Future[Any]],
        stamp: Callable[[], int],
        crowded: Callable[[], bool],
        clock: Clock,
        flow: FlowLimits,
        pubsub: PubSubLimits,
        metrics: Metrics,
    ) -> None:
        self._channel = channel
        self._submit = submit
        self._stamp = stamp
        self._crowded = crowded
        self._clock = clock
        self._flow = flow
        self._pubsub = pubsub
        self._metrics = metrics
        self._changed = threading.Condition()
        self._waiting: deque[_Batch] = deque()
        self._submitted: dict[int, _Batch] = {}
        """Batches whose entry is in flight, by id()."""
        self._in_flight = 0
        self._hold_until_s = 0.0
        self._hold_s = 0.0
        self._stuck = False
        self._stopping = False
        self._source = open_source(self._receive)

    def start(self) -> None:
        """Open the stream."""
        self._source.start()

    def update(self, channel: Channel) -> None:
        """Take a new policy; a new source needs a new listener."""
        self._channel = channel

    def state(self) -> SourceState:
        """What the source says of itself."""
        return self._source.status()

    def stop(self, timeout_s: float) -> None:
        """End the stream, wait for what is being committed, ack it, close; what was only gathered is given back."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        deadline_s = self._clock.elapsed_s() + timeout_s
        self._source.stop(timeout_s)
        with self._changed:
            returned = [ack_id for batch in self._waiting for ack_id in batch.ack_ids]
            self._waiting.clear()
            remaining_s = max(0.0, deadline_s - self._clock.elapsed_s())
            drained = wait_until(self._clock, self._changed, lambda: self._in_flight == 0, remaining_s)
        if not drained:
            log.warning(
                "Stopped with entries uncommitted; Pub/Sub will deliver their messages again.",
                action="listener_stop_undrained",
                channel=self._channel.id,
                entries=self._in_flight,
            )
        if returned:
            self._source.nack(returned)
        self._source.close(max(0.5, deadline_s - self._clock.elapsed_s()))

    def tend(self) -> None:
        """Called every second: extend leases, try again after a refusal, close the stream if nothing moves."""
        now_s = self._clock.elapsed_s()
        crowded = self._crowded()
        with self._changed:
            batches = [*self._submitted.values(), *self._waiting]
            due = [batch for batch in batches if now_s - batch.extended_s >= self._flow.lease_extend_s]
            for batch in due:
                batch.extended_s = now_s
            oldest_s = min((batch.received_s for batch in batches), default=now_s)
            begins = not self._stuck and now_s - oldest_s > self._flow.commit_patience_s
            ends = self._stuck and not batches and not crowded
            self._stuck = begins or (self._stuck and not ends)
            if self._stuck:
                self._waiting.clear()
                self._changed.notify_all()
        if begins:
            self._source.pause_stream()
            log.warning(
                "Messages could not be accepted for long: the stream is closed, they stay at the source.",
                action="listener_stuck",
                channel=self._channel.id,
                held_back=crowded,
            )
        elif ends and not self._stopping:
            self._source.resume_stream()
            log.info(
                "Messages are accepted again: the stream is open.", action="listener_unstuck", channel=self._channel.id
            )
        for batch in due:
            self._source.extend(batch.ack_ids, self._pubsub.ack_deadline_s)
        self._pump()

    def _receive(self, received: Received) -> None:
        """In the source's thread. Blocking here is back-pressure: the source reads no further."""
        now_s = self._clock.elapsed_s()
        batches = [self._plan(received, first, last, now_s) for first, last in self._slices(received)]
        with self._changed:
            if self._stopping:
                return
            self._waiting.extend(batches)
        self._pump()
        with self._changed:
            while not self._stopping and not self._stuck and self._holds_back():
                self._clock.wait(self._changed, self._flow.crowded_retry_s)
        self._pump()

    def _holds_back(self) -> bool:
        """Whether nothing more is to be read: it would not be accepted now, or a stream's worth waits already.

        The service counts what is outstanding for each stream by itself: while the log is slow, each new stream would
        bring as much again.
        """
        waiting = sum(batch.size_bytes for batch in self._waiting)
        return bool(self._waiting) and (waiting >= self._pubsub.stream_window_bytes or self._crowded())

    def _slices(self, received: Received) -> Iterator[tuple[int, int]]:
        """First and last (exclusive) of each part that one entry may hold: a response may be larger than any entry."""
        first = size = 0
        for position, payload in enumerate(received.payloads):
            size += len(payload)
            full = position - first >= self._flow.entry_messages_max or size > self._flow.entry_bytes_max
            if full and position > first:
                yield first, position
                first, size = position, len(payload)
        yield first, len(received.payloads)

    def _plan(self, received: Received, first: int, last: int, now_s: float) -> _Batch:
        part = slice(first, last)
        payloads = received.payloads[part]
        accept = plan_accept(
            self._channel,
            stamp_ms=self._stamp(),
            subscription=self._source.subscription,
            message_ids=received.message_ids[part],
            publish_us=received.publish_us[part],
            ordering_keys=received.ordering_keys[part],
            available_at=received.available_at[part],
            inputs=received.inputs[part],
            payloads=payloads,
            unreadable={
                position - first: reason for position, reason in received.faults.items() if first <= position < last
            },
        )
        return _Batch(accept, received.ack_ids[part], sum(map(len, payloads)), now_s, now_s)

    def _pump(self) -> None:
        """Submit while there is something to submit and room in flight; in whichever thread made that true."""
        while not self._crowded():
            with self._changed:
                if self._in_flight >= self._flow.accepts_in_flight_max or not self._waiting:
                    return
                if self._clock.elapsed_s() < self._hold_until_s:
                    return
                group = self._gather()
                self._in_flight += 1
                for batch in group:
                    self._submitted[id(batch)] = batch
            accept = merge_accepts([batch.accept for batch in group])
            try:
                future = self._submit(encode(accept))
            except Unavailable as refusal:
                self._hold(group, refusal)
                return
            future.add_done_callback(partial(self._committed, group))

    def _gather(self) -> list[_Batch]:
        group = [self._waiting.popleft()]
        count, size = len(group[0].ack_ids), group[0].size_bytes
        while self._waiting:
            following = self._waiting[0]
            count += len(following.ack_ids)
            size += following.size_bytes
            if count > self._flow.entry_messages_max or size > self._flow.entry_bytes_max:
                break
            group.append(self._waiting.popleft())
        return group

    def _hold(self, group: list[_Batch], refusal: Unavailable) -> None:
        """The log takes nothing now: keep the messages, try again later (`tend`)."""
        with self._changed:
            self._in_flight -= 1
            for batch in group:
                del self._submitted[id(batch)]
            self._waiting.extendleft(reversed(group))
            self._hold_s = min(max(self._hold_s * 2, self._pubsub.backoff_min_s), 5.0)
            self._hold_until_s = self._clock.elapsed_s() + self._hold_s
            self._changed.notify_all()
        log.warning(
            "The log accepts nothing at the moment.",
            action="accept_refused",
            channel=self._channel.id,
            reason=str(refusal),
        )

    def _committed(self, group: list[_Batch], future: Future[Any]) -> None:
        """In the log's thread: ack what is safe."""
        ack_ids = group[0].ack_ids if len(group) == 1 else [a for batch in group for a in batch.ack_ids]
        try:
            answer = future.result()
        except RequestError as error:
            log.warning(
                "An entry's outcome is unknown, its messages stay at the source.",
                action="accept_unknown",
                reason=str(error),
                channel=self._channel.id,
                messages=len(ack_ids),
            )
        else:
            if isinstance(answer, Accepted):
                self._source.ack(ack_ids)
            elif isinstance(answer, Rejected):
                log.info(
                    "Messages were not taken.",
                    action="accept_rejected",
                    channel=self._channel.id,
                    reason=answer.detail,
                    messages=len(ack_ids),
                )
        now_s = self._clock.elapsed_s()
        with self._changed:
            self._in_flight -= 1
            self._hold_s = 0.0
            for batch in group:
                self._submitted.pop(id(batch), None)
            self._changed.notify_all()
        ages = Counter[int]()
        for batch in group:
            ages[round((now_s - batch.received_s) * 1000)] += len(batch.ack_ids)
        self._metrics.accept.observe(self._channel.id, ages)
        self._pump()
