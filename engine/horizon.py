"""Moves the near future into memory: which slots of the due index the lanes hold, and loading the next ones.

A lane's bound is raised first, so that whatever is accepted from then on goes into its timeline at once; only then are
the pinned memory tables and the file read. What is seen twice is dropped when it is taken; nothing falls in between.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, Final, Protocol

import structlog

from engine.clock import Clock
from engine.config import FlowLimits
from engine.releaser import Releaser
from engine.state.rows import SLOT_BITS

log = structlog.get_logger(__name__)

SLOTS_AHEAD: Final = 2
"""The current slot and the next one are in memory: 17.5 to 35 minutes."""


class Slots(Protocol):
    """What the horizon needs of the state."""

    def next_slot(self, uid: int, from_slot: int) -> int | None: ...

    def window(self, uid: int, slot: int) -> Iterator[tuple[Any, Any]]: ...


class Horizon:
    """A thread that loads slots, channel by channel, so that a huge one does not keep the others waiting."""

    def __init__(
        self,
        slots: Slots,
        releaser: Releaser,
        *,
        clock: Clock,
        flow: FlowLimits,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._slots = slots
        self._releaser = releaser
        self._clock = clock
        self._flow = flow
        self._on_fatal = on_fatal
        self._changed = threading.Condition()
        self._uids: set[int] = set()
        self._loading: dict[int, Iterator[tuple[Any, Any]]] = {}
        self._hurried = False
        """Look once more before resting: the clock was set, or a lane is new, though its channel may not be."""
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="horizon", daemon=True)

    def start(self) -> None:
        """Begin to load."""
        self._thread.start()

    def stop(self) -> None:
        """End after the chunk in hand."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()

    def watch(self, uid: int) -> None:
        """Load this channel's near future, now and from now on."""
        with self._changed:
            self._uids.add(uid)
            self._hurried = True
            self._changed.notify_all()

    def look(self) -> None:
        """The wall clock was set: look now which slots are near."""
        with self._changed:
            self._hurried = True
            self._changed.notify_all()

    def forget(self, uid: int) -> None:
        """The channel has no lane any more."""
        with self._changed:
            self._uids.discard(uid)

    def _run(self) -> None:
        try:
            while not self._stopping:
                uids = self._raise_bounds()
                self._load_round()
                with self._changed:
                    idle = not self._loading and self._uids == uids and not self._hurried
                    self._hurried = False
                    if idle and not self._stopping:
                        self._clock.wait(self._changed, self._flow.horizon_period_s)
        except BaseException as error:
            log.exception("Loading the near future failed.", action="horizon_failed")
            self._on_fatal(error)

    def _raise_bounds(self) -> set[int]:
        """Queue what each lane whose bound had to move now lacks; answer the channels that were looked at."""
        target = (self._clock.now_ms() >> SLOT_BITS) + SLOTS_AHEAD
        with self._changed:
            uids = set(self._uids)
        for uid in uids:
            former = self._releaser.bound(uid, target)
            if former is not None and former < target:
                unfinished = self._loading.get(uid, iter(()))
                self._loading[uid] = chain(unfinished, self._chunks(uid, former, target))
        return uids

    def _load_round(self) -> None:
        """One chunk of every channel that is being loaded."""
        for uid, chunks in list(self._loading.items()):
            chunk = next(chunks, None)
            if chunk is None:
                del self._loading[uid]
            else:
                self._releaser.load(uid, *chunk)

    def _chunks(self, uid: int, first: int, target: int) -> Iterator[tuple[Any, Any]]:
        slot = self._slots.next_slot(uid, first)
        while slot is not None and slot < target:
            yield from self._slots.window(uid, slot)
            slot = self._slots.next_slot(uid, slot + 1)
