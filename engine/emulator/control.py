"""The control service: what a test in another process asks of the server, as JSON over one unary gRPC method.

Request `{"call": name, "args": {…}}`, answer `{"result": …}`; an unknown call or bad arguments are INVALID_ARGUMENT.
It is on the same port as the Pub/Sub services, so whoever can publish can inject faults: this server is for
development and never for the open network.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import grpc

from engine.emulator import limits
from engine.emulator.errors import invalid

CONTROL_METHOD = "/emulator.Control/Call"


class Control:
    """The calls, by name."""

    def __init__(self, calls: dict[str, Callable[..., Any]]) -> None:
        self._calls = calls

    def answer(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Run one call."""
        if len(request) > limits.CONTROL_BYTES_MAX:
            raise invalid(f"A control call takes at most {limits.CONTROL_BYTES_MAX} bytes.")
        try:
            document = json.loads(request)
            call = self._calls[document["call"]]
            result = call(**document.get("args", {}))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise invalid(f"Control call refused: {type(error).__name__}: {error}") from error
        return json.dumps({"result": result}).encode()
