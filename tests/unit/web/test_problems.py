"""Errors as problem documents."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.db import OperationalError
from django.http import Http404
from rest_framework import exceptions as drf

from engine import errors
from engine.errors import FieldError, RequestError
from scheduler_project.problems import from_error


def document(error: Exception) -> dict[str, Any]:
    response = from_error(error)
    assert response.headers["Content-Type"] == "application/problem+json"
    body: dict[str, Any] = json.loads(response.content)
    assert body["status"] == response.status_code
    assert set(body) >= {"type", "title", "status", "detail", "reason"}
    assert body["reason"] == body["reason"].upper()
    return body


def kinds(base: type[RequestError]) -> list[type[RequestError]]:
    below = [kind for direct in base.__subclasses__() for kind in (direct, *kinds(direct))]
    return sorted(set(below), key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", kinds(RequestError))
def test_every_error_of_the_engine_has_a_document(kind: type[RequestError]) -> None:
    body = document(kind("a sentence"))
    assert body["status"] != 500
    assert body["detail"] == "a sentence"
    assert body["reason"] == kind.reason


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.InvalidCommand("x"), 400),
        (errors.InvalidCommand("x", reason="IDEMPOTENCY_KEY_REUSED"), 422),
        (errors.NotFound("x"), 404),
        (errors.Conflict("x", reason="CHANNEL_EXISTS"), 409),
        (errors.RevisionMismatch("x"), 412),
        (errors.LimitExceeded("x"), 413),
        (errors.NoLeader("x"), 503),
        (errors.OutcomeUnknown("x"), 504),
        (drf.ParseError("x"), 400),
        (drf.MethodNotAllowed("PUT"), 405),
        (drf.UnsupportedMediaType("text/plain"), 415),
        (Http404(), 404),
        (PermissionDenied(), 403),
        (SuspiciousOperation("x"), 400),
        (OperationalError("unable to open database file"), 503),
        (RuntimeError("a fault of ours"), 500),
    ],
)
def test_the_table_gives_each_error_its_status(error: Exception, status: int) -> None:
    assert document(error)["status"] == status


def test_what_is_worth_a_retry_says_when() -> None:
    assert from_error(errors.NoLeader("x", retry_after_s=1.2)).headers["Retry-After"] == "2"
    assert from_error(errors.QueueFull("x", retry_after_s=0.1)).headers["Retry-After"] == "1"
    assert "Retry-After" not in from_error(errors.Conflict("x")).headers


def test_an_unknown_outcome_has_a_type_of_its_own() -> None:
    assert document(errors.OutcomeUnknown("x"))["type"] == "outcome-unknown"


def test_faults_of_fields_are_listed() -> None:
    error = errors.InvalidCommand("two", errors=(FieldError("/a", "one"), FieldError("/b", "other")))
    assert document(error)["errors"] == [{"pointer": "/a", "detail": "one"}, {"pointer": "/b", "detail": "other"}]


def test_a_refused_credential_names_the_scheme() -> None:
    assert from_error(errors.Unauthenticated("x")).headers["WWW-Authenticate"] == "Bearer"
    assert from_error(drf.NotAuthenticated()).headers["WWW-Authenticate"] == "Bearer"


def test_a_fault_of_ours_tells_the_caller_nothing_of_its_inside() -> None:
    assert "secret detail" not in json.dumps(document(RuntimeError("secret detail")))


def test_a_reader_that_took_too_long_is_told_to_narrow_its_filters() -> None:
    assert document(OperationalError("interrupted"))["reason"] == "READ_TIMEOUT"


def test_a_sentence_does_not_repeat_megabytes_of_what_was_sent() -> None:
    assert len(document(errors.InvalidCommand("x" * 1_000_000))["detail"]) < 10_000
