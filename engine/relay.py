"""What a leader does for its channels: starts and stops listeners and lanes as the channels say, and tends them.

`Relay` is made when leadership is gained and thrown away when it is lost. Channels change by commands in the log; the
state tells of it, and each channel is brought to its new shape in a small pool, so that one that hangs keeps nobody
else waiting.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from engine.clock import Clock, StepWatch
from engine.closing import finish_closing
from engine.commands import PauseChannel, encode
from engine.config import Limits
from engine.errors import SchedulerError
from engine.horizon import Horizon
from engine.listener import Listener
from engine.metrics import Metrics
from engine.model import Channel, Closing, Pause, Side
from engine.pubsub.connection import Connections
from engine.pubsub.received import Received
from engine.pubsub.sink import Sink
from engine.pubsub.source import Source, SourceState
from engine.releaser import LaneStatus, Releaser
from engine.state.rows import LOWEST_SLOT
from engine.state.state import State

log = structlog.get_logger(__name__)

Submit = Callable[[bytes], Future[Any]]


@dataclass(slots=True)
class Running:
    """What runs for one channel, and the configuration it was started with."""

    channel: Channel
    listener: Listener | None = None
    lane: bool = False


@dataclass(frozen=True, slots=True)
class ChannelStatus:
    """The live side of a channel on the leader."""

    source: SourceState | None
    lane: LaneStatus | None


class Relay:
    """Listeners and lanes of all channels, while this node leads."""

    def __init__(
        self,
        state: State,
        releaser: Releaser,
        connections: Connections,
        *,
        submit: Submit,
        stamp: Callable[[], int],
        clock: Clock,
        limits: Limits,
        metrics: Metrics,
        rng: random.Random,
        crowded: Callable[[], bool],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._state = state
        self._releaser = releaser
        self._connections = connections
        self._submit = submit
        self._stamp = stamp
        self._clock = clock
        self._limits = limits
        self._metrics = metrics
        self._rng = rng
        self._crowded = crowded
        self._on_fatal = on_fatal
        self._steps = StepWatch(clock)
        self._horizon = Horizon(state, releaser, clock=clock, flow=limits.flow, on_fatal=on_fatal)
        self._changed = threading.Condition()
        self._due: set[int] = set()
        """Uids of channels that must be looked at."""
        self._busy: set[int] = set()
        self._retry: set[int] = set()
        self._running: dict[int, Running] = {}
        self._stopping = False
        self._pool = ThreadPoolExecutor(limits.flow.transitions_max, thread_name_prefix="channel")
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)

    # ---- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin with every channel there is."""
        self._releaser.start()
        self._horizon.start()
        with self._changed:
            self._due.update(channel.uid for channel in self._state.channels())
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Stop listening everywhere, then finish and confirm what is in flight, then let go."""
        deadline_s = self._clock.elapsed_s() + timeout_s
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._stop_listeners(timeout_s / 2)
        self._horizon.stop()
        if not self._releaser.stop(max(0.5, deadline_s - self._clock.elapsed_s())):
            log.warning("Stopped with releases unconfirmed; they may be repeated.", action="release_stop_undrained")

    def _stop_listeners(self, timeout_s: float) -> None:
        """All at once: each waits for its own commits."""
        listeners = [running.listener for running in self._running.values() if running.listener is not None]
        threads = [threading.Thread(target=listener.stop, args=(timeout_s,)) for listener in listeners]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def look_at(self, uid: int) -> None:
        """A channel changed: bring it to its new shape soon. Called by the state, in the log's thread."""
        with self._changed:
            self._due.add(uid)
            self._changed.notify_all()

    def offer(self, uid: int, seqs: Sequence[int], dues_ms: Sequence[int]) -> None:
        """Newly accepted messages, told by the state in the log's thread."""
        self._releaser.offer(uid, seqs, dues_ms)

    def status(self, uid: int) -> ChannelStatus:
        """The live side of a channel."""
        with self._changed:
            running = self._running.get(uid)
            listener = running.listener if running is not None else None
        return ChannelStatus(listener.state() if listener is not None else None, self._releaser.status(uid))

    def in_flight(self, uid: int) -> list[int]:
        """Seqs that are handed to the publisher and not yet confirmed."""
        return self._releaser.in_flight(uid)

    # ---- the loop ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    if not self._stopping and not self._due - self._busy:
                        self._clock.wait(self._changed, self._limits.flow.tend_period_s)
                    if self._stopping:
                        return
                    ready = self._due - self._busy
                    self._due -= ready
                    self._busy |= ready
                for uid in ready:
                    self._pool.submit(self._transition, uid)
                self._tend()
        except BaseException as error:
            log.exception("Looking after the channels failed.", action="relay_failed")
            self._on_fatal(error)

    def _watch_clock(self) -> None:
        """A wall clock that jumps forward would release early; alone, a node can only say so."""
        step_ms = self._steps.step_ms()
        if abs(step_ms) < self._limits.flow.clock_step_ms:
            return
        if step_ms > 0:
            self._metrics.clock_steps.inc()
        log.error("The wall clock was set.", action="clock_step", step_ms=round(step_ms))
        self._horizon.look()

    def _tend(self) -> None:
        self._watch_clock()
        now_ms = self._clock.now_ms()
        with self._changed:
            listeners = [running.listener for running in self._running.values() if running.listener is not None]
            self._due |= self._retry
            self._retry.clear()
        for listener in listeners:
            listener.tend()
        for channel in self._state.channels():
            if channel.closing is not None or _expired(channel, now_ms):
                self.look_at(channel.uid)

    def _transition(self, uid: int) -> None:
        """In the pool: bring one channel to the shape that the state says."""
        try:
            self._reconcile(uid)
        except (SchedulerError, TimeoutError) as error:
            # The tending looks at closing and expired ones every second; what else failed comes again with it.
            log.warning("A channel could not be changed yet.", action="channel_retry", uid=uid, reason=repr(error))
            with self._changed:
                self._retry.add(uid)
        except BaseException as error:
            log.exception("A channel could not be changed.", action="channel_failed", uid=uid)
            self._on_fatal(error)
        finally:
            with self._changed:
                self._busy.discard(uid)
                self._changed.notify_all()

    def _reconcile(self, uid: int) -> None:
        channel = self._state.channel_by_uid(uid)
        with self._changed:
            running = self._running.get(uid)
        if running is None:
            if channel is None:
                return
            running = Running(channel)
            with self._changed:
                self._running[uid] = running
        if channel is not None:
            self._end_pauses(channel)
        self._reconcile_lane(running, channel)
        self._reconcile_listener(running, channel)
        if channel is None:
            with self._changed:
                del self._running[uid]
            self._metrics.forget(running.channel.id)
            return
        running.channel = channel
        if channel.closing is not None:
            finish_closing(
                self._state, channel, self._submit, self._stamp, self._limits.flow, stopping=lambda: self._stopping
            )

    def _end_pauses(self, channel: Channel) -> None:
        """A pause with an end has come to it; the change comes back as a changed channel."""
        now_ms = self._clock.now_ms()
        sides = ((Side.LISTEN, channel.paused_listen), (Side.RELEASE, channel.paused_release))
        ended = [(side, pause) for side, pause in sides if _over(pause, now_ms)]
        if not ended:
            return
        by = " and ".join(dict.fromkeys(pause.by for _, pause in ended if pause is not None))
        command = PauseChannel(
            stamp_ms=self._stamp(),
            actor=f"scheduler (paused by {by})",
            channel_uid=channel.uid,
            side=Side.BOTH if len(ended) > 1 else ended[0][0],
            pause=None,
            expected_revision=channel.revision,
        )
        self._submit(encode(command)).result(self._limits.flow.transition_timeout_s)

    def _reconcile_listener(self, running: Running, channel: Channel | None) -> None:
        wanted = channel is not None and channel.closing is None and channel.paused_listen is None
        listener = running.listener
        if listener is not None and (not wanted or channel is None or channel.source != running.channel.source):
            with self._changed:
                running.listener = None
            listener.stop(self._limits.flow.transition_timeout_s)
            listener = None
        if channel is None or not wanted:
            return
        if listener is not None:
            listener.update(channel)
            return
        listener = Listener(
            channel,
            partial(self._open_source, channel),
            submit=self._submit,
            stamp=self._stamp,
            crowded=partial(self._crowded_at, channel.uid),
            clock=self._clock,
            flow=self._limits.flow,
            pubsub=self._limits.pubsub,
            metrics=self._metrics,
        )
        listener.start()
        with self._changed:
            running.listener = listener

    def _crowded_at(self, uid: int) -> bool:
        """Nothing more is to be accepted for this channel now: no room, or releasing comes first."""
        return self._crowded() or self._releaser.behind(uid)

    def _open_source(self, channel: Channel, on_messages: Callable[[Received], None]) -> Source:
        return Source(
            channel.source.config,
            self._connections,
            self._limits.pubsub,
            self._clock,
            on_messages=on_messages,
            on_state=partial(self._note_source, channel),
            rng=self._rng,
        )

    def _note_source(self, channel: Channel, state: SourceState) -> None:
        log.info(
            "The source changed its state.",
            action="source_state",
            channel=channel.id,
            state=str(state.state),
            reason=state.reason,
        )

    def _reconcile_lane(self, running: Running, channel: Channel | None) -> None:
        uid = running.channel.uid
        wanted = channel is not None and channel.closing is not Closing.DISCARD
        if running.lane and not wanted:
            running.lane = False
            self._horizon.forget(uid)
            self._releaser.remove(uid, self._limits.flow.transition_timeout_s)
        if channel is None or not wanted:
            return
        if running.lane:
            moved = channel.destination != running.channel.destination
            former = self._releaser.update(channel, self._open_sink(channel) if moved else None)
            if former is not None:
                # Cancelled calls may have arrived all the same, and would then be in both topics.
                former.drain(self._limits.flow.transition_timeout_s)
                former.close()
            return
        self._releaser.add(channel, self._open_sink(channel), LOWEST_SLOT)
        self._horizon.watch(uid)
        running.lane = True

    def _open_sink(self, channel: Channel) -> Sink:
        return Sink(channel.destination.config, self._connections, self._limits.pubsub, self._clock)


def _expired(channel: Channel, now_ms: int) -> bool:
    """Whether one of the channel's pauses has reached its end."""
    return _over(channel.paused_listen, now_ms) or _over(channel.paused_release, now_ms)


def _over(pause: Pause | None, now_ms: int) -> bool:
    return pause is not None and pause.until_ms is not None and pause.until_ms <= now_ms
