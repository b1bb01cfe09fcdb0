"""Channels in the admin: read from state.db, changed by one command each through the engine's client."""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.forms import ModelForm
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html

from channels_app.forms import ChannelForm
from channels_app.message_admin import MessageAdmin, QuarantineAdmin
from channels_app.models import Channel, Message, QuarantinedMessage
from engine.errors import NotFound, RequestError
from scheduler_project.accounts import Role
from scheduler_project.auth import user_role
from scheduler_project.client import get_client
from scheduler_project.site import EngineBackedAdmin, due_cell

_REFUSAL = "_scheduler_refusal"
_FACTS = (
    ("Source", "source.config"),
    ("Destination", "destination.config"),
    ("Policy", "policy"),
    ("Revision", "revision"),
    ("Created", "created_at"),
    ("Changed", "updated_at"),
)


class ChannelChangeList(ChangeList):
    """The list, each row with the engine's document of the channel."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        documents = {document["id"]: document for document in get_client().channels()}
        for channel in self.result_list:
            channel.document = documents.get(channel.pk)


@admin.register(Channel)
class ChannelAdmin(EngineBackedAdmin):
    """List, add, change, delete, pause and resume."""

    form = ChannelForm
    list_display = ("id", "name", "state", "pending", "quarantined", "next_due", "source", "destination")
    search_fields = ("id", "name")
    ordering = ("id",)
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    actions = None
    fieldsets = (
        (None, {"fields": ("id", "name", "revision")}),
        (
            "Source",
            {"fields": ("source_project_id", "source_subscription_id", "source_key_file", "source_endpoint")},
        ),
        (
            "Destination",
            {
                "fields": (
                    "destination_project_id",
                    "destination_topic_id",
                    "destination_key_file",
                    "destination_endpoint",
                )
            },
        ),
        (
            "Policy",
            {
                "classes": ("collapse",),
                "fields": (
                    "missing_time",
                    "bad_time",
                    "time_unit",
                    "max_delay",
                    "dedupe_window",
                    "min_backoff",
                    "max_backoff",
                    "attempts",
                ),
            },
        ),
    )
    writers = Role.ADMIN

    # ---- the list ----------------------------------------------------------------------------------------------------

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return ChannelChangeList

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        return super().changelist_view(request, {**(extra_context or {}), "title": "Channels"})

    def get_queryset(self, request: HttpRequest) -> QuerySet[Channel]:
        get_client().fresh()
        return super().get_queryset(request)

    @admin.display(description="State")
    def state(self, channel: Channel) -> str:
        document = self._document(channel)
        if document is None:
            return "gone"
        badge = format_html('<span class="es-state es-{0}">{0}</span>', document["state"])
        if not document["reason"]:
            return badge
        return format_html('{} <span class="help">{}</span>', badge, document["reason"])

    @admin.display(description="Pending")
    def pending(self, channel: Channel) -> str:
        return self._count(channel, "pending", "admin:channels_app_message_changelist")

    @admin.display(description="Quarantined")
    def quarantined(self, channel: Channel) -> str:
        return self._count(channel, "quarantined", "admin:channels_app_quarantinedmessage_changelist")

    @admin.display(description="Next due")
    def next_due(self, channel: Channel) -> str:
        stats = (self._document(channel) or {"stats": {}})["stats"]
        return due_cell(stats.get("oldest_overdue") or stats.get("next_due"))

    @admin.display(description="Source")
    def source(self, channel: Channel) -> str:
        return f"{channel.source_project_id} / {channel.source_subscription_id}"

    @admin.display(description="Destination")
    def destination(self, channel: Channel) -> str:
        return f"{channel.destination_project_id} / {channel.destination_topic_id}"

    @staticmethod
    def _document(channel: Channel) -> dict[str, Any] | None:
        document: dict[str, Any] | None = channel.document  # type: ignore[attr-defined]
        return document

    def _count(self, channel: Channel, figure: str, view: str) -> str:
        document = self._document(channel)
        if document is None:
            return "–"
        count = f"{document['stats'][figure]:,}"
        return format_html('<a href="{}?{}">{}</a>', reverse(view), urlencode({"channel": channel.pk}), count)

    # ---- add and change ----------------------------------------------------------------------------------------------

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        document = None
        if obj is not None:
            document = get_client().channel(obj.pk)
        form = super().get_form(request, obj, change=change, **kwargs)
        return _bound_form(form, document, getattr(request, _REFUSAL, None))

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        """The form; a refusal by the engine comes back as the same form with each fault at its field."""
        if object_id is not None and not self.has_change_permission(request):
            return self._show(request, object_id)
        context = {"show_save_and_add_another": False, "show_save_as_new": False, **(extra_context or {})}
        if object_id is not None:
            context["channel"] = self._for_page(object_id)
            context["may_pause"] = (user_role(request.user) or Role.VIEWER) >= Role.OPERATOR
        try:
            return super().changeform_view(request, object_id, form_url, context)
        except RequestError as refusal:
            if request.method != "POST":
                raise
            setattr(request, _REFUSAL, refusal)
            return super().changeform_view(request, object_id, form_url, context)

    def _show(self, request: HttpRequest, channel_id: str) -> HttpResponse:
        """The channel for a login that may not change it."""
        channel = self._for_page(channel_id)
        if request.method != "GET":
            raise PermissionDenied
        if channel is None:
            raise Http404
        context = {
            **self.admin_site.each_context(request),
            "title": channel["name"],
            "opts": self.opts,
            "channel": channel,
            "may_pause": (user_role(request.user) or Role.VIEWER) >= Role.OPERATOR,
            "facts": [(label, _value_at(channel, path)) for label, path in _FACTS],
        }
        return TemplateResponse(request, "admin/channels_app/channel/show.html", context)

    @staticmethod
    def _for_page(channel_id: str) -> dict[str, Any] | None:
        try:
            return get_client().channel(channel_id)
        except NotFound:
            return None

    def save_form(self, request: HttpRequest, form: ModelForm[Any], change: bool) -> Any:
        return form.instance

    def save_model(self, request: HttpRequest, obj: Channel, form: Any, change: bool) -> None:
        client, actor = get_client(), self.actor(request)
        document = form.document()
        if change:
            client.update_channel(obj.pk, document, actor=actor, expected_revision=form.cleaned_data["revision"])
        else:
            created = client.create_channel(document, actor=actor)
            obj.id, obj.name = created["id"], created["name"]

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """A channel has no related rows of Django's."""

    # ---- delete, pause, resume ---------------------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("<path:object_id>/pause/", wrap(self.pause_view), name="channels_app_channel_pause"),
            path("<path:object_id>/resume/", wrap(self.resume_view), name="channels_app_channel_resume"),
            *super().get_urls(),
        ]

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None) -> Any:
        """Say in numbers what a deletion means, ask for the channel's id where messages would be lost, then do it."""
        self.refuse_unless(request, Role.ADMIN)
        channel, error = get_client().channel(object_id), ""
        if request.method == "POST":
            mode = request.POST.get("pending") or None
            if mode == "discard" and request.POST.get("confirmation", "").strip() != object_id:
                error = "Type the channel's id to discard its messages."
            else:
                try:
                    gone = get_client().delete_channel(object_id, actor=self.actor(request), pending=mode)
                except RequestError as refusal:
                    error = refusal.detail
                else:
                    said = "is deleted" if gone else "is closing, and gone once it is empty"
                    self.message_user(request, f"The channel {object_id} {said}.", messages.SUCCESS)
                    return HttpResponseRedirect(reverse("admin:channels_app_channel_changelist"))
        context = {
            **self.admin_site.each_context(request),
            "title": f"Delete {channel['name']}?",
            "opts": self.model._meta,
            "channel": channel,
            "held": channel["stats"]["pending"] + channel["stats"]["quarantined"],
            "error": error,
        }
        return TemplateResponse(request, "admin/channels_app/channel/delete.html", context)

    def pause_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Stop both sides until further notice."""
        reason = request.POST.get("reason", "")
        pause = partial(get_client().pause_channel, object_id, actor=self.actor(request), reason=reason)
        return self._act(request, object_id, pause, "paused")

    def resume_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Let both sides go on."""
        resume = partial(get_client().resume_channel, object_id, actor=self.actor(request))
        return self._act(request, object_id, resume, "resumed")

    def _act(self, request: HttpRequest, channel_id: str, act: Any, said: str) -> HttpResponse:
        self.refuse_unless(request, Role.OPERATOR)
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        try:
            act()
        except RequestError as refusal:
            self.message_user(request, refusal.detail, messages.ERROR)
        else:
            self.message_user(request, f"The channel {channel_id} is {said}.", messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:channels_app_channel_change", args=(channel_id,)))


def _value_at(document: dict[str, Any], path: str) -> str:
    """A part of a document as words: the members that are set, one after the other."""
    value: Any = document
    for step in path.split("."):
        value = value[step]
    if not isinstance(value, dict):
        return str(value)
    return ", ".join(f"{name} {content}" for name, content in value.items() if content not in (None, [], ""))


def _bound_form(form: type[ModelForm[Any]], document: Any, refusal: RequestError | None) -> type[ModelForm[Any]]:
    """The form class with what this request knows already filled in."""

    class BoundForm(form):  # type: ignore[valid-type, misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, document=document, refusal=refusal, **kwargs)

    return BoundForm


admin.site.register(Message, MessageAdmin)
admin.site.register(QuarantinedMessage, QuarantineAdmin)
