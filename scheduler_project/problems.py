"""Errors as RFC 9457 problem documents: one table from what can go wrong to what the caller is told."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import structlog
from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import DatabaseError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.template.response import TemplateResponse
from rest_framework import exceptions as drf

from engine import errors
from engine.errors import FieldError, RequestError

log = structlog.get_logger(__name__)
CONTENT_TYPE: Final = "application/problem+json"
_DETAIL_MAX: Final = 2000
"""Characters: a sentence may repeat what was sent, but not megabytes of it."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of the table."""

    status: int
    type: str
    reason: str


_ENGINE: Final[dict[type[RequestError], Kind]] = {
    errors.InvalidCommand: Kind(400, "invalid", "INVALID"),
    errors.Unauthenticated: Kind(401, "unauthenticated", "UNAUTHENTICATED"),
    errors.Forbidden: Kind(403, "forbidden", "FORBIDDEN"),
    errors.NotFound: Kind(404, "not-found", "NOT_FOUND"),
    errors.Conflict: Kind(409, "conflict", "CONFLICT"),
    errors.RevisionMismatch: Kind(412, "revision-mismatch", "REVISION_MISMATCH"),
    errors.LimitExceeded: Kind(413, "limit-exceeded", "LIMIT_EXCEEDED"),
    errors.Unavailable: Kind(503, "unavailable", "UNAVAILABLE"),
    errors.NoLeader: Kind(503, "no-leader", "NO_LEADER"),
    errors.QueueFull: Kind(503, "queue-full", "QUEUE_FULL"),
    errors.TimedOutBeforeSubmit: Kind(503, "timed-out", "TIMED_OUT_BEFORE_SUBMIT"),
    errors.OutcomeUnknown: Kind(504, "outcome-unknown", "OUTCOME_UNKNOWN"),
}
_FRAMEWORK: Final[tuple[tuple[type[Exception], Kind], ...]] = (
    (drf.ParseError, Kind(400, "malformed", "MALFORMED")),
    (drf.ValidationError, Kind(400, "invalid", "INVALID")),
    (drf.NotAuthenticated, _ENGINE[errors.Unauthenticated]),
    (drf.AuthenticationFailed, _ENGINE[errors.Unauthenticated]),
    (drf.PermissionDenied, _ENGINE[errors.Forbidden]),
    (PermissionDenied, _ENGINE[errors.Forbidden]),
    (drf.NotFound, _ENGINE[errors.NotFound]),
    (Http404, _ENGINE[errors.NotFound]),
    (drf.MethodNotAllowed, Kind(405, "method-not-allowed", "METHOD_NOT_ALLOWED")),
    (drf.NotAcceptable, Kind(406, "not-acceptable", "NOT_ACCEPTABLE")),
    (drf.UnsupportedMediaType, Kind(415, "unsupported-media-type", "UNSUPPORTED_MEDIA_TYPE")),
    (RequestDataTooBig, _ENGINE[errors.LimitExceeded]),
    (SuspiciousOperation, Kind(400, "malformed", "MALFORMED")),
    (DatabaseError, Kind(503, "unavailable", "STATE_UNAVAILABLE")),
)
_INTERNAL: Final = Kind(500, "internal", "INTERNAL")
_KEY_REUSED: Final = "IDEMPOTENCY_KEY_REUSED"


def problem(
    kind: Kind,
    detail: str,
    *,
    errors: Iterable[FieldError] = (),
    headers: Mapping[str, str] | None = None,
    extra: Mapping[str, Any] | None = None,
) -> HttpResponse:
    """A problem document as a response; the title is the status's own phrase."""
    document: dict[str, Any] = {
        "type": kind.type,
        "title": HTTPStatus(kind.status).phrase,
        "status": kind.status,
        "detail": detail[:_DETAIL_MAX],
        "reason": kind.reason,
    }
    faults = [{"pointer": fault.pointer[:_DETAIL_MAX], "detail": fault.detail[:_DETAIL_MAX]} for fault in errors]
    if faults:
        document["errors"] = faults
    document.update(extra or {})
    response = JsonResponse(document, status=kind.status, content_type=CONTENT_TYPE, headers=headers)
    # Django would log every refusal as a warning of ours; what is our fault is logged here.
    response._has_been_logged = True  # type: ignore[attr-defined]
    return response


