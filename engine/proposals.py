"""What the releaser proposes to the log: Confirm for what was published, Quarantine for what cannot be.

All methods but `_removed` are called with the releaser's lock held.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import structlog

from engine.clock import Clock
from engine.commands import Confirm, Fault, Quarantine, Rejected, encode
from engine.config import FlowLimits
from engine.errors import RequestError, Unavailable
from engine.lane import Batch, Lane

log = structlog.get_logger(__name__)


class Proposals:
    """Takes messages out of the state, a few entries at a time."""

    def __init__(
        self,
        wake: threading.Condition,
        *,
        submit: Callable[[bytes], Future[Any]],
        stamp: Callable[[], int],
        clock: Clock,
        flow: FlowLimits,
    ) -> None:
        self._wake = wake
        self._submit = submit
        self._stamp = stamp
        self._clock = clock
        self._flow = flow

    def confirm(self, lane: Lane, elapsed_s: float) -> None:
        """Propose Confirms for what was published, while few are in flight; the rest gathers meanwhile."""
        while lane.confirms and lane.confirming < self._flow.confirms_in_flight_max:
            if elapsed_s < lane.confirm_hold_until_s:
                return
            batches: list[Batch] = []
            count = 0
            while lane.confirms and count < self._flow.confirm_messages_max:
                batches.append(lane.confirms.popleft())
                count += len(batches[-1].seqs)
            if not self._propose_confirm(lane, batches):
                lane.confirms.extendleft(reversed(batches))
                lane.confirm_hold_until_s = elapsed_s + self._flow.confirm_retry_s
                return

    def _propose_confirm(self, lane: Lane, batches: list[Batch]) -> bool:
        seqs = [seq for batch in batches for seq in batch.seqs]
        revisions = {seq: revision for batch in batches for seq, revision in batch.revisions.items()}
        command = Confirm(stamp_ms=self._stamp(), channel_uid=lane.channel.uid, seqs=seqs, revisions=revisions)
        try:
            future = self._submit(encode(command))
        except Unavailable as refusal:
            log.warning(
                "The log takes no Confirm at the moment.",
                action="confirm_refused",
                channel=lane.channel.id,
                reason=str(refusal),
            )
            return False
        lane.confirming += 1
        future.add_done_callback(partial(self._removed, lane, seqs, published=len(seqs)))
        return True

    def set_aside(self, lane: Lane, seqs: list[int], fault: Fault) -> None:
        """Propose that these messages go to the quarantine; when the log refuses, they are tried again."""
        command = Quarantine(stamp_ms=self._stamp(), channel_uid=lane.channel.uid, seqs=list(seqs), fault=fault)
        try:
            future = self._submit(encode(command))
        except Unavailable as refusal:
            log.warning(
                "Messages could not be set aside yet.",
                action="quarantine_refused",
                channel=lane.channel.id,
                reason=str(refusal),
            )
            lane.outbox.append(Batch(list(seqs), due_at_s=self._clock.elapsed_s() + self._flow.confirm_retry_s))
            return
        log.warning(
            "Messages were set aside.",
            action="quarantined",
            channel=lane.channel.id,
            code=fault.code,
            reason=fault.reason,
            messages=len(seqs),
        )
        lane.confirming += 1
        future.add_done_callback(partial(self._removed, lane, list(seqs)))

    def _removed(self, lane: Lane, seqs: list[int], future: Future[Any], *, published: int = 0) -> None:
        """In the log's thread: these messages are out of the state, so they are no longer in flight."""
        try:
            answer = future.result()
        except RequestError as error:
            answer = None
            log.warning(
                "Whether published messages were confirmed is unknown.",
                action="confirm_unknown",
                channel=lane.channel.id,
                reason=str(error),
                messages=len(seqs),
            )
        if isinstance(answer, Rejected):
            log.info(
                "A Confirm was not taken.",
                action="confirm_rejected",
                channel=lane.channel.id,
                reason=answer.detail,
            )
        with self._wake:
            lane.confirming -= 1
            lane.unconfirmed -= published
            lane.in_flight.difference_update(seqs)
            self._wake.notify_all()
