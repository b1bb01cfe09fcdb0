"""How the local Pub/Sub says no: one exception that carries a gRPC status, and the service's own sentences.

The texts are the ones that the service was seen to answer, so that what is tested here meets the strings of production.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

ERROR_DOMAIN = "pubsub.googleapis.com"


class Refused(Exception):
    """A call is answered with this status instead of a response."""

    def __init__(self, code: grpc.StatusCode, text: str, failures: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.failures = failures

    def abort(self, context: grpc.ServicerContext) -> NoReturn:
        """End the call with this status; per-id failures travel as google.rpc.ErrorInfo in the status details."""
        if self.failures is not None:
            info = error_details_pb2.ErrorInfo(
                reason="EXACTLY_ONCE_ACKID_FAILURE", domain=ERROR_DOMAIN, metadata=self.failures
            )
            detail = any_pb2.Any()
            detail.Pack(info)
            status = status_pb2.Status(code=self.code.value[0], message=self.text, details=[detail])
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        context.abort(self.code, self.text)
        raise AssertionError("abort returned")


def invalid(text: str) -> Refused:
    """INVALID_ARGUMENT."""
    return Refused(grpc.StatusCode.INVALID_ARGUMENT, text)


def bad_argument(argument: str) -> Refused:
    """INVALID_ARGUMENT in the service's general form."""
    return invalid(f"You have passed an invalid argument to the service (argument={argument}).")


def too_small(argument: str, value: int, minimum: int) -> Refused:
    """INVALID_ARGUMENT for a number below its range."""
    return invalid(
        f"The value for {argument} is too small. You passed {value} in the request, but the minimum value is {minimum}."
    )


def too_large(argument: str, value: int, maximum: int) -> Refused:
    """INVALID_ARGUMENT for a number above its range; the service swaps name and value in this one."""
    return invalid(
        f"The value for {value} is too large. You passed {argument} in the request, but the maximum value is {maximum}."
    )


def not_found(resource: str) -> Refused:
    """NOT_FOUND; the service names the resource by its last part."""
    return Refused(
        grpc.StatusCode.NOT_FOUND, f"Resource not found (resource={resource.rpartition('/')[2] or resource})."
    )


def already_exists(resource: str) -> Refused:
    """ALREADY_EXISTS; the service names the resource by its last part."""
    return Refused(
        grpc.StatusCode.ALREADY_EXISTS,
        f"Resource already exists in the project (resource={resource.rpartition('/')[2]}).",
    )


def failed_precondition(text: str) -> Refused:
    """FAILED_PRECONDITION."""
    return Refused(grpc.StatusCode.FAILED_PRECONDITION, text)


def unimplemented(what: str) -> Refused:
    """UNIMPLEMENTED, said aloud: what is not here is never answered with a false OK."""
    return Refused(grpc.StatusCode.UNIMPLEMENTED, f"The local Pub/Sub does not implement {what}.")


def unavailable() -> Refused:
    """UNAVAILABLE as the service says it when it ends a stream."""
    return Refused(
        grpc.StatusCode.UNAVAILABLE,
        "The service was unable to fulfill your request. Please try again. [code=8a75]",
    )


def exhausted(text: str) -> Refused:
    """RESOURCE_EXHAUSTED."""
    return Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
