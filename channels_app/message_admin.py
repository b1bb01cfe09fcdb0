"""Messages in the admin: keyset pages over state.db with filters in the address, and each message whole. Read-only."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from channels_app.documents import message_document, readable_payload, seq_of
from channels_app.models import Channel, HeldMessage, Message, QuarantinedMessage
from channels_app.reading import Filters, Page, pending_page, quarantined_page
from engine.errors import InvalidCommand, NotFound
from scheduler_project.client import get_client
from scheduler_project.limits import LIMITS
from scheduler_project.pages import Cursor, Key, decode_cursor
from scheduler_project.replica.identity import cluster_identity
from scheduler_project.site import EngineBackedAdmin, due_cell

_HOUR_MS: Final = 3600 * 1000
RANGES: Final[tuple[tuple[str, str, int | None, int | None], ...]] = (
    ("", "any time", None, None),
    ("overdue", "overdue", None, 0),
    ("hour", "within an hour", 0, _HOUR_MS),
    ("day", "within a day", 0, 24 * _HOUR_MS),
    ("week", "within a week", 0, 7 * 24 * _HOUR_MS),
    ("later", "later", 7 * 24 * _HOUR_MS, None),
)
"""Name in the address, words, and the bounds relative to now."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the list."""

    document: dict[str, Any]
    url: str
    due: str


class HeldMessageAdmin(EngineBackedAdmin):
    """What the two lists have in common."""

    cursor_kinds: ClassVar[Sequence[type]]
    order: ClassVar[str]
    figure: ClassVar[str]
    writers = None

    def page_of(self, filters: Filters, cursor: Cursor | None) -> Page[Any]:
        """A page of the messages that this list is about."""
        raise NotImplementedError

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """A page of messages; a search for a message's id leads to it at once."""
        get_client().fresh()
        documents = {document["id"]: document for document in get_client().channels()}
        channels = {channel.uid: channel.pk for channel in Channel.objects.all()}
        wanted, chosen = request.GET.get("q", "").strip(), request.GET.get("channel", "")
        found = self._by_id(wanted)
        if found is not None:
            return HttpResponseRedirect(self._url(found))
        filters = self._filters(request, {u: c for u, c in channels.items() if chosen in ("", c)})
        cursor = self._cursor(request)
        page = self._search(filters, wanted, cursor)
        context = {
            **self.admin_site.each_context(request),
            "title": self.opts.verbose_name_plural.capitalize() if self.opts.verbose_name_plural else "",
            "opts": self.opts,
            "rows": self._rows(page.messages, channels),
            "order": self.order,
            "channels": sorted(documents.values(), key=lambda document: document["id"]),
            "chosen": chosen,
            "wanted": wanted,
            "ranges": [(name, words, self._link(request, range=name, cursor="")) for name, words, *_ in RANGES],
            "range": request.GET.get("range", ""),
            "total": sum(d["stats"][self.figure] for d in documents.values() if chosen in ("", d["id"])),
            "next": self._page_link(request, page.following, backwards=False),
            "previous": self._page_link(request, page.preceding, backwards=True),
        }
        return TemplateResponse(request, "admin/channels_app/messages.html", context)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> Any:
        """One message, whole."""
        get_client().fresh()
        message = self.model.objects.filter(seq=object_id).first() if object_id.isdigit() else None
        channel = Channel.objects.filter(uid=message.channel_uid).first() if message is not None else None
        if message is None or channel is None:
            raise Http404
        in_flight = get_client().in_flight(channel.pk)
        document = message_document(message, channel.pk, cluster_identity(), in_flight=in_flight, with_data=False)
        context = {
            **self.admin_site.each_context(request),
            "title": f"Message {document['id']}",
            "opts": self.opts,
            "message": document,
            "due": due_cell(document["due"]),
            "body": show_body(readable_payload(message).data),
        }
        return TemplateResponse(request, "admin/channels_app/message.html", context)

    # ---- helpers -----------------------------------------------------------------------------------------------------

    def _search(self, filters: Filters, wanted: str, cursor: Cursor | None) -> Page[Any]:
        """A page of what the filters leave; searched by source message id, or by key with `key:`."""
        if wanted.startswith("key:"):
            filters = replace(filters, key=wanted.removeprefix("key:"))
        elif wanted:
            filters = replace(filters, source_id=wanted)
        return self.page_of(filters, cursor)

    def _by_id(self, wanted: str) -> HeldMessage | None:
        if not wanted:
            return None
        try:
            seq = seq_of(wanted, cluster_identity())
        except NotFound:
            return None
        for model in (Message, QuarantinedMessage):
            message: HeldMessage | None = model.objects.filter(seq=seq).first()
            if message is not None:
                return message
        return None

    def _filters(self, request: HttpRequest, channels: dict[int, str]) -> Filters:
        now_ms = time.time_ns() // 1_000_000
        ranges = {name: (start, end) for name, _, start, end in RANGES}
        start, end = ranges.get(request.GET.get("range", ""), (None, None))
        return Filters(
            channel_uids=tuple(channels),
            due_from_ms=None if start is None else now_ms + start,
            due_to_ms=None if end is None else now_ms + end,
        )

    def _cursor(self, request: HttpRequest) -> Cursor | None:
        text = request.GET.get("cursor", "")
        try:
            return decode_cursor(text, self.cursor_kinds) if text else None
        except InvalidCommand as error:
            raise Http404(error.detail) from error

    def _rows(self, found: Sequence[HeldMessage], channels: dict[int, str]) -> list[Row]:
        if not found:
            return []
        cluster = cluster_identity()
        rows = []
        for message in found:
            channel_id = channels.get(message.channel_uid, "")
            document = message_document(message, channel_id, cluster, in_flight=(), with_data=False)
            rows.append(Row(document, self._url(message), due_cell(document["due"])))
        return rows

    @staticmethod
    def _url(message: HeldMessage) -> str:
        return reverse(f"admin:channels_app_{message._meta.model_name}_change", args=(message.seq,))

    @staticmethod
    def _link(request: HttpRequest, **changes: str) -> str:
        parameters = {**request.GET.dict(), **changes}
        return "?" + urlencode({name: value for name, value in parameters.items() if value})

    def _page_link(self, request: HttpRequest, key: Key | None, *, backwards: bool) -> str:
        return "" if key is None else self._link(request, cursor=Cursor(key, backwards).encode())


