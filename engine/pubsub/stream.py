"""One StreamingPull call from its opening to its end: reading, heartbeats, watchdog."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any

from engine.clock import Clock
from engine.config import PubSubLimits
from engine.pubsub import schema
from engine.pubsub.connection import Connection


class Ending(StrEnum):
    """Why a stream was ended from this side."""

    ASKED = "asked"
    """Pause or stop."""
    RENEWED = "renewed"
    """The credentials changed."""
    SILENT = "silent"
    """Nothing came for as long as the watchdog waits."""


class Stream:
    """An open StreamingPull.

    Responses are read in the caller's thread; gRPC's thread for requests sends a heartbeat now and then and watches
    over the stream. A caller that takes long over a response is not mistaken for a silent service.
    """

    def __init__(
        self,
        connection: Connection,
        subscription: str,
        metadata: tuple[tuple[str, str], ...],
        limits: PubSubLimits,
        clock: Clock,
        *,
        confirm_s: float,
        on_confirmed: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._limits = limits
        self._clock = clock
        self._confirm_s = confirm_s
        self._on_confirmed = on_confirmed
        self._condition = threading.Condition()
        self._over = False
        self._reading = True
        self._quiet_since_s = clock.elapsed_s()
        self.opened_s = clock.elapsed_s()
        self.ending: Ending | None = None
        """Set when this side ended the stream."""
        self._first = schema.StreamingPullRequest(
            subscription=subscription,
            stream_ack_deadline_seconds=limits.ack_deadline_s,
            client_id=str(uuid.uuid4()),
            max_outstanding_messages=limits.stream_window_messages,
            max_outstanding_bytes=limits.stream_window_bytes,
        ).SerializeToString()
        self._call: Any = connection.stream("Subscriber/StreamingPull")(self._requests(), metadata=metadata)

    def responses(self) -> Iterator[bytes]:
        """Every response until the stream ends; raises the gRPC error that ended it, returns when it ended well."""
        try:
            for data in self._call:
                self._connection.answered()
                with self._condition:
                    self._reading = False
                yield data
                with self._condition:
                    self._reading = True
                    self._quiet_since_s = self._clock.elapsed_s()
        finally:
            self.end(Ending.ASKED)

    def end(self, ending: Ending) -> None:
        """End the stream from any thread; `responses` raises CANCELLED if it had not ended before."""
        with self._condition:
            if self._over:
                return
            self._over = True
            self.ending = ending
            self._condition.notify_all()
        self._call.cancel()

    def lived_s(self) -> float:
        """Seconds since the stream was opened."""
        return self._clock.elapsed_s() - self.opened_s

    def _requests(self) -> Iterator[bytes]:
        """In gRPC's thread: the first request, then heartbeats for as long as the stream lives."""
        yield self._first
        # Being asked for another request means that the first one was sent: a connection exists.
        if self._wait(self._confirm_s):
            return
        self._on_confirmed()
        beat_s = self._clock.elapsed_s()
        while not self._wait(min(self._limits.heartbeat_s, self._limits.key_file_poll_s)):
            if self._connection.renewed():
                self.end(Ending.RENEWED)
            elif self._quiet_s() >= self._limits.watchdog_s:
                if self._connection.silent_s() >= self._limits.watchdog_s:
                    self._connection.retire()
                self.end(Ending.SILENT)
            elif self._clock.elapsed_s() - beat_s >= self._limits.heartbeat_s:
                beat_s = self._clock.elapsed_s()
                yield b""

    def _quiet_s(self) -> float:
        """Seconds for which the service, being waited for, has sent nothing."""
        with self._condition:
            return self._clock.elapsed_s() - self._quiet_since_s if self._reading else 0.0

    def _wait(self, timeout_s: float) -> bool:
        """Wait; True when the stream is over."""
        deadline_s = self._clock.elapsed_s() + timeout_s
        with self._condition:
            while not self._over and (left_s := deadline_s - self._clock.elapsed_s()) > 0:
                self._clock.wait(self._condition, left_s)
            return self._over
