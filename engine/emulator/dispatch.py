"""From a gRPC call to the method that answers it.

Bytes in, bytes out, refusals as statuses, faults before and after.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import grpc

from engine.emulator.errors import Refused, unimplemented
from engine.emulator.faults import Faults
from engine.emulator.runtime import Runtime

logger = logging.getLogger(__name__)

Unary = Callable[[bytes, grpc.ServicerContext], bytes]
StreamStream = Callable[[Iterator[bytes], grpc.ServicerContext], Iterator[bytes]]

if TYPE_CHECKING:
    AnyHandler = grpc.RpcMethodHandler[Any, Any]
    AnyGenericHandler = grpc.GenericRpcHandler[Any, Any]
else:  # Generic only in the stubs.
    AnyHandler = grpc.RpcMethodHandler
    AnyGenericHandler = grpc.GenericRpcHandler

PUBSUB = "google.pubsub.v1"
NOT_HERE = {
    f"/{PUBSUB}.SchemaService/": "schemas",
    "/google.iam.v1.IAMPolicy/": "access control",
}
"""Services that clients know and this server has not."""


def _internal(method: str, error: Exception) -> Refused:
    logger.error(
        "A call failed by a fault of the local Pub/Sub: %s",
        "".join(traceback.format_exception(error)),
        extra={"action": "call_failed", "method": method},
    )
    return Refused(grpc.StatusCode.INTERNAL, "The local Pub/Sub met an internal error; see its log.")


def unary_handler(method: str, answer: Unary, faults: Faults, runtime: Runtime) -> AnyHandler:
    """A handler of one unary method."""

    name = f"calls.{method}"

    def handle(request: bytes, context: grpc.ServicerContext) -> bytes:
        with runtime.lock:
            runtime.counters[name] += 1
        try:
            if faults.active:
                return faults.around(method, request, context, answer)
            return answer(request, context)
        except Refused as refused:
            outcome = refused
        except Exception as error:
            if not context.is_active():
                raise
            outcome = _internal(method, error)
        outcome.abort(context)

    return grpc.unary_unary_rpc_method_handler(handle)


def stream_handler(method: str, answer: StreamStream, faults: Faults, runtime: Runtime) -> AnyHandler:
    """A handler of one bidirectional method; faults see the call when it opens."""

    name = f"calls.{method}"

    def handle(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        with runtime.lock:
            runtime.counters[name] += 1
        try:
            if faults.active:
                requests = faults.before_stream(method, requests, context)
            yield from answer(requests, context)
            return
        except Refused as refused:
            outcome = refused
        except grpc.RpcError:
            return
        except Exception as error:
            if not context.is_active():
                raise
            outcome = _internal(method, error)
        outcome.abort(context)

    return grpc.stream_stream_rpc_method_handler(handle)


class Dispatch(AnyGenericHandler):
    """All methods of the server, by full name. Without serializers, so handlers see bytes."""

    def __init__(self, handlers: Mapping[str, AnyHandler]) -> None:
        self._handlers = handlers

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> AnyHandler | None:
        """The handler of a call; services that are known and not here say so."""
        method = handler_call_details.method
        handler = self._handlers.get(method)
        if handler is not None:
            return handler
        for prefix, what in NOT_HERE.items():
            if method.startswith(prefix):
                return _refusing(unimplemented(f"{what} ({method})"))
        return None


def _refusing(refused: Refused) -> AnyHandler:
    def handle(request: bytes, context: grpc.ServicerContext) -> bytes:
        refused.abort(context)

    return grpc.unary_unary_rpc_method_handler(handle)
