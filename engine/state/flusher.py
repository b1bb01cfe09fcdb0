"""The thread that brings the state to the file: a boundary each period, sooner when memory fills or a read asks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

import structlog

from engine.clock import Clock
from engine.config import StateLimits
from engine.errors import StorageError
from engine.state.state import State
from engine.state.store import TryAgain

_log = structlog.get_logger(__name__)

_POLL_S: Final = 0.01
"""How soon to look again when a wanted index is not applied yet, or not synced by the own journal."""


class Flusher:
    """Writes boundaries. `on_stored` is told each stored index, `on_fatal` what the state cannot survive."""

    def __init__(
        self,
        state: State,
        clock: Clock,
        limits: StateLimits,
        on_stored: Callable[[int], None],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._state = state
        self._clock = clock
        self._limits = limits
        self._on_stored = on_stored
        self._on_fatal = on_fatal
        self._wake = threading.Condition()
        self._requests: list[tuple[int, Future[int]]] = []
        self._full = False
        self._stopping = False
        self._begun_s = clock.elapsed_s() - limits.boundary_period_s
        """When the last boundary began."""
        self._idle_until_s = 0.0
        self._held_up = False
        """The last attempt could not freeze or write what is wanted; the next one waits for `_idle_until_s`."""
        self._thread = threading.Thread(target=self._run, name="flusher", daemon=True)

    def start(self) -> None:
        """Begin; the state's `on_full` is set to wake this thread."""
        self._state.on_full = self._fill
        self._thread.start()

    def request(self, index: int) -> Future[int]:
        """A future of the stored index once it covers `index`.

        It asks for a boundary, at most one a period for all who ask; an index that was not applied yet waits for it.
        """
        future: Future[int] = Future()
        with self._wake:
            if self._stopping:
                future.set_exception(StorageError("the state is being closed"))
            elif index <= self._state.stored_index:
                future.set_result(self._state.stored_index)
            else:
                self._requests.append((index, future))
                self._wake.notify_all()
        return future

    def stop(self) -> None:
        """Write a last boundary, as far as the journal is synced, and end the thread."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        if self._thread.ident is not None:
            self._thread.join()
        self._state.on_full = None

    def _fill(self) -> None:
        with self._wake:
            if not self._full:
                self._full = True
                self._wake.notify_all()

    def _run(self) -> None:
        try:
            while self._wait():
                self._write()
            self._write()
        except BaseException as error:
            _log.error("The state cannot be written.", action="state_boundary_failed", error=str(error))
            self._fail(error)
            self._on_fatal(error)
        else:
            self._fail(StorageError("the state was closed before this index was stored"))

    def _wait(self) -> bool:
        """Wait until a boundary is to be tried; False when stopping."""
        with self._wake:
            while not self._stopping:
                asked = self._full or bool(self._requests)
                due_s = self._begun_s + (0.0 if self._full else self._limits.boundary_period_s)
                due_s = max(due_s, self._idle_until_s if not asked or self._held_up else 0.0)
                remaining_s = due_s - self._clock.elapsed_s()
                if remaining_s <= 0:
                    return True
                self._clock.wait(self._wake, remaining_s)
        return False

    def _write(self) -> None:
        """One boundary, if there is anything to store and the journal has synced it."""
        now_s = self._clock.elapsed_s()
        if not self._state.freeze():
            behind = self._state.applied_index > self._state.stored_index
            self._rest(now_s, held_up=behind or bool(self._requests))
            return
        with self._wake:
            self._full = False
        try:
            index = self._state.write_frozen()
            self._begun_s, self._held_up, self._idle_until_s = now_s, False, 0.0
        except TryAgain as error:
            _log.warning(
                "The state could not be written for now and is kept in memory.",
                action="state_boundary_postponed",
                error=str(error),
            )
            self._held_up, self._idle_until_s = True, now_s + self._limits.boundary_retry_s
            return
        self._on_stored(index)
        self._answer(index)
        self._state.tidy()

    def _rest(self, now_s: float, *, held_up: bool) -> None:
        """Nothing could be frozen: look again in a period, or soon if somebody waits for it."""
        self._held_up = held_up
        self._idle_until_s = now_s + (_POLL_S if held_up else self._limits.boundary_period_s)

    def _answer(self, index: int) -> None:
        with self._wake:
            ready = [future for wanted, future in self._requests if wanted <= index]
            self._requests = [request for request in self._requests if request[0] > index]
        for future in ready:
            future.set_result(index)

    def _fail(self, error: BaseException) -> None:
        with self._wake:
            self._stopping = True
            waiting, self._requests = self._requests, []
        for _, future in waiting:
            future.set_exception(error)
