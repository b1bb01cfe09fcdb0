"""Waking a thread that waits in a selector."""

from __future__ import annotations

import selectors
import socket


class Waker:
    """A pair of sockets of which the selector watches one; nothing happens before `open` and after `close`."""

    def __init__(self) -> None:
        self.watched: socket.socket | None = None
        self._other: socket.socket | None = None
        self._woken = False

    def open(self, selector: selectors.BaseSelector) -> None:
        """Let the selector watch."""
        self.watched, self._other = socket.socketpair()
        for end in (self.watched, self._other):
            end.setblocking(False)
        selector.register(self.watched, selectors.EVENT_READ)

    def wake(self) -> None:
        """End the present wait or the next one, from any thread; repeated calls cost nothing."""
        if self._woken or self._other is None:
            return
        self._woken = True
        try:
            self._other.send(b"w")
        except OSError:
            # It is full and wakes anyway, or it was closed by another thread and nobody waits any more.
            return

    def woken(self) -> None:
        """The wait has ended: the next `wake` counts again. Look for work only after this."""
        self._woken = False
        if self.watched is not None:
            self.watched.recv(4096)

    def close(self) -> None:
        """Give the sockets back."""
        for end in (self.watched, self._other):
            if end is not None:
                end.close()
        self.watched = self._other = None
