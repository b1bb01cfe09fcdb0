"""Django's messages, for the admin alone."""

from __future__ import annotations

from django.contrib.messages.middleware import MessageMiddleware
from django.http import HttpRequest, HttpResponse

from engine.errors import RequestError
from scheduler_project.problems import from_error


class AdminMessageMiddleware(MessageMiddleware):
    """Their storage asks for the signing key at each request: a probe must not depend on a cluster that has one."""

    def process_request(self, request: HttpRequest) -> HttpResponse | None:  # type: ignore[override]
        if not request.path.startswith("/admin/"):
            return None
        try:
            super().process_request(request)
        except RequestError as error:
            return from_error(error)
        return None
