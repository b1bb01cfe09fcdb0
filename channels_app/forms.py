"""The admin's form of a channel: fields for people, a document of the interface for the engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django import forms

from channels_app.models import Channel
from engine.errors import RequestError
from engine.model import Disposition, TimeUnit

_POINTERS: Final[dict[str, tuple[str, ...]]] = {
    "id": ("id",),
    "name": ("name",),
    "source_project_id": ("source", "config", "project_id"),
    "source_subscription_id": ("source", "config", "subscription_id"),
    "source_key_file": ("source", "config", "key_file"),
    "source_endpoint": ("source", "config", "endpoint"),
    "destination_project_id": ("destination", "config", "project_id"),
    "destination_topic_id": ("destination", "config", "topic_id"),
    "destination_key_file": ("destination", "config", "key_file"),
    "destination_endpoint": ("destination", "config", "endpoint"),
    "missing_time": ("policy", "missing_time"),
    "bad_time": ("policy", "bad_time"),
    "time_unit": ("policy", "time_unit"),
    "max_delay": ("policy", "max_delay"),
    "dedupe_window": ("policy", "dedupe_window"),
    "min_backoff": ("policy", "retry", "min_backoff"),
    "max_backoff": ("policy", "retry", "max_backoff"),
    "attempts": ("policy", "retry", "attempts"),
}
"""Where each field stands in the document, which is also how the engine names a fault."""
_DISPOSITIONS: Final = [(value.value, value.value.capitalize()) for value in Disposition]
_UNITS: Final = [(TimeUnit.SECONDS.value, "Seconds"), (TimeUnit.AUTO.value, "By magnitude: s, ms, µs or ns")]
_DURATION: Final = "Seconds, or like 1h30m."
_KEY_FILE: Final = "Empty: default credentials."
_ENDPOINT: Final = "host:port of a regional or private endpoint; empty: the public one."


class _Text(forms.CharField):
    """A line of text, empty where nothing is given."""

    def __init__(self, label: str, help_text: str = "", *, required: bool = False) -> None:
        widget = forms.TextInput(attrs={"class": "vTextField"})
        super().__init__(label=label, help_text=help_text, required=required, widget=widget)


class ChannelForm(forms.ModelForm):  # type: ignore[type-arg]
    """Configuration and policy of one channel."""

    id = _Text("Id", "Chosen once, part of every address; empty: a random one.")
    name = _Text("Name", "How people call it.")
    source_project_id = _Text("Project", required=True)
    source_subscription_id = _Text("Subscription", required=True)
    source_key_file = _Text("Key file", _KEY_FILE)
    source_endpoint = _Text("Endpoint", _ENDPOINT)
    destination_project_id = _Text("Project", required=True)
    destination_topic_id = _Text("Topic", required=True)
    destination_key_file = _Text("Key file", _KEY_FILE)
    destination_endpoint = _Text("Endpoint", _ENDPOINT)
    missing_time = forms.ChoiceField(label="Message without a time", choices=_DISPOSITIONS, initial="quarantine")
    bad_time = forms.ChoiceField(label="Message with a wrong time", choices=_DISPOSITIONS, initial="quarantine")
    time_unit = forms.ChoiceField(label="Unit of a bare number", choices=_UNITS, initial="s")
    max_delay = _Text("Longest delay", f"A due time further ahead is wrong. {_DURATION}")
    dedupe_window = _Text("Duplicates window", f"Redelivered messages are recognised this long. {_DURATION}")
    min_backoff = _Text("Shortest pause between attempts", _DURATION)
    max_backoff = _Text("Longest pause between attempts", _DURATION)
    attempts = forms.IntegerField(
        label="Attempts",
        required=False,
        help_text="After this many a refused message goes to the quarantine; empty: never.",
    )
    revision = forms.IntegerField(required=False, widget=forms.HiddenInput)

    class Meta:
        model = Channel
        fields = ("id", "name")

    def __init__(
        self, *args: Any, document: Mapping[str, Any] | None = None, refusal: RequestError | None = None, **kwargs: Any
    ) -> None:
        """`document` is the channel as it is; `refusal` what the engine answered to this form a moment ago."""
        if document is not None:
            kwargs["initial"] = {
                **{name: _value(document, path) for name, path in _POINTERS.items()},
                "revision": document["revision"],
            }
        super().__init__(*args, **kwargs)
        self._refusal = refusal
        if document is not None:
            self.fields["id"].disabled = True

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if self._refusal is not None:
            self._place(self._refusal)
        return cleaned

    def validate_unique(self) -> None:
        """The engine decides whether an id is taken."""

    def document(self) -> dict[str, Any]:
        """The channel as a document; what was left empty takes its default."""
        document: dict[str, Any] = {"source": {"driver": "pubsub"}, "destination": {"driver": "pubsub"}}
        for name, path in _POINTERS.items():
            value = self.cleaned_data.get(name)
            place = document
            for step in path[:-1]:
                place = place.setdefault(step, {})
            place[path[-1]] = None if value in ("", None) else value
        if document["id"] is None:
            del document["id"]
        return document

    def _place(self, refusal: RequestError) -> None:
        """Each fault at its field; what belongs to none goes on top."""
        by_pointer = {"/" + "/".join(path): name for name, path in _POINTERS.items()}
        placed = False
        for fault in refusal.errors:
            field = by_pointer.get(fault.pointer)
            self.add_error(field, fault.detail if field else f"{fault.pointer}: {fault.detail}")
            placed = True
        if not placed:
            self.add_error(None, refusal.detail)


def _value(document: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = document
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value
