"""The admin site: our name, permissions by role, and nothing that would differ from node to node."""

from __future__ import annotations

import time
from typing import Any, NoReturn

from django.contrib import admin
from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest
from django.utils.html import format_html

from scheduler_project.accounts import Role
from scheduler_project.auth import user_role
from scheduler_project.times import parse_time


class SchedulerAdminSite(AdminSite):
    """Channels, messages and the cluster for people."""

    site_header = "Event Scheduler"
    site_title = "Event Scheduler"
    index_title = "Overview"
    site_url = None
    enable_nav_sidebar = True

    def has_permission(self, request: HttpRequest) -> bool:
        return user_role(request.user) is not None

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        """What people came for first, logins last."""
        apps: list[Any] = super().get_app_list(request, app_label)
        return sorted(apps, key=lambda app: app["app_label"] == "auth")

    def password_change(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> NoReturn:
        """Logins are declared, the same on every node: a password changed here would hold on this node alone."""
        raise Http404


class EngineBackedAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Base of the pages over the engine's state: who may do what follows the login's role."""

    writers: Role | None = Role.ADMIN
    """The role that may add, change and delete; None: nobody."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self._role(request) is not None

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._role(request) is not None

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self._may_write(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._may_write(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._may_write(request)

    def refuse_unless(self, request: HttpRequest, role: Role) -> None:
        """PermissionDenied for a login below `role`."""
        own = self._role(request)
        if own is None or own < role:
            raise PermissionDenied(f"This needs the role {role.name.lower()}.")

    @staticmethod
    def actor(request: HttpRequest) -> str:
        """The name that goes into the command, so that every node remembers who did it."""
        return request.user.get_username()

    def _may_write(self, request: HttpRequest) -> bool:
        own = self._role(request)
        return self.writers is not None and own is not None and own >= self.writers

    @staticmethod
    def _role(request: HttpRequest) -> Role | None:
        return user_role(request.user)


def due_cell(due: str | None) -> str:
    """A time for people: how far away, and exactly."""
    if due is None:
        return "–"
    ahead_s = parse_time(due) / 1000 - time.time()
    words = f"in {_span(ahead_s)}" if ahead_s >= 0 else f"{_span(-ahead_s)} overdue"
    kind = "es-due" if ahead_s >= 0 else "es-due es-overdue"
    return format_html('<span class="{}">{}</span> <time datetime="{}">{}</time>', kind, words, due, due)


def _span(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
