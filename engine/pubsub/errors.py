"""What a failed call means for the relay: wait and repeat, the channel is wrong, or this message is wrong.

The table follows the service's documented codes and what its client library retries; texts are looked at only where
one code stands for two things (credentials behind UNAVAILABLE, resource names behind INVALID_ARGUMENT).
"""

from __future__ import annotations

import json
from concurrent.futures import CancelledError
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import grpc
from google.auth import exceptions as auth

from engine.errors import SchedulerError


class FailureKind(StrEnum):
    """What to do about a failure."""

    TRANSIENT = "transient"
    """Repeat with back-off; nothing is wrong with the channel or the message."""
    CHANNEL = "channel"
    """Nothing of this channel can pass until somebody repairs it: show the reason, repeat slowly."""
    MESSAGE = "message"
    """The service refuses this request: find the message that it refuses and set it aside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failed call, classified."""

    kind: FailureKind
    code: str
    """The status code's name, or CREDENTIALS, KEY_FILE, CLOSED."""
    reason: str
    """A sentence for people: what is wrong with which resource and what to do."""


class KeyFileError(SchedulerError):
    """A key file cannot be used; the text names the file, the fault and what to do."""


class NotConnected(SchedulerError):
    """The connection is being made or is closed; nothing was sent."""


_CHANNEL_CODES: Final = frozenset({"NOT_FOUND", "PERMISSION_DENIED", "UNAUTHENTICATED", "UNIMPLEMENTED"})
_DETAILS_MAX: Final = 300
_PLUGIN: Final = "Getting metadata from plugin failed"
# What the texts of a token refresh say when the network, not the key, is at fault.
_NETWORK_TEXTS: Final = (
    "Max retries exceeded",
    "Connection",
    "timed out",
    "Timeout",
    "resolve",
    "TransportError",
    "50",
)
_NAME_TEXTS: Final = (
    "resource name",
    "name: (name=",
    "argument=topic",
    "argument=subscription",
    "argument=name",
    "Invalid topic",
)


def classify(error: BaseException, resource: str) -> Failure:
    """Say what `error` means for `resource`, a full topic or subscription name."""
    if isinstance(error, KeyFileError):
        return Failure(kind=FailureKind.CHANNEL, code="KEY_FILE", reason=str(error))
    # gRPC raises a bare ValueError for a call on a channel that was closed meanwhile.
    closed = isinstance(error, ValueError) and "closed channel" in str(error)
    if closed or isinstance(error, NotConnected | CancelledError | grpc.FutureCancelledError):
        return Failure(kind=FailureKind.TRANSIENT, code="CLOSED", reason=f"The connection for {resource} is not open.")
    if isinstance(error, grpc.RpcError):
        return _classify_status(error, resource)
    if isinstance(error, TimeoutError | grpc.FutureTimeoutError | auth.TransportError | auth.TimeoutError):
        reason = f"No answer in time while working on {resource}: {_short(error)}"
        return Failure(kind=FailureKind.TRANSIENT, code="DEADLINE_EXCEEDED", reason=reason)
    if isinstance(error, auth.RefreshError):
        return _refresh_failure(str(error), resource, retryable=bool(getattr(error, "retryable", False)))
    if isinstance(
        error, FileNotFoundError | PermissionError | json.JSONDecodeError | auth.GoogleAuthError | ValueError
    ):
        reason = (
            f"The credentials for {resource} cannot be used: {_short(error)} Check key_file or the node's identity."
        )
        return Failure(kind=FailureKind.CHANNEL, code="CREDENTIALS", reason=reason)
    reason = f"An unexpected {type(error).__name__} while working on {resource}: {_short(error)}"
    return Failure(kind=FailureKind.TRANSIENT, code="UNKNOWN", reason=reason)


def _classify_status(error: grpc.RpcError, resource: str) -> Failure:
    """By the status of a call."""
    code = getattr(error, "code", lambda: None)()
    name = code.name if isinstance(code, grpc.StatusCode) else "UNKNOWN"
    details = str(getattr(error, "details", lambda: "")() or "")
    if _PLUGIN in details:
        return _refresh_failure(details.partition(_PLUGIN)[2], resource, retryable=False)
    kind = FailureKind.TRANSIENT
    if name in _CHANNEL_CODES:
        kind = FailureKind.CHANNEL
    elif name == "FAILED_PRECONDITION":
        kind = FailureKind.MESSAGE if "ordering key" in details else FailureKind.CHANNEL
    elif name == "INVALID_ARGUMENT":
        kind = FailureKind.CHANNEL if any(text in details for text in _NAME_TEXTS) else FailureKind.MESSAGE
    return Failure(kind=kind, code=name, reason=_reason(name, details, resource))


def _refresh_failure(text: str, resource: str, *, retryable: bool) -> Failure:
    """A token could not be had: a wrong key, or only the network."""
    refused = "invalid_grant" in text or "invalid_client" in text or "unauthorized_client" in text
    if not refused and (retryable or any(sign in text for sign in _NETWORK_TEXTS)):
        reason = f"No access token for {resource}: its endpoint does not answer ({_short(text)})."
        return Failure(kind=FailureKind.TRANSIENT, code="CREDENTIALS", reason=reason)
    reason = (
        f"The credentials for {resource} were refused ({_short(text)}). "
        "The key may be expired, revoked or of a deleted account: put a new one into key_file."
    )
    return Failure(kind=FailureKind.CHANNEL, code="CREDENTIALS", reason=reason)


def _reason(name: str, details: str, resource: str) -> str:
    """The sentence for a status."""
    is_topic = "/topics/" in resource
    said = f" The service says: {_short(details)}" if details else ""
    match name:
        case "NOT_FOUND":
            field = "topic_id" if is_topic else "subscription_id"
            return f"{resource} does not exist: create it, or correct the channel's project_id and {field}.{said}"
        case "PERMISSION_DENIED":
            role = "roles/pubsub.publisher" if is_topic else "roles/pubsub.subscriber"
            return f"No permission for {resource}: give the service account {role} on it.{said}"
        case "UNAUTHENTICATED":
            return f"The service does not accept the credentials for {resource}: check key_file.{said}"
        case "FAILED_PRECONDITION" if not is_topic:
            return f"{resource} cannot be pulled from (detached, or a push subscription): repair or replace it.{said}"
        case "UNIMPLEMENTED":
            return f"The server behind {resource} does not know this call: check the channel's endpoint.{said}"
        case "RESOURCE_EXHAUSTED":
            return f"A quota is used up for {resource}; the relay slows down and goes on.{said}"
        case "INVALID_ARGUMENT":
            return f"The service refuses the request to {resource}.{said}"
        case "UNAVAILABLE" | "DEADLINE_EXCEEDED":
            return f"The service cannot be reached for {resource}; the relay goes on trying.{said}"
        case _:
            return f"{name} from the service for {resource}; the relay goes on trying.{said}"


def _short(what: object) -> str:
    """One line of bounded length, ending like a sentence."""
    text = " ".join(str(what).split())[:_DETAILS_MAX] or type(what).__name__
    return text if text.endswith((".", ")", "!")) else f"{text}."
