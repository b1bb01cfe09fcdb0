"""What becomes of messages after a Publish call: confirmed, halved until the bad one is found, or tried again later.

All methods are called with the releaser's lock held.
"""

from __future__ import annotations

import random

import structlog

from engine.clock import Clock
from engine.commands import Fault
from engine.config import FlowLimits
from engine.lane import Batch, Lane
from engine.metrics import Metrics
from engine.proposals import Proposals
from engine.pubsub.errors import Failure, FailureKind, classify

log = structlog.get_logger(__name__)

UNPUBLISHABLE = "UNPUBLISHABLE"
ATTEMPTS_EXHAUSTED = "ATTEMPTS_EXHAUSTED"


class Outcomes:
    """Puts each batch where it belongs next."""

    def __init__(
        self, proposals: Proposals, *, clock: Clock, flow: FlowLimits, metrics: Metrics, rng: random.Random
    ) -> None:
        self._proposals = proposals
        self._clock = clock
        self._flow = flow
        self._metrics = metrics
        self._rng = rng

    def settle(self, lane: Lane, batch: Batch, topic: str, error: BaseException | None) -> None:
        """A call to `topic` has its answer."""
        if error is None:
            self._recover(lane)
            if batch.seqs:
                lane.confirms.append(batch)
                lane.unconfirmed += len(batch.seqs)
            lane.settle(batch, self._flow)
            return
        failure = classify(error, topic)
        self._metrics.publish_errors.labels(lane.channel.id, str(failure.kind)).inc()
        if failure.kind is FailureKind.MESSAGE:
            self._recover(lane)
            self._bisect(lane, batch, failure)
            return
        batch.attempts += 1
        self._show(lane, failure)
        pause_until_s = self._pause_until_s(lane)
        attempts_max = lane.channel.policy.retry.attempts
        if attempts_max is not None and batch.attempts >= attempts_max:
            lane.rest_until_s = pause_until_s
            reason = f"refused {batch.attempts} times, at last: {failure.reason}"
            self._proposals.set_aside(lane, batch.seqs, Fault(ATTEMPTS_EXHAUSTED, reason))
            lane.settle(batch, self._flow)
            return
        batch.due_at_s = pause_until_s
        lane.outbox.appendleft(batch)

    def stumble(self, lane: Lane, batch: Batch, error: Exception) -> None:
        """This node failed before the service was asked: try again later, without counting an attempt."""
        log.error(
            "Messages could not be prepared for publishing.",
            action="release_stumbled",
            channel=lane.channel.id,
            messages=len(batch.seqs),
            exc_info=error,
        )
        self._metrics.publish_errors.labels(lane.channel.id, "internal").inc()
        reason = f"Due messages could not be prepared ({type(error).__name__}: {error}); it is tried again."
        self._show(lane, Failure(kind=FailureKind.TRANSIENT, code="INTERNAL", reason=reason))
        batch.due_at_s = self._pause_until_s(lane)
        lane.outbox.appendleft(batch)

    def _recover(self, lane: Lane) -> None:
        """The destination answers: what backed off goes at once."""
        if lane.failure is None:
            return
        log.info("Publishing works again.", action="publish_recovered", channel=lane.channel.id)
        lane.forgive()

    def _bisect(self, lane: Lane, batch: Batch, failure: Failure) -> None:
        """One message spoils the request: halve it until it stands alone, then set it aside."""
        if len(batch.seqs) == 1:
            self._proposals.set_aside(lane, batch.seqs, Fault(UNPUBLISHABLE, failure.reason))
            lane.settle(batch, self._flow)
            return
        middle = len(batch.seqs) // 2
        lane.put_back(batch.seqs[middle:], batch.ordering_key)
        lane.outbox.appendleft(Batch(batch.seqs[:middle], batch.ordering_key, batch.attempts))

    def _show(self, lane: Lane, failure: Failure) -> None:
        if lane.failure is None or lane.failure.code != failure.code:
            log.warning(
                "Publishing fails; it is tried again.",
                action="publish_failed",
                channel=lane.channel.id,
                kind=str(failure.kind),
                reason=failure.reason,
            )
        if lane.failing_since_ms is None:
            lane.failing_since_ms = self._clock.now_ms()
        lane.failure = failure

    def _pause_until_s(self, lane: Lane) -> float:
        """Until when the lane backs off now: longer from one failure to the next."""
        retry = lane.channel.policy.retry
        lane.backoff_s = min(max(lane.backoff_s * 2, retry.min_backoff_ms / 1000), retry.max_backoff_ms / 1000)
        return self._clock.elapsed_s() + lane.backoff_s * self._rng.uniform(0.75, 1.0)
