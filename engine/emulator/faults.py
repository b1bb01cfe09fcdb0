"""Faults on demand: calls that are refused, delayed, dropped or poisoned, for tests of what a client does then.

A fault names a method (`Publish`, `Acknowledge`, `StreamingPull`, … or `*`), and optionally the resource and a
message attribute that a call must have to meet it. It lets `skip` such calls pass, then strikes `times` times (None:
always). With `after` it strikes when the call has taken effect, as if its answer was lost. A StreamingPull meets
faults when it opens.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc

from engine.emulator import limits
from engine.emulator.errors import Refused, unavailable
from engine.emulator.publishing import PUBLISH_REQUEST
from engine.emulator.wire import resource_of

Unary = Callable[[bytes, grpc.ServicerContext], bytes]


@dataclass(slots=True, kw_only=True, eq=False)
class Fault:
    """One rule and how often it has struck."""

    method: str
    refused: Refused | None
    """The status to answer; None lets the call go on once its delay is over."""
    delay_s: float = 0.0
    resource: str | None = None
    attribute: str | None = None
    value: str | None = None
    after: bool = False
    skip: int = 0
    times: int | None = 1
    hits: int = 0
    held: set[threading.Event] = field(default_factory=set)
    """Calls that wait; set when the fault is lifted."""


class Faults:
    """The faults of one server. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: dict[int, Fault] = {}
        self._ids = itertools.count(1)
        self._end_streams: Callable[[Refused, str], int] = lambda why, subscription: 0
        self._stall: Callable[[str], None] = lambda subscription: None
        self._resume: Callable[[], None] = lambda: None
        self.active = False
        """Whether there is any fault: the one look that a call costs when there is none."""

    def bind_streams(
        self, end: Callable[[Refused, str], int], stall: Callable[[str], None], resume: Callable[[], None]
    ) -> None:
        """Give the faults hold of the open streams."""
        self._end_streams, self._stall, self._resume = end, stall, resume

    # What tests ask for

    def fail(self, method: str, code: str = "UNAVAILABLE", text: str = "injected fault", **selection: Any) -> int:
        """Answer calls with a status. `selection`: times, skip, resource, attribute, value, after.

        Returns the fault's id.
        """
        return self._add(Fault(method=method, refused=Refused(_code(code), text), **selection))

    def refuse(self, code: str = "UNAVAILABLE", text: str = "injected fault: all calls are refused") -> int:
        """Answer every call with a status until cleared, as if the server was down."""
        return self.fail("*", code, text, times=None)

    def poison(self, attribute: str, value: str | None = None, text: str = "injected fault: poison") -> int:
        """Refuse with INVALID_ARGUMENT every Publish that has a message with the attribute (and value)."""
        return self.fail("Publish", "INVALID_ARGUMENT", text, attribute=attribute, value=value, times=None)

    def delay(self, method: str, delay_s: float, **selection: Any) -> int:
        """Let calls wait `delay_s` real seconds, before they take effect or `after`."""
        return self._add(Fault(method=method, refused=None, delay_s=delay_s, **selection))

    def drop(self, method: str, **selection: Any) -> int:
        """Never answer; a call ends when its client gives up, or UNAVAILABLE when the fault is cleared."""
        return self._add(Fault(method=method, refused=unavailable(), delay_s=limits.CALL_HOLD_S_MAX, **selection))

    def end_streams(self, code: str = "", text: str = "", subscription: str = "") -> int:
        """End all open streams now (of one subscription, if named), UNAVAILABLE unless told otherwise.

        Returns how many.
        """
        why = Refused(_code(code), text or "injected fault") if code else unavailable()
        return self._end_streams(why, subscription)

    def stall_streams(self, subscription: str = "") -> None:
        """Streams stay open and deliver nothing, without a word, until resumed."""
        self._stall(subscription)

    def resume_streams(self) -> None:
        """End all stalls."""
        self._resume()

    def clear(self, fault: int | None = None) -> None:
        """Lift one fault, or all of them and every stall; calls that they hold go on."""
        with self._lock:
            ids = list(self._faults) if fault is None else [fault]
            for lifted in (self._faults.pop(number, None) for number in ids):
                for held in lifted.held if lifted is not None else ():
                    held.set()
            self.active = bool(self._faults)
        if fault is None:
            self._resume()

    def hits(self, fault: int) -> int:
        """How often a fault has struck; KeyError once it is cleared."""
        with self._lock:
            return self._faults[fault].hits

    # What calls meet

    def around(self, method: str, request: bytes, context: grpc.ServicerContext, answer: Unary) -> bytes:
        """Answer a unary call, with the fault it meets, if any."""
        fault = self._met(method, request)
        if fault is not None and not fault.after:
            self._strike(fault, context)
        response = answer(request, context)
        if fault is not None and fault.after:
            self._strike(fault, context)
        return response

    def before_stream(self, method: str, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """Let a stream that opens meet its fault; returns its requests, the first included."""
        first = next(requests, None)
        if first is None:
            return iter(())
        fault = self._met(method, first)
        if fault is not None:
            self._strike(fault, context)
        return itertools.chain([first], requests)

    def _add(self, fault: Fault) -> int:
        with self._lock:
            if len(self._faults) >= limits.FAULTS_MAX:
                raise ValueError(f"more than {limits.FAULTS_MAX} faults at once")
            number = next(self._ids)
            self._faults[number] = fault
            self.active = True
            return number

    def _met(self, method: str, request: bytes) -> Fault | None:
        with self._lock:
            for fault in self._faults.values():
                if fault.times is not None and fault.hits >= fault.times:
                    continue
                if not _fits(fault, method, request):
                    continue
                if fault.skip > 0:
                    fault.skip -= 1
                    continue
                fault.hits += 1
                return fault
        return None

    def _strike(self, fault: Fault, context: grpc.ServicerContext) -> None:
        if fault.delay_s:
            released = threading.Event()
            with self._lock:
                fault.held.add(released)
                lifted = fault not in self._faults.values()
            if not lifted and context.add_callback(released.set):
                released.wait(fault.delay_s)
            with self._lock:
                fault.held.discard(released)
        if fault.refused is not None:
            raise fault.refused


def _code(name: str) -> grpc.StatusCode:
    try:
        return grpc.StatusCode[name]
    except KeyError:
        names = ", ".join(code.name for code in grpc.StatusCode)
        raise ValueError(f"{name!r} is no gRPC status; there are {names}") from None


def _fits(fault: Fault, method: str, request: bytes) -> bool:
    if fault.method not in ("*", method):
        return False
    if fault.resource is not None and fault.resource != resource_of(request):
        return False
    if fault.attribute is None:
        return True
    if method != "Publish":
        return False
    messages = PUBLISH_REQUEST.FromString(request).messages
    return any(
        fault.attribute in message.attributes and fault.value in (None, message.attributes[fault.attribute])
        for message in messages
    )
