"""Who calls, and what they may do: decided once for each request, before any view sees it.

A bearer token or an admin session names the caller. Without any token configured, callers on this machine have all
rights; with one, everything but the probes, the static files and the admin (which has its own login) needs a
credential.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from rest_framework.authentication import BaseAuthentication, CSRFCheck
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from engine.errors import Forbidden, RequestError, Unauthenticated
from scheduler_project.accounts import Role, Tokens
from scheduler_project.env import is_loopback
from scheduler_project.problems import from_error, respond

OPEN_PATHS: Final = ("/livez", "/livez/", "/readyz", "/readyz/", "/", "/admin", "/favicon.ico")
OPEN_PREFIXES: Final = ("/admin/", "/static/")
FORWARDED: Final = "event_scheduler.forwarded"
"""Set in META when a request came through a proxy that is not trusted (`scheduler_project.edge`)."""


class By(StrEnum):
    """How a caller is known."""

    TOKEN = "token"  # noqa: S105
    SESSION = "session"
    ADDRESS = "address"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who calls."""

    name: str
    role: Role
    by: By

    @property
    def is_authenticated(self) -> bool:
        """A caller is always known: this class stands in for Django's user in the REST views."""
        return True


@lru_cache(maxsize=1)
def tokens() -> Tokens:
    """The accepted tokens."""
    return Tokens(os.environ)


def user_role(user: Any) -> Role | None:
    """The role of an admin login; None for someone who may not enter."""
    if not (user.is_active and user.is_staff):
        return None
    if user.is_superuser:
        return Role.ADMIN
    groups = set(user.groups.values_list("name", flat=True))
    return Role.OPERATOR if Role.OPERATOR.name.lower() in groups else Role.VIEWER


def identify(request: HttpRequest) -> Caller:
    """The caller of a request; Unauthenticated when there is no credential that counts."""
    scheme, _, value = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
    asked = tokens().configured
    if scheme.lower() == "bearer" and asked:
        token = tokens().find(value.strip())
        if token is None:
            raise Unauthenticated("The bearer token is not one of this cluster's.")
        return Caller(name=token.name, role=token.role, by=By.TOKEN)
    if settings.SESSION_COOKIE_NAME in request.COOKIES:
        role = user_role(request.user)
        if role is not None:
            return Caller(name=request.user.get_username(), role=role, by=By.SESSION)
    address = request.META.get("REMOTE_ADDR", "")
    local = is_loopback(address) and FORWARDED not in request.META
    if not asked and (local or settings.WEB.unsafe_open_api):
        return Caller(name="local" if local else f"anonymous@{address}", role=Role.ADMIN, by=By.ADDRESS)
    raise Unauthenticated("A credential is needed: a bearer token, or the session of an admin login.")


class CallerMiddleware:
    """Sets `request.caller`, or answers 401."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if not (request.path in OPEN_PATHS or request.path.startswith(OPEN_PREFIXES)):
            try:
                request.caller = identify(request)  # type: ignore[attr-defined]
            except Unauthenticated as error:
                return from_error(error)
        return self._get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """What the engine or state.db refuses a view is an answer of its own, not a failure of ours."""
        return respond(request, exception) if isinstance(exception, RequestError | DatabaseError) else None


class CallerAuthentication(BaseAuthentication):
    """Hands the caller to the REST views, after a check against forged requests where a browser may have sent it."""

    def authenticate(self, request: Request) -> tuple[Caller, None]:
        caller: Caller = request._request.caller  # type: ignore[attr-defined]
        if request.method not in SAFE_METHODS:
            if caller.by is By.SESSION:
                self._check_csrf(request._request)
            elif caller.by is By.ADDRESS:
                self._check_origin(request._request)
        return caller, None

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"

    @staticmethod
    def _check_csrf(request: HttpRequest) -> None:
        check = CSRFCheck(lambda _request: HttpResponse())
        check.process_request(request)
        reason = check.process_view(request, lambda _request: HttpResponse(), (), {})
        if reason:
            raise Forbidden(f"The session's CSRF check failed: {reason}", reason="CSRF_FAILED")

    @staticmethod
    def _check_origin(request: HttpRequest) -> None:
        # Nobody but a browser sends Origin: without a credential, a page of another site must not act for its reader.
        origin = request.META.get("HTTP_ORIGIN")
        if origin is None or origin in settings.CSRF_TRUSTED_ORIGINS:
            return
        if urlsplit(origin).netloc != request.get_host():
            raise Forbidden(f"A page of another site ({origin}) sent this request.", reason="CSRF_FAILED")


class RolePermission(BasePermission):
    """A view's `roles` name the role that each method needs: by default a viewer reads and an admin writes."""

    def has_permission(self, request: Request, view: Any) -> bool:
        method = request.method or ""
        default = Role.VIEWER if method in SAFE_METHODS else Role.ADMIN
        needed: Role = getattr(view, "roles", {}).get(method, default)
        caller: Caller = request.user  # type: ignore[assignment]
        if caller.role < needed:
            raise Forbidden(
                f"{caller.name} has the role {caller.role.name.lower()}; this needs {needed.name.lower()}.",
                reason="ROLE_TOO_LOW",
            )
        return True
