"""The admin site: our name, and nothing that would differ from node to node."""

from __future__ import annotations

from typing import Any, NoReturn

from django.contrib.admin import AdminSite
from django.http import Http404, HttpRequest

from scheduler_project.auth import user_role


class SchedulerAdminSite(AdminSite):
    """Channels, messages and the cluster for people."""

    site_header = "Event Scheduler"
    site_title = "Event Scheduler"
    index_title = "Overview"
    site_url = None
    enable_nav_sidebar = True

    def has_permission(self, request: HttpRequest) -> bool:
        return user_role(request.user) is not None

    def password_change(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> NoReturn:
        """Logins are declared, the same on every node: a password changed here would hold on this node alone."""
        raise Http404
