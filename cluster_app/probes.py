"""Probes and metrics: plain text, quick, and never dependent on a channel.

`/livez` says whether this process's loops move, `/readyz` whether this node can take calls. A probe answers any host
name and asks for no credential (`scheduler_project.edge`, `scheduler_project.auth`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from django.db import DatabaseError, connections
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from engine.errors import RequestError
from scheduler_project.client import get_client, get_health_client
from scheduler_project.problems import from_error

_LINES: Final = {"ok": "[+]{name} ok", "warn": "[!]{name} warn: {detail}", "fail": "[-]{name} failed: {detail}"}
Check = Mapping[str, Any]
_tables_seen = False


@require_safe
def livez(_request: HttpRequest) -> HttpResponse:
    """Alive: 503 means that only a restart helps."""
    return _answer(_engine_checks("live"))


@require_safe
def readyz(_request: HttpRequest) -> HttpResponse:
    """Ready: 503 means that callers should go to another node for now."""
    return _answer([*_engine_checks("ready"), _state_check(), _tables_check()])


@require_safe
def metrics(_request: HttpRequest) -> HttpResponse:
    """The engine's figures in the Prometheus text format."""
    try:
        figures = get_client().metrics()
    except RequestError as error:
        return from_error(error)
    return HttpResponse(figures, content_type="text/plain; version=0.0.4; charset=utf-8")


def _engine_checks(group: str) -> list[Check]:
    try:
        checks: list[Check] = get_health_client().health()[group]
    except RequestError as error:
        return [{"name": "engine", "status": "fail", "detail": error.detail}]
    return checks


def _state_check() -> Check:
    try:
        with connections["state"].cursor() as cursor:
            cursor.execute("SELECT value FROM meta WHERE name = 'applied_index'")
            cursor.fetchone()
    except DatabaseError as error:
        return {"name": "state.db", "status": "fail", "detail": str(error)}
    return {"name": "state.db", "status": "ok", "detail": ""}


def _tables_check() -> Check:
    """Django's own tables, which the node makes while the web side loads; once there, they stay."""
    global _tables_seen
    if not _tables_seen:
        try:
            _tables_seen = "auth_user" in connections["default"].introspection.table_names()
        except DatabaseError as error:
            return {"name": "tables", "status": "fail", "detail": str(error)}
    detail = "" if _tables_seen else "Django's own tables are not made yet"
    return {"name": "tables", "status": "ok" if _tables_seen else "fail", "detail": detail}


def _answer(checks: Iterable[Check]) -> HttpResponse:
    checks = list(checks)
    lines = [
        _LINES[check["status"]].format(name=check["name"], detail=" ".join(str(check["detail"]).split()))
        for check in checks
    ]
    failed = any(check["status"] == "fail" for check in checks)
    response = HttpResponse("\n".join(lines) + "\n", status=503 if failed else 200, content_type="text/plain")
    response.headers["Cache-Control"] = "no-store"
    # A probe's 503 is an answer, not an error of ours to be logged each time.
    response._has_been_logged = True  # type: ignore[attr-defined]
    return response