def from_error(error: Exception, extra: Mapping[str, Any] | None = None) -> HttpResponse:
    """The problem document of an exception; what the table does not know is logged and answered 500.

    `extra` are members of the document besides the standard ones.
    """
    if isinstance(error, RequestError):
        return _from_engine(error, extra)
    for known, kind in _FRAMEWORK:
        if isinstance(error, known):
            return _from_framework(error, kind)
    log.error("A request failed.", action="request_failed", exc_info=error)
    return problem(_INTERNAL, "The server failed at this request; its log says why.")


def _from_engine(error: RequestError, extra: Mapping[str, Any] | None) -> HttpResponse:
    kind = _ENGINE[type(error)]
    status = kind.status
    if isinstance(error, errors.InvalidCommand) and error.code == _KEY_REUSED:
        status = 422
    if isinstance(error, errors.LimitExceeded) and error.retry_after_s is not None:
        status = 429
    headers = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(max(math.ceil(error.retry_after_s), 1))
    if isinstance(error, errors.Unauthenticated):
        headers["WWW-Authenticate"] = "Bearer"
    return problem(Kind(status, kind.type, error.code), error.detail, errors=error.errors, headers=headers, extra=extra)


def _from_framework(error: Exception, kind: Kind) -> HttpResponse:
    headers = {}
    if kind.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, DatabaseError):
        log.warning("State.db cannot be read.", action="state_unavailable", reason=str(error))
        headers["Retry-After"] = "1"
        if "interrupted" in str(error):
            kind = Kind(503, "unavailable", "READ_TIMEOUT")
            return problem(kind, "Reading took too long and was stopped: narrow the filters.", headers=headers)
        return problem(kind, f"This node's state cannot be read: {error}.", headers=headers)
    return problem(kind, _detail(error), headers=headers)


def _detail(error: Exception) -> str:
    if isinstance(error, Http404):
        return "Nothing is here."
    if isinstance(error, drf.UnsupportedMediaType):
        return f"{error.detail} Send application/json."
    if isinstance(error, drf.APIException):
        return str(error.detail)
    return str(error) or "The request was refused."


def exception_handler(error: Exception, _context: Mapping[str, Any]) -> HttpResponse:
    """What the REST views answer to an exception."""
    return from_error(error)


def admin_page(request: HttpRequest, error: Exception) -> HttpResponse:
    """The same for a person: a page of the admin."""
    answered = from_error(error)
    document = json.loads(answered.content)
    context = {"title": document["title"], "detail": document["detail"], "status": document["status"]}
    headers = {name: value for name, value in answered.items() if name == "Retry-After"}
    response = TemplateResponse(request, "admin/problem.html", context, status=answered.status_code, headers=headers)
    response._has_been_logged = True  # type: ignore[attr-defined]
    return response.render()


def respond(request: HttpRequest, error: Exception) -> HttpResponse:
    """A page below the admin, a problem document everywhere else."""
    return admin_page(request, error) if request.path.startswith("/admin/") else from_error(error)


# ---- Django's own error pages ----------------------------------------------------------------------------------------


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Any path that nobody serves."""
    return respond(request, Http404())


def bad_request(_request: HttpRequest, exception: Exception) -> HttpResponse:
    """A request refused before a view saw it."""
    return from_error(exception if isinstance(exception, SuspiciousOperation) else SuspiciousOperation(str(exception)))


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    """A view's refusal."""
    return respond(request, exception if isinstance(exception, PermissionDenied) else PermissionDenied())


def server_error(_request: HttpRequest) -> HttpResponse:
    """A failure outside the REST views; Django has logged it."""
    return problem(_INTERNAL, "The server failed at this request; its log says why.")
