"""The cluster and the running version as resources."""

from __future__ import annotations

import platform

from django.http import HttpResponse
from rest_framework.request import Request

from cluster_app.version import REVISION
from engine import commands, frames
from engine.version import VERSION
from scheduler_project.client import get_client
from scheduler_project.rest import ResourceView, answer


class ClusterDetail(ResourceView):
    """`/cluster`."""

    def get(self, request: Request) -> HttpResponse:
        """Who leads, how far the log is, and how each member does, as this node sees it."""
        self.check_consistency()
        return answer(get_client().cluster())


class VersionDetail(ResourceView):
    """`/version`."""

    def get(self, request: Request) -> HttpResponse:
        """What runs here."""
        return answer(
            {
                "version": VERSION,
                "revision": REVISION,
                "python": platform.python_version(),
                "protocols": {"log": commands.VERSION, "control": frames.PROTOCOL},
            }
        )
