"""What all REST views share: bodies, the preconditions and keys in their headers, the answers they give."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from rest_framework.response import Response
from rest_framework.views import APIView

from engine.errors import FieldError, InvalidCommand, RevisionMismatch
from scheduler_project.auth import Caller
from scheduler_project.client import get_client
from scheduler_project.limits import LIMITS

_ETAG: Final = re.compile(r'(?:W/)?"([^"]*)"|([^\s,"]+)')


class ResourceView(APIView):
    """Base of the REST views."""

    def caller(self) -> Caller:
        """Who calls."""
        return self.request.user  # type: ignore[return-value]

    def document(self, *, allowed: tuple[str, ...] | None = None) -> dict[str, Any]:
        """The body, an object; with `allowed`, any other member is refused."""
        body = self.request.data
        if not isinstance(body, Mapping):
            raise InvalidCommand("The body is not a JSON object.", errors=(FieldError("", "not an object"),))
        document = dict(body)
        if allowed is not None:
            unknown = [key for key in document if key not in allowed]
            if unknown:
                known = f"unknown; known are {', '.join(allowed)}"
                faults = tuple(FieldError(f"/{_escape(key)}", known) for key in unknown)
                raise InvalidCommand("The body has unknown members.", errors=faults)
        return document

    def request_id(self) -> str:
        """The caller's Idempotency-Key, made unique among callers; empty when there is none."""
        key: str = self.request.headers.get("Idempotency-Key", "").strip()
        if len(key) > LIMITS.idempotency_key_max:
            raise InvalidCommand(f"Idempotency-Key is longer than {LIMITS.idempotency_key_max} characters.")
        return f"{self.caller().name}:{key}" if key else ""

    def expected_revision(self, channel_id: str) -> int | None:
        """The revision that If-Match asks for; None when any will do. RevisionMismatch for what cannot match."""
        header: str = self.request.headers.get("If-Match", "").strip()
        if not header or header == "*":
            return None
        tags = {quoted or bare for quoted, bare in _ETAG.findall(header)}
        revisions = {int(tag) for tag in tags if tag.isascii() and tag.isdigit() and len(tag) < 19}
        if len(revisions) == 1:
            return revisions.pop()
        current: int = get_client().channel(channel_id)["revision"]
        if current in revisions:
            return current
        raise RevisionMismatch(f"If-Match is {header}; the revision is {current}.")

    def check_consistency(self) -> bool:
        """Whether `?consistency=strong` was asked for; then everything committed by now is applied here on return."""
        wanted = self.request.query_params.get("consistency", "local")
        if wanted not in ("local", "strong"):
            raise InvalidCommand(
                f"consistency={wanted!r}: allowed are local and strong.",
                errors=(FieldError("/consistency", "allowed are local and strong"),),
            )
        if wanted == "strong":
            get_client().barrier()
        return wanted == "strong"


def answer(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A resource, with its revision as ETag where it has one."""
    merged = dict(headers or {})
    if isinstance(document, Mapping) and "revision" in document:
        merged["ETag"] = f'"{document["revision"]}"'
    return Response(document, status=status, headers=merged)


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
