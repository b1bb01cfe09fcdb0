"""What a failed call means, by code and, where a code stands for two things, by text."""

from __future__ import annotations

import json
from concurrent.futures import CancelledError

import grpc
import pytest
from google.auth import exceptions as auth

from engine.pubsub.errors import FailureKind, KeyFileError, NotConnected, classify

TOPIC = "projects/demo/topics/orders"
SUBSCRIPTION = "projects/demo/subscriptions/worker"
CODE = grpc.StatusCode


class Status(grpc.RpcError):
    """The error of a call that ended with a status."""

    def __init__(self, code: grpc.StatusCode, details: str = "") -> None:
        super().__init__(code, details)
        self._code, self._details = code, details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (CODE.UNAVAILABLE, FailureKind.TRANSIENT),
        (CODE.DEADLINE_EXCEEDED, FailureKind.TRANSIENT),
        (CODE.INTERNAL, FailureKind.TRANSIENT),
        (CODE.ABORTED, FailureKind.TRANSIENT),
        (CODE.UNKNOWN, FailureKind.TRANSIENT),
        (CODE.CANCELLED, FailureKind.TRANSIENT),
        (CODE.RESOURCE_EXHAUSTED, FailureKind.TRANSIENT),
        (CODE.NOT_FOUND, FailureKind.CHANNEL),
        (CODE.PERMISSION_DENIED, FailureKind.CHANNEL),
        (CODE.UNAUTHENTICATED, FailureKind.CHANNEL),
        (CODE.UNIMPLEMENTED, FailureKind.CHANNEL),
        (CODE.FAILED_PRECONDITION, FailureKind.CHANNEL),
        (CODE.INVALID_ARGUMENT, FailureKind.MESSAGE),
    ],
)
def test_a_status_code_decides_what_to_do(code, kind):
    failure = classify(Status(code, "said so"), TOPIC)
    assert (failure.kind, failure.code) == (kind, code.name)
    assert "said so" in failure.reason
    assert TOPIC in failure.reason


@pytest.mark.parametrize(
    ("code", "details", "kind"),
    [
        (
            CODE.FAILED_PRECONDITION,
            "In a single publish request, all messages must have no ordering key or they must all have the same "
            "ordering key. [code=539b]",
            FailureKind.MESSAGE,
        ),
        (CODE.FAILED_PRECONDITION, "The Cloud KMS key is not accessible.", FailureKind.CHANNEL),
        (CODE.INVALID_ARGUMENT, "Invalid [topics] name: (name=projects/x/topics/y)", FailureKind.CHANNEL),
        (
            CODE.INVALID_ARGUMENT,
            "You have passed an invalid argument to the service (argument=topic).",
            FailureKind.CHANNEL,
        ),
        (
            CODE.INVALID_ARGUMENT,
            "The value for 10159812 is too large. You passed request_size in the request, but the maximum value is "
            "10000000.",
            FailureKind.MESSAGE,
        ),
    ],
)
def test_where_one_code_means_two_things_the_text_decides(code, details, kind):
    assert classify(Status(code, details), TOPIC).kind is kind


@pytest.mark.parametrize(
    ("details", "kind"),
    [
        ("('invalid_grant: Invalid JWT Signature.', {'error': 'invalid_grant'})", FailureKind.CHANNEL),
        ("Account has been deleted", FailureKind.CHANNEL),
        ("HTTPSConnectionPool(host='oauth2.googleapis.com'): Max retries exceeded", FailureKind.TRANSIENT),
        ("('Unable to acquire impersonated credentials', '503 Service Unavailable')", FailureKind.TRANSIENT),
    ],
)
def test_credentials_hide_behind_unavailable(details, kind):
    error = Status(CODE.UNAVAILABLE, f"Getting metadata from plugin failed with error: {details}")
    failure = classify(error, SUBSCRIPTION)
    assert (failure.kind, failure.code) == (kind, "CREDENTIALS")


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (KeyFileError("The key file x is missing."), FailureKind.CHANNEL, "KEY_FILE"),
        (NotConnected(), FailureKind.TRANSIENT, "CLOSED"),
        (ValueError("Cannot invoke RPC on closed channel!"), FailureKind.TRANSIENT, "CLOSED"),
        (CancelledError(), FailureKind.TRANSIENT, "CLOSED"),
        (grpc.FutureCancelledError(), FailureKind.TRANSIENT, "CLOSED"),
        (grpc.FutureTimeoutError(), FailureKind.TRANSIENT, "DEADLINE_EXCEEDED"),
        (TimeoutError(), FailureKind.TRANSIENT, "DEADLINE_EXCEEDED"),
        (auth.TransportError("no route"), FailureKind.TRANSIENT, "DEADLINE_EXCEEDED"),
        (auth.RefreshError("invalid_grant: expired"), FailureKind.CHANNEL, "CREDENTIALS"),
        (auth.RefreshError("no answer", retryable=True), FailureKind.TRANSIENT, "CREDENTIALS"),
        (auth.DefaultCredentialsError("not found"), FailureKind.CHANNEL, "CREDENTIALS"),
        (auth.MalformedError("no client_email"), FailureKind.CHANNEL, "CREDENTIALS"),
        (FileNotFoundError("key.json"), FailureKind.CHANNEL, "CREDENTIALS"),
        (json.JSONDecodeError("bad", "{", 0), FailureKind.CHANNEL, "CREDENTIALS"),
        (RuntimeError("surprise"), FailureKind.TRANSIENT, "UNKNOWN"),
    ],
)
def test_other_errors_have_their_place_too(error, kind, code):
    failure = classify(error, SUBSCRIPTION)
    assert (failure.kind, failure.code) == (kind, code)
    assert failure.reason.endswith((".", ")", "!"))


def test_reasons_name_the_right_role_and_field():
    assert "roles/pubsub.publisher" in classify(Status(CODE.PERMISSION_DENIED), TOPIC).reason
    assert "roles/pubsub.subscriber" in classify(Status(CODE.PERMISSION_DENIED), SUBSCRIPTION).reason
    assert "topic_id" in classify(Status(CODE.NOT_FOUND), TOPIC).reason
    assert "subscription_id" in classify(Status(CODE.NOT_FOUND), SUBSCRIPTION).reason


def test_a_long_text_of_the_service_is_cut_to_one_short_line():
    reason = classify(Status(CODE.INTERNAL, "line\n" * 10_000), TOPIC).reason
    assert "\n" not in reason
    assert len(reason) < 600
