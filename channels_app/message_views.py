"""Messages as resources: read from this node's state.db, newest first made sure of by the engine."""

from __future__ import annotations

from typing import Any, Final

from django.http import HttpResponse
from rest_framework.request import Request

from channels_app.documents import message_document, seq_of
from channels_app.lookup import channel_uid
from channels_app.models import HeldMessage, Message, QuarantinedMessage
from channels_app.reading import Filters, Page, pending_page, quarantined_page
from engine.errors import FieldError, InvalidCommand, NotFound
from scheduler_project.client import get_client
from scheduler_project.pages import page, page_cursor, page_size
from scheduler_project.replica.identity import cluster_identity
from scheduler_project.rest import ResourceView, answer
from scheduler_project.times import parse_time

_HELD: Final = ("pending", "in_flight", "quarantined")
_GONE: Final = ("released", "cancelled")


class MessageList(ResourceView):
    """`/channels/{id}/messages`."""

    def get(self, request: Request, channel_id: str) -> HttpResponse:
        """The messages of one state, filtered, in pages; pending ones include those being published now."""
        strong = self.check_consistency()
        state = _state(request)
        size = page_size(request)
        with_data = _flag(request, "data")
        client = get_client()
        client.fresh(strong=strong)
        in_flight = client.in_flight(channel_id)
        filters = _filters(request, channel_id, frozenset(in_flight) if state == "in_flight" else None)
        found: Page[Any]
        if state == "quarantined":
            found = quarantined_page(filters, size, page_cursor(request, [int]))
        else:
            found = pending_page(filters, size, page_cursor(request, [int, int]))
        cluster = cluster_identity() if found.messages else None
        results = [
            message_document(message, channel_id, cluster, in_flight=in_flight, with_data=with_data)
            for message in found.messages
            if cluster is not None
        ]
        return page(request, results, following=found.following, preceding=found.preceding)


class MessageDetail(ResourceView):
    """`/channels/{id}/messages/{message_id}`."""

    def get(self, request: Request, channel_id: str, message_id: str) -> HttpResponse:
        """One message, whole."""
        strong = self.check_consistency()
        client = get_client()
        client.fresh(strong=strong)
        uid, cluster = channel_uid(channel_id), cluster_identity()
        message = _find(uid, seq_of(message_id, cluster))
        if message is None:
            raise NotFound(f"Channel {channel_id} holds no message {message_id!r}.", reason="NO_MESSAGE")
        in_flight = client.in_flight(channel_id)
        return answer(message_document(message, channel_id, cluster, in_flight=in_flight, with_data=True))


def _find(uid: int, seq: int) -> HeldMessage | None:
    for model in (Message, QuarantinedMessage):
        message: HeldMessage | None = model.objects.filter(seq=seq, channel_uid=uid).first()
        if message is not None:
            return message
    return None


def _filters(request: Request, channel_id: str, seqs: frozenset[int] | None) -> Filters:
    parameters = request.query_params
    return Filters(
        channel_uids=(channel_uid(channel_id),),
        due_from_ms=_time(request, "due_from"),
        due_to_ms=_time(request, "due_to"),
        key=parameters.get("key"),
        source_id=parameters.get("source_message_id"),
        ordering_key=parameters.get("ordering_key"),
        seqs=seqs,
    )


def _state(request: Request) -> str:
    state = request.query_params.get("state", "pending")
    if state in _GONE:
        raise _invalid("state", f"{state} messages are not remembered in this version; {', '.join(_HELD)} are kept")
    if state not in _HELD:
        raise _invalid("state", f"{state[:32]!r} is not one of {', '.join(_HELD)}")
    return state


def _time(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    if not text:
        return None
    try:
        return parse_time(text)
    except ValueError as error:
        raise _invalid(name, str(error)) from error


def _flag(request: Request, name: str) -> bool:
    value = request.query_params.get(name, "0").lower()
    if value not in ("0", "1", "true", "false"):
        raise _invalid(name, f"{value[:32]!r} is neither 0 nor 1")
    return value in ("1", "true")


def _invalid(name: str, detail: str) -> InvalidCommand:
    return InvalidCommand(f"{name}: {detail}.", errors=(FieldError(f"/{name}", detail),))
