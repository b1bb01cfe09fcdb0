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
from engine.outcomes import Outcomes
from engine.pickup import Pickup, Rows
from engine.proposals import Proposals
from engine.pubsub.errors import Failure
from engine.pubsub.sink import Sink
from engine.pubsub.wire import publish_request
from engine.punctuality import note_release
from engine.state.rows import DUE_MS, ORDERING_KEY, REVISION, Row

log = structlog.get_logger(__name__)

_ORDERING_KEY = itemgetter(ORDERING_KEY)
_DUE_MS = itemgetter(DUE_MS)

TOO_LARGE = "TOO_LARGE"


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
    topic: str
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
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._cluster = cluster
        self._may_release = may_release
        self._clock = clock
        self._flow = flow
        self._pubsub = pubsub
        self._metrics = metrics
        self._on_fatal = on_fatal
        self._wake = threading.Condition()
        self._pickup = Pickup(rows, self._wake, flow.pickup_bytes)
        self._proposals = Proposals(self._wake, submit=submit, stamp=stamp, clock=clock, flow=flow)
        self._outcomes = Outcomes(self._proposals, clock=clock, flow=flow, metrics=metrics, rng=rng)
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
            former = None
            if sink is not None:
                former, lane.sink = lane.sink, sink
            if sink is not None or channel != lane.channel:
                lane.channel = channel
                lane.forgive()
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
        try:
            self._loop()
        except BaseException as error:
            log.exception("Releasing failed.", action="releaser_failed")
            self._on_fatal(error)

    def _loop(self) -> None:
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
                try:
                    if batch.taken:
                        self._sort(lane, batch)
                    else:
                        self._send(lane, batch)
                except Exception as error:
                    # One channel must not stop the others, whatever is wrong with its messages or with reading them.
                    with self._wake:
                        lane.sending -= 1
                        self._outcomes.stumble(lane, batch, error)

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
            done = self._completions.popleft()
            done.lane.sending -= 1
            self._outcomes.settle(*done)
        elapsed_s, now_ms = self._clock.elapsed_s(), self._clock.now_ms()
        jobs: list[tuple[Lane, Batch]] = []
        for lane in self._lanes.values():
            self._proposals.confirm(lane, elapsed_s)
            if self._stopping:
                continue
            while (batch := lane.wants(elapsed_s, self._flow)) is not None:
                lane.sending += 1
                jobs.append((lane, batch))
            if lane.may_take(self._flow) and elapsed_s >= lane.rest_until_s:
                seqs = lane.take(now_ms, self._flow.publish_batch_messages)
                if seqs:
                    lane.sending += 1
                    jobs.append((lane, Batch(seqs, taken=True)))
        return jobs

    def _sort(self, lane: Lane, taken: Batch) -> None:
        """Read what was taken and split it by ordering key."""
        seqs, rows, rest = self._pickup.read(lane, taken.seqs)
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
            lane.sending -= 1
            lane.outbox.extend(batch for batch in batches if not (batch.ordering_key and lane.park(batch)))
            if rest:
                lane.outbox.append(Batch(rest, taken=True))

    # ---- publishing --------------------------------------------------------------------------------------------------

    def _send(self, lane: Lane, batch: Batch) -> None:
        sink = lane.sink  # An update may put another one in its place meanwhile.
        if batch.rows is None:
            batch.seqs, rows, rest = self._pickup.read(lane, batch.seqs)
            with self._wake:
                lane.put_back(rest, batch.ordering_key)
        else:
            rows = batch.rows
        # The deadline is fixed first and the lease checked then: a pause in between counts against both.
        deadline_s = self._clock.elapsed_s() + self._pubsub.publish_deadline_s
        if not self._may_release():
            self._postpone(lane, batch)
            return
        released_ms = self._clock.now_ms()
        if rows and max(map(_DUE_MS, rows)) > released_ms:
            rows = self._keep_early(lane, batch, rows, released_ms)
        prepared = self._outbound[lane.channel.uid].prepare(sink.topic, batch.seqs, rows, released_ms)
        if prepared.dropped_attributes:
            self._metrics.dropped_attributes.labels(lane.channel.id).inc(prepared.dropped_attributes)
        rest, large = batch.seqs[prepared.taken :], set(prepared.too_large)
        sent = [(s, r) for s, r in zip(batch.seqs[: prepared.taken], rows, strict=False) if s not in large]
        batch.seqs, batch.rows = [seq for seq, _ in sent], None
        batch.revisions = {seq: row[REVISION] for seq, row in sent if row[REVISION] != 1}
        if rest or large:
            with self._wake:
                lane.put_back(rest, batch.ordering_key)
                if large:
                    reason = "the message is too big for a Publish request, even without any scheduler- attribute"
                    self._proposals.set_aside(lane, prepared.too_large, Fault(TOO_LARGE, reason))
        if not sent:
            self._finish(_Completion(lane, batch, sink.topic, None))
            return
        note_release(self._metrics, lane, [row for _, row in sent], released_ms, self._clock.elapsed_s())
        request = publish_request(sink.topic, prepared.messages)
        future = sink.publish(request, len(sent), deadline_s - self._clock.elapsed_s())
        future.add_done_callback(partial(self._published, lane, batch, sink.topic))

    def _keep_early(self, lane: Lane, batch: Batch, rows: list[Row], now_ms: int) -> list[Row]:
        """The wall clock was set back since these were taken: what is not due by it waits again; the others' rows."""
        early = [(seq, row[DUE_MS]) for seq, row in zip(batch.seqs, rows, strict=True) if row[DUE_MS] > now_ms]
        due = [(seq, row) for seq, row in zip(batch.seqs, rows, strict=True) if row[DUE_MS] <= now_ms]
        with self._wake:
            lane.give_back([seq for seq, _ in early], [due_ms for _, due_ms in early])
        batch.seqs = [seq for seq, _ in due]
        return [row for _, row in due]

    def _postpone(self, lane: Lane, batch: Batch) -> None:
        """The lease does not cover a publish now: look again shortly."""
        with self._wake:
            lane.sending -= 1
            batch.rows = None
            batch.due_at_s = self._clock.elapsed_s() + self._flow.lease_retry_s
            lane.outbox.appendleft(batch)

    def _published(self, lane: Lane, batch: Batch, topic: str, future: Future[list[str]]) -> None:
        """In a thread of gRPC: only note it."""
        error = future.exception() if not future.cancelled() else TimeoutError("the call was cancelled")
        self._finish(_Completion(lane, batch, topic, error))

    def _finish(self, completion: _Completion) -> None:
        with self._wake:
            self._completions.append(completion)
            self._wake.notify_all()
