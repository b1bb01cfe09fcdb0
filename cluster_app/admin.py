"""The cluster in the admin: one page, read-only."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import Http404, HttpRequest
from django.template.response import TemplateResponse

from cluster_app.models import Member
from scheduler_project.client import get_client, get_health_client
from scheduler_project.site import EngineBackedAdmin


@admin.register(Member)
class ClusterAdmin(EngineBackedAdmin):
    """Who leads, how each member does, and what this node says of itself."""

    writers = None

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """The page."""
        context = {
            **self.admin_site.each_context(request),
            "title": "Cluster",
            "opts": self.opts,
            "cluster": get_client().cluster(),
            "checks": get_health_client().health()["ready"],
        }
        return TemplateResponse(request, "admin/cluster_app/cluster.html", context)

    def change_view(self, request: HttpRequest, object_id: str, *_args: Any, **_kwargs: Any) -> Any:
        """A member has no page of its own."""
        raise Http404