class MessageAdmin(HeldMessageAdmin):
    """What waits for its time."""

    cursor_kinds = (int, int)
    order = "soonest first"
    figure = "pending"

    def page_of(self, filters: Filters, cursor: Cursor | None) -> Page[Any]:
        return pending_page(filters, LIMITS.admin_page_size, cursor)


class QuarantineAdmin(HeldMessageAdmin):
    """What was set aside."""

    cursor_kinds = (int,)
    order = "longest held first"
    figure = "quarantined"

    def page_of(self, filters: Filters, cursor: Cursor | None) -> Page[Any]:
        return quarantined_page(filters, LIMITS.admin_page_size, cursor)


def show_body(data: bytes) -> dict[str, str]:
    """A body for people: JSON indented, text as it is, anything else in hexadecimal; cut where it is long."""
    shown = data[: LIMITS.preview_bytes_max]
    rest = f"the first {len(shown):,} of {len(data):,} bytes" if len(shown) < len(data) else f"{len(data):,} bytes"
    try:
        text = shown.decode()
    except UnicodeDecodeError:
        return {"kind": "hexadecimal", "size": rest, "text": shown.hex(" ")}
    try:
        return {"kind": "JSON", "size": rest, "text": json.dumps(json.loads(text), indent=2, ensure_ascii=False)}
    except (ValueError, RecursionError):
        return {"kind": "text", "size": rest, "text": text}
