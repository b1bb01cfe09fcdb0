"""The client of the control service: the server's Python API, from another process."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any, Self

import grpc

from engine.emulator.control import CONTROL_METHOD

CALL_TIMEOUT_S = 10.0


class RemoteFaults:
    """`Faults` from afar; see there for the arguments."""

    def __init__(self, client: ControlClient) -> None:
        self._client = client

    def fail(self, method: str, code: str = "UNAVAILABLE", text: str = "injected fault", **selection: Any) -> int:
        """Answer calls with a status."""
        return int(self._client.call("fail", method=method, code=code, text=text, **selection))

    def refuse(self, code: str = "UNAVAILABLE", text: str = "injected fault: all calls are refused") -> int:
        """Answer every call with a status until cleared."""
        return int(self._client.call("refuse", code=code, text=text))

    def poison(self, attribute: str, value: str | None = None, text: str = "injected fault: poison") -> int:
        """Refuse every Publish that has a message with the attribute."""
        return int(self._client.call("poison", attribute=attribute, value=value, text=text))

    def delay(self, method: str, delay_s: float, **selection: Any) -> int:
        """Let calls wait."""
        return int(self._client.call("delay", method=method, delay_s=delay_s, **selection))

    def drop(self, method: str, **selection: Any) -> int:
        """Never answer."""
        return int(self._client.call("drop", method=method, **selection))

    def end_streams(self, code: str = "", text: str = "", subscription: str = "") -> int:
        """End open streams now; returns how many."""
        return int(self._client.call("end_streams", code=code, text=text, subscription=subscription))

    def stall_streams(self, subscription: str = "") -> None:
        """Streams stay open and deliver nothing."""
        self._client.call("stall_streams", subscription=subscription)

    def resume_streams(self) -> None:
        """End all stalls."""
        self._client.call("resume_streams")

    def clear(self, fault: int | None = None) -> None:
        """Lift one fault, or all of them and every stall."""
        self._client.call("clear", fault=fault)

    def hits(self, fault: int) -> int:
        """How often a fault has struck."""
        return int(self._client.call("hits", fault=fault))


class RemoteClock:
    """The server's clock; only one started with a manual clock can be moved."""

    def __init__(self, client: ControlClient) -> None:
        self._client = client

    def now_ns(self) -> int:
        """Nanoseconds since the epoch, by the server's clock."""
        return int(self._client.call("now_ns"))

    def advance(self, seconds: float) -> None:
        """Move the clock; returns when everything due has happened."""
        self._client.call("advance", seconds=seconds)


class ControlClient:
    """One channel to a running server's control service."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.faults = RemoteFaults(self)
        self.clock = RemoteClock(self)
        self._channel = grpc.insecure_channel(address)
        self._call: Any = self._channel.unary_unary(CONTROL_METHOD, request_serializer=None, response_deserializer=None)

    def call(self, call: str, **args: Any) -> Any:
        """Run one call by name; grpc.RpcError when the server refuses it or cannot be reached."""
        request = json.dumps({"call": call, "args": args}).encode()
        answer: bytes = self._call(request, timeout=CALL_TIMEOUT_S, wait_for_ready=True)
        return json.loads(answer)["result"]

    def counters(self) -> dict[str, int]:
        """Totals since the start, and what is held now."""
        counters: dict[str, int] = self.call("counters")
        return counters

    def create_topic(self, project: str, topic: str) -> str:
        """Create a topic unless it exists; returns its full name."""
        return str(self.call("create_topic", project=project, topic=topic))

    def create_subscription(self, project: str, subscription: str, topic: str, **options: Any) -> str:
        """Create a subscription unless it exists; `options` are fields of Subscription as JSON.

        Returns its full name.
        """
        return str(self.call("create_subscription", project=project, subscription=subscription, topic=topic, **options))

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
