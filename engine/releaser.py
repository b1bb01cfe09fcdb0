"""The releasing flow: due → publish → confirm, for all channels. Runs only on the leader.

One thread looks after every lane: it takes what is due, prepares requests, hands them to the sinks (which answer in
gRPC's threads) and proposes Confirms. A message leaves the state only by its Confirm, so a crash in between repeats at
most what was in flight.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import structlog

from engine.clock import Clock, wait_until
from engine.commands import Fault
from engine.config import FlowLimits, PubSubLimits
from engine.lane import Batch, Lane
from engine.metrics import Metrics
from engine.model import Channel, Cluster
from engine.outbound import Outbound
from engine.pickup import Pickup, Rows
from engine.proposals import Proposals
from engine.pubsub.errors import Failure, FailureKind, classify
from engine.pubsub.sink import Sink
from engine.pubsub.wire import publish_request
from engine.punctuality import note_release
from engine.state.rows import ORDERING_KEY, REVISION

log = structlog.get_logger(__name__)

_ORDERING_KEY = itemgetter(ORDERING_KEY)

UNPUBLISHABLE = "UNPUBLISHABLE"
TOO_LARGE = "TOO_LARGE"
ATTEMPTS_EXHAUSTED = "ATTEMPTS_EXHAUSTED"


class LaneStatus(NamedTuple):
    """What a lane shows of itself."""

    in_flight: int
    failure: Failure | None
    failing_since_ms: int | None
    head_ms: int | None
    """Earliest due that waits in memory."""
    lateness: dict[str, float] | None


class _Completion(NamedTuple):
    lane: Lane
    batch: Batch
    error: BaseException | None


class Releaser:
    """Publishes what is due on every lane until it is stopped."""

    def __init__(
        self,
        rows: Rows,
        *,
        submit: Callable[[bytes], Future[Any]],
        stamp: Callable[[], int],
        cluster: Cluster,
        may_release: Callable[[], bool],
        clock: Clock,
        flow: FlowLimits,
        pubsub: PubSubLimits,
        metrics: Metrics,
        rng: random.Random,
    ) -> None:
        self._cluster = cluster
        self._may_release = may_release
        self._clock = clock
        self._flow = flow
        self._pubsub = pubsub
        self._metrics = metrics
        self._rng = rng
        self._wake = threading.Condition()
        self._pickup = Pickup(rows, self._wake)
        self._proposals = Proposals(self._wake, submit=submit, stamp=stamp, clock=clock, flow=flow)
        self._lanes: dict[int, Lane] = {}
        self._outbound: dict[int, Outbound] = {}
        self._completions: deque[_Completion] = deque()
        self._stopping = False
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="releaser", daemon=True)

    # ---- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to look after the lanes."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Take nothing more, wait for what is in flight and its Confirms; False when that took too long."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
            settled = wait_until(self._clock, self._wake, self._settled, timeout_s)
            self._ended = True
            self._wake.notify_all()
        for lane in self._lanes.values():
            lane.sink.cancel_all()
        self._thread.join()
        for lane in self._lanes.values():
            lane.sink.close()
        return settled

    def _settled(self) -> bool:
        return not any(lane.sending or lane.confirms or lane.confirming for lane in self._lanes.values())

    # ---- lanes -------------------------------------------------------------------------------------------------------

    def add(self, channel: Channel, sink: Sink, bound: int) -> None:
        """Begin to release a channel; slots below `bound` are loaded by the horizon from now on."""
        with self._wake:
            self._outbound[channel.uid] = Outbound(self._cluster, channel, self._pubsub)
            self._lanes[channel.uid] = Lane(channel, sink, bound)
            self._wake.notify_all()

    def update(self, channel: Channel, sink: Sink | None) -> Sink | None:
        """Take a changed channel and, if given, a new sink; the former sink is answered, to be closed."""
        with self._wake:
            lane = self._lanes[channel.uid]
            lane.channel = channel
            former = None
            if sink is not None:
                former, lane.sink = lane.sink, sink
            lane.failure = None
            lane.backoff_s = 0.0
            for batch in lane.outbox:
                batch.due_at_s = 0.0
            self._wake.notify_all()
            return former

    def remove(self, uid: int, timeout_s: float) -> bool:
        """Stop a lane, wait for its calls and Confirms, forget it; False when that took too long."""
        with self._wake:
            lane = self._lanes[uid]
            lane.closed = True
            self._wake.notify_all()
            settled = wait_until(
                self._clock, self._wake, lambda: not (lane.sending or lane.confirms or lane.confirming), timeout_s
            )
            del self._lanes[uid]
            del self._outbound[uid]
        lane.sink.cancel_all()
        lane.sink.close()
        return settled

    def status(self, uid: int) -> LaneStatus | None:
        """What a lane shows of itself; None for a channel without one."""
        with self._wake:
            lane = self._lanes.get(uid)
            if lane is None:
                return None
            return LaneStatus(
                len(lane.in_flight),
                lane.failure,
                lane.failing_since_ms,
                lane.head_ms(),
                lane.lateness.summary(self._clock.elapsed_s()),
            )

    def in_flight(self, uid: int) -> list[int]:
        """Seqs taken from the timeline and not yet confirmed."""
        with self._wake:
            lane = self._lanes.get(uid)
            return sorted(lane.in_flight) if lane is not None else []

    def offer(self, uid: int, seqs: Sequence[int], dues_ms: Sequence[int]) -> None:
        """Newly accepted messages, told by the state in its own thread."""
        with self._wake:
            lane = self._lanes.get(uid)
            if lane is None:
                return
            earliest_ms = lane.offer(seqs, dues_ms, self._clock.now_ms(), self._flow)
            if earliest_ms is not None and earliest_ms < self._planned_ms:
                self._wake.notify_all()

    def behind(self, uid: int) -> bool:
        """Whether a channel has so much to release that it should accept nothing more meanwhile."""
        with self._wake:
            lane = self._lanes.get(uid)
            return lane is not None and lane.behind(self._clock.now_ms(), self._flow)

    def load(self, uid: int, dues_ms: Any, seqs: Any) -> None:
        """Messages of a slot that the horizon has read."""
        with self._wake:
            lane = self._lanes.get(uid)
            if lane is not None:
                lane.timeline.load(dues_ms, seqs)
                self._wake.notify_all()

    def bound(self, uid: int, bound: int) -> int | None:
        """Raise a lane's bound and answer the former one; None for a channel without a lane."""
        with self._wake:
            lane = self._lanes.get(uid)
            if lane is None:
                return None
            former, lane.bound = lane.bound, max(lane.bound, bound)
            return former

    # ---- the loop ----------------------------------------------------------------------------------------------------

    _planned_ms: float = 0.0
    """Wall time at which the thread will look again by itself; an earlier due wakes it."""

    def _run(self) -> None:
        while True:
            with self._wake:
                jobs = self._collect()
                if not jobs:
                    if self._ended:
                        return
                    wait_ms = self._wait_ms()
                    self._planned_ms = self._clock.now_ms() + wait_ms
                    self._clock.wait(self._wake, wait_ms / 1000)
                    self._planned_ms = 0.0
                    continue
            for lane, batch in jobs:
                if batch.taken:
                    self._sort(lane, batch)
                else:
                    self._send(lane, batch)

    def _wait_ms(self) -> float:
        """Until the next thing happens by itself; at most a second, so that a step of the wall clock is noticed."""
        now_ms, elapsed_s = self._clock.now_ms(), self._clock.elapsed_s()
        wait_ms = 1000.0
        if self._stopping:
            return wait_ms
        for lane in self._lanes.values():
            next_ms = lane.next_ms(now_ms, elapsed_s, self._flow)
            if next_ms is not None and next_ms < wait_ms:
                wait_ms = next_ms
        return wait_ms

    def _collect(self) -> list[tuple[Lane, Batch]]:
        """Settle what came back, propose Confirms, and pick what can be done now. Holds the lock."""
        while self._completions:
            self._complete(self._completions.popleft())
        elapsed_s, now_ms = self._clock.elapsed_s(), self._clock.now_ms()
        jobs: list[tuple[Lane, Batch]] = []
        for lane in self._lanes.values():
            self._proposals.confirm(lane, elapsed_s)
            if self._stopping:
                continue
            while (batch := lane.wants(elapsed_s, self._flow)) is not None:
                lane.sending += 1
                jobs.append((lane, batch))
            if lane.may_take(self._flow):
                seqs = lane.take(now_ms, self._flow.publish_batch_messages)
                if seqs:
                    jobs.append((lane, Batch(seqs, taken=True)))
        return jobs

    def _sort(self, lane: Lane, taken: Batch) -> None:
        """Read what was taken and split it by ordering key."""
        seqs, rows = self._pickup.read(lane, taken.seqs)
        if not any(map(_ORDERING_KEY, rows)):
            batches = [Batch(seqs, rows=rows)] if seqs else []
        else:
            by_key: dict[str, Batch] = {}
            for seq, row in zip(seqs, rows, strict=True):
                batch = by_key.setdefault(row[ORDERING_KEY], Batch([], row[ORDERING_KEY], rows=[]))
                batch.seqs.append(seq)
                assert batch.rows is not None
                batch.rows.append(row)
            batches = list(by_key.values())
        with self._wake:
            lane.outbox.extend(batch for batch in batches if not (batch.ordering_key and lane.park(batch)))

    # ---- publishing --------------------------------------------------------------------------------------------------

    def _send(self, lane: Lane, batch: Batch) -> None:
        if batch.rows is None:
            seqs, rows = self._pickup.read(lane, batch.seqs)
        else:
            seqs, rows = batch.seqs, batch.rows
        # The deadline is fixed first and the lease checked then: a pause in between counts against both.
        deadline_s = self._clock.elapsed_s() + self._pubsub.publish_deadline_s
        if not self._may_release():
            self._postpone(lane, batch)
            return
        released_ms = self._clock.now_ms()
        outbound = self._outbound[lane.channel.uid]
        prepared = outbound.prepare(lane.sink.topic, seqs, rows, released_ms)
        if prepared.dropped_attributes:
            self._metrics.dropped_attributes.labels(lane.channel.id).inc(prepared.dropped_attributes)
        rest, seqs, rows = seqs[prepared.taken :], seqs[: prepared.taken], rows[: prepared.taken]
        if rest or prepared.too_large:
            large = set(prepared.too_large)
            seqs, rows = (
                [s for s in seqs if s not in large],
                [r for s, r in zip(seqs, rows, strict=True) if s not in large],
            )
            with self._wake:
                lane.put_back(rest, batch.ordering_key)
                if large:
                    reason = "the message is too big for a Publish request, even without any scheduler- attribute"
                    self._proposals.set_aside(lane, prepared.too_large, Fault(TOO_LARGE, reason))
        batch.seqs = seqs
        batch.rows = None
        batch.revisions = {seq: row[REVISION] for seq, row in zip(seqs, rows, strict=True) if row[REVISION] != 1}
        if not seqs:
            self._finish(_Completion(lane, batch, None))
            return
        note_release(self._metrics, lane, rows, released_ms, self._clock.elapsed_s())
        request = publish_request(lane.sink.topic, prepared.messages)
        future = lane.sink.publish(request, len(seqs), deadline_s - self._clock.elapsed_s())
        future.add_done_callback(partial(self._published, lane, batch))

    def _postpone(self, lane: Lane, batch: Batch) -> None:
        """The lease does not cover a publish now: look again shortly."""
        with self._wake:
            lane.sending -= 1
            batch.rows = None
            batch.due_at_s = self._clock.elapsed_s() + self._flow.lease_retry_s
            lane.outbox.appendleft(batch)

    def _published(self, lane: Lane, batch: Batch, future: Future[list[str]]) -> None:
        """In a thread of gRPC: only note it."""
        error = future.exception() if not future.cancelled() else TimeoutError("the call was cancelled")
        self._finish(_Completion(lane, batch, error))

    def _finish(self, completion: _Completion) -> None:
        with self._wake:
            self._completions.append(completion)
            self._wake.notify_all()

    def _complete(self, completion: _Completion) -> None:
        lane, batch, error = completion
        lane.sending -= 1
        if error is None:
            self._recover(lane)
            if batch.seqs:
                lane.confirms.append(batch)
            lane.settle(batch, self._flow)
            return
        failure = classify(error, lane.sink.topic)
        self._metrics.publish_errors.labels(lane.channel.id, str(failure.kind)).inc()
        if failure.kind is FailureKind.MESSAGE:
            self._recover(lane)
            self._bisect(lane, batch, failure)
        else:
            self._back_off(lane, batch, failure)

    def _recover(self, lane: Lane) -> None:
        """The destination answers: what backed off goes at once."""
        if lane.failure is None:
            return
        log.info("publishing works again", action="publish_recovered", channel=lane.channel.id)
        lane.failure = None
        lane.failing_since_ms = None
        lane.backoff_s = 0.0
        for batch in lane.outbox:
            batch.due_at_s = 0.0

    def _bisect(self, lane: Lane, batch: Batch, failure: Failure) -> None:
        """One message spoils the request: halve it until it stands alone, then set it aside."""
        if len(batch.seqs) == 1:
            self._proposals.set_aside(lane, batch.seqs, Fault(UNPUBLISHABLE, failure.reason))
            lane.settle(batch, self._flow)
            return
        middle = len(batch.seqs) // 2
        lane.put_back(batch.seqs[middle:], batch.ordering_key)
        lane.outbox.appendleft(Batch(batch.seqs[:middle], batch.ordering_key, batch.attempts))

    def _back_off(self, lane: Lane, batch: Batch, failure: Failure) -> None:
        retry = lane.channel.policy.retry
        batch.attempts += 1
        if lane.failure is None or lane.failure.code != failure.code:
            log.warning(
                "publishing fails; it is tried again",
                action="publish_failed",
                channel=lane.channel.id,
                kind=str(failure.kind),
                reason=failure.reason,
            )
        if lane.failing_since_ms is None:
            lane.failing_since_ms = self._clock.now_ms()
        lane.failure = failure
        if retry.attempts is not None and batch.attempts >= retry.attempts:
            reason = f"refused {batch.attempts} times, at last: {failure.reason}"
            self._proposals.set_aside(lane, batch.seqs, Fault(ATTEMPTS_EXHAUSTED, reason))
            lane.settle(batch, self._flow)
            return
        lane.backoff_s = min(max(lane.backoff_s * 2, retry.min_backoff_ms / 1000), retry.max_backoff_ms / 1000)
        batch.due_at_s = self._clock.elapsed_s() + lane.backoff_s * self._rng.uniform(0.75, 1.0)
        lane.outbox.appendleft(batch)
