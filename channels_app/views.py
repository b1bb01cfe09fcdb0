"""Channels as resources: every change is one command through the engine's client."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from django.http import HttpResponse
from rest_framework.request import Request

from engine.errors import Conflict, FieldError, InvalidCommand, NotFound
from scheduler_project.accounts import Role
from scheduler_project.client import get_client
from scheduler_project.pages import page, page_cursor, page_size
from scheduler_project.problems import from_error
from scheduler_project.rest import ResourceView, answer

_SIDES: Final = ("listen", "release", "both")


class ChannelList(ResourceView):
    """`/channels`."""

    def get(self, request: Request) -> HttpResponse:
        """All channels by id, in pages."""
        self.check_consistency()
        size, cursor = page_size(request), page_cursor(request, [str])
        channels = sorted(get_client().channels(), key=lambda channel: channel["id"])
        if cursor is None:
            start = 0
        elif cursor.backwards:
            before = sum(channel["id"] < cursor.key[0] for channel in channels)
            start, size = max(before - size, 0), min(size, before)
        else:
            start = sum(channel["id"] <= cursor.key[0] for channel in channels)
        results = channels[start : start + size]
        return page(
            request,
            results,
            following=(results[-1]["id"],) if results and start + size < len(channels) else None,
            preceding=(results[0]["id"],) if results and start > 0 else None,
        )

    def post(self, request: Request) -> HttpResponse:
        """Create a channel."""
        channel = get_client().create_channel(self.document(), actor=self.caller().name, request_id=self.request_id())
        location = request.build_absolute_uri(f"/channels/{quote(channel['id'], safe='')}")
        return answer(channel, 201, {"Location": location})


class ChannelDetail(ResourceView):
    """`/channels/{id}`."""

    def get(self, request: Request, channel_id: str) -> HttpResponse:
        """One channel."""
        self.check_consistency()
        return answer(get_client().channel(channel_id))

    def patch(self, request: Request, channel_id: str) -> HttpResponse:
        """Merge a patch into a channel."""
        return answer(
            get_client().update_channel(
                channel_id,
                self.document(),
                actor=self.caller().name,
                expected_revision=self.expected_revision(channel_id),
                request_id=self.request_id(),
            )
        )

    def delete(self, request: Request, channel_id: str) -> HttpResponse:
        """Delete a channel: gone (204), or closing until it is empty (202)."""
        try:
            gone = get_client().delete_channel(
                channel_id,
                actor=self.caller().name,
                pending=_pending(request.query_params.get("pending")),
                expected_revision=self.expected_revision(channel_id),
                request_id=self.request_id(),
            )
        except Conflict as error:
            return _refused_deletion(channel_id, error)
        if gone:
            return answer(None, 204)
        try:
            return answer(get_client().channel(channel_id), 202)
        except NotFound:
            return answer(None, 204)


class ChannelPause(ResourceView):
    """`/channels/{id}/pause`."""

    roles = {"POST": Role.OPERATOR}  # noqa: RUF012

    def post(self, request: Request, channel_id: str) -> HttpResponse:
        """Stop one side or both, for a while or until further notice."""
        body = self.document(allowed=("side", "until", "reason"))
        until, reason = body.get("until"), body.get("reason")
        if isinstance(until, bool) or not (until is None or isinstance(until, str | int | float)):
            raise _invalid("/until", "RFC 3339, seconds since the epoch, or null")
        if not (reason is None or isinstance(reason, str)):
            raise _invalid("/reason", "a text")
        return answer(
            get_client().pause_channel(
                channel_id,
                actor=self.caller().name,
                side=_side(body),
                until=until,
                reason=reason or "",
                request_id=self.request_id(),
            )
        )


class ChannelResume(ResourceView):
    """`/channels/{id}/resume`."""

    roles = {"POST": Role.OPERATOR}  # noqa: RUF012

    def post(self, request: Request, channel_id: str) -> HttpResponse:
        """Let one side or both go on."""
        body = self.document(allowed=("side",))
        return answer(
            get_client().resume_channel(
                channel_id, actor=self.caller().name, side=_side(body), request_id=self.request_id()
            )
        )


def _side(body: dict[str, object]) -> str:
    side = body.get("side", "both")
    if not isinstance(side, str) or side not in _SIDES:
        raise _invalid("/side", f"one of {', '.join(_SIDES)}")
    return side


def _pending(value: str | None) -> str | None:
    if value in (None, "discard", "drain"):
        return value
    if value.startswith("move:"):
        raise _invalid("/pending", "moving messages to another channel is not available in this version")
    raise _invalid("/pending", "discard or drain")


def _invalid(pointer: str, allowed: str) -> InvalidCommand:
    return InvalidCommand(f"{pointer[1:]}: allowed is {allowed}.", errors=(FieldError(pointer, allowed),))


def _refused_deletion(channel_id: str, error: Conflict) -> HttpResponse:
    """The refusal with the number of messages that the channel still holds."""
    if error.code != "CHANNEL_NOT_EMPTY":
        return from_error(error)
    stats = get_client().channel(channel_id)["stats"]
    held = {name: stats[name] for name in ("pending", "quarantined")}
    return from_error(error, {"count": sum(held.values()), **held})
