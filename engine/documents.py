"""A channel as a JSON document, in and out: the shape of the REST interface and every rule about its values.

`parse_channel` turns a body into the model and names every fault with a pointer; `merge_patch` is RFC 7396;
`render_channel` is the configuration part of what the API answers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from engine.due import format_time
from engine.environment import DRIVERS
from engine.errors import FieldError, InvalidCommand
from engine.model import Channel, Destination, DestinationConfig, Pause, Policy, Source, SourceConfig
from engine.policies import parse_policy, render_policy

ID_LENGTH_MAX: Final = 100
NAME_LENGTH_MAX: Final = 200
_CHANNEL_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_RESOURCE_ID: Final = re.compile(r"[A-Za-z][A-Za-z0-9\-_.~+%]{2,254}")
_ENDPOINT: Final = re.compile(r"(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")

READ_ONLY: Final = frozenset({"state", "reason", "revision", "stats", "created_at", "updated_at", "paused"})
"""Fields of an answer that a body may carry along; they are ignored, so that what was read can be sent back."""


class Configuration(NamedTuple):
    """What a body says about a channel."""

    id: str | None
    name: str
    source: Source
    destination: Destination
    policy: Policy


class Faults:
    """Collects every fault of a document, so that one answer names them all."""

    def __init__(self) -> None:
        self.errors: list[FieldError] = []

    def add(self, pointer: str, detail: str) -> None:
        """Note one fault."""
        self.errors.append(FieldError(pointer, detail))

    def raise_if_any(self) -> None:
        """Raise InvalidCommand when anything was noted."""
        if self.errors:
            count = len(self.errors)
            detail = self.errors[0].detail if count == 1 else f"{count} fields are not valid"
            raise InvalidCommand(detail, errors=tuple(self.errors))


def parse_channel(document: Any, *, bare_key_files: bool) -> Configuration:
    """The configuration in a body; raises InvalidCommand with all faults.

    `bare_key_files`: `KEY_FILES_DIR` is set, so a key file is a name inside that directory and nothing else.
    """
    faults = Faults()
    if not isinstance(document, Mapping):
        faults.add("", f"a channel is a JSON object, got {_kind(document)}")
        faults.raise_if_any()
    for key in document:
        if key not in {"id", "name", "source", "destination", "policy"} | READ_ONLY:
            faults.add(f"/{_escape(key)}", f"unknown field {key!r}; known: id, name, source, destination, policy")
    channel_id = _channel_id(document.get("id"), faults)
    name = _text(document.get("name"), "/name", faults, length_max=NAME_LENGTH_MAX, required=False)
    source = _endpoint(document, "source", "subscription_id", bare_key_files, faults)
    destination = _endpoint(document, "destination", "topic_id", bare_key_files, faults)
    policy = parse_policy(document.get("policy"), faults.add)
    faults.raise_if_any()
    return Configuration(
        id=channel_id,
        name=name or "",
        source=Source(config=SourceConfig(**source)),
        destination=Destination(config=DestinationConfig(**destination)),
        policy=policy,
    )


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7396: objects are merged, null removes, everything else replaces."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def render_channel(channel: Channel) -> dict[str, Any]:
    """The configuration of a channel as the API shows it, without its live state and stats."""
    source, destination = channel.source, channel.destination
    return {
        "id": channel.id,
        "name": channel.name,
        "source": {
            "driver": source.driver,
            "config": {
                "project_id": source.config.project_id,
                "subscription_id": source.config.subscription_id,
                "key_file": source.config.key_file,
                "endpoint": source.config.endpoint,
            },
        },
        "destination": {
            "driver": destination.driver,
            "config": {
                "project_id": destination.config.project_id,
                "topic_id": destination.config.topic_id,
                "key_file": destination.config.key_file,
                "endpoint": destination.config.endpoint,
            },
        },
        "policy": render_policy(channel.policy),
        "paused": {
            "listen": _render_pause(channel.paused_listen),
            "release": _render_pause(channel.paused_release),
        },
        "revision": channel.revision,
        "created_at": format_time(channel.created_ms),
        "updated_at": format_time(channel.updated_ms),
    }


def _render_pause(pause: Pause | None) -> dict[str, Any] | None:
    if pause is None:
        return None
    until = None if pause.until_ms is None else format_time(pause.until_ms)
    return {"by": pause.by, "reason": pause.reason, "until": until}


def _channel_id(value: Any, faults: Faults) -> str | None:
    if value is None:
        return None
    text = _text(value, "/id", faults, length_max=ID_LENGTH_MAX)
    if text is not None and _CHANNEL_ID.fullmatch(text) is None:
        faults.add(
            "/id", f"{text!r} is no channel id: letters, digits, '.', '_' and '-', beginning with a letter or digit"
        )
    return text


def _endpoint(
    document: Mapping[str, Any], side: str, resource: str, bare_key_files: bool, faults: Faults
) -> dict[str, Any]:
    """The `config` of a source or destination: the same rules but for the name of the resource."""
    empty: dict[str, Any] = {"project_id": "", resource: ""}
    value = document.get(side)
    if not isinstance(value, Mapping):
        faults.add(f"/{side}", f"{side} is required: an object with driver and config, got {_kind(value)}")
        return empty
    driver = value.get("driver", DRIVERS[0])
    if driver not in DRIVERS:
        faults.add(f"/{side}/driver", f"unknown driver {driver!r}; known: {', '.join(DRIVERS)}")
    for key in value:
        if key not in {"driver", "config"}:
            faults.add(f"/{side}/{_escape(key)}", f"unknown field {key!r}; known: driver, config")
    config = value.get("config")
    at = f"/{side}/config"
    if not isinstance(config, Mapping):
        faults.add(at, f"config is required: an object with project_id and {resource}, got {_kind(config)}")
        return empty
    known = ("project_id", resource, "key_file", "endpoint")
    for key in config:
        if key not in known:
            faults.add(f"{at}/{_escape(key)}", f"unknown field {key!r}; known: {', '.join(known)}")
    project = _text(config.get("project_id"), f"{at}/project_id", faults)
    if project is not None and re.search(r"[/\s]", project):
        faults.add(f"{at}/project_id", f"{project!r} is no project id: it may not contain '/' or spaces")
    name = _text(config.get(resource), f"{at}/{resource}", faults)
    if name is not None and (_RESOURCE_ID.fullmatch(name) is None or name.startswith("goog")):
        faults.add(
            f"{at}/{resource}",
            f"{name!r} is no {resource.removesuffix('_id')} id: 3 to 255 letters, digits or -_.~+%, beginning with a"
            " letter, not with 'goog'",
        )
    return {
        "project_id": project or "",
        resource: name or "",
        "key_file": _key_file(config.get("key_file"), f"{at}/key_file", bare_key_files, faults),
        "endpoint": _host_port(config.get("endpoint"), f"{at}/endpoint", faults),
    }


def _key_file(value: Any, pointer: str, bare: bool, faults: Faults) -> str | None:
    text = _text(value, pointer, faults, length_max=4096, required=False)
    if text and bare and (text in {".", ".."} or "/" in text or "\0" in text):
        faults.add(pointer, f"{text!r} must be the name of a file in KEY_FILES_DIR, without a path")
    return text or None


def _host_port(value: Any, pointer: str, faults: Faults) -> str | None:
    text = _text(value, pointer, faults, required=False)
    if text and (_ENDPOINT.fullmatch(text) is None or not 0 < int(text.rpartition(":")[2]) < 65536):
        faults.add(pointer, f"{text!r} is no endpoint: host:port, e.g. europe-west1-pubsub.googleapis.com:443")
    return text or None


def _text(value: Any, pointer: str, faults: Faults, *, length_max: int = 255, required: bool = True) -> str | None:
    if value is None or value == "":
        if required:
            faults.add(pointer, f"{pointer.rpartition('/')[2]} is required and may not be empty")
        return None
    if not isinstance(value, str):
        faults.add(pointer, f"{pointer.rpartition('/')[2]} is text, got {_kind(value)}")
        return None
    if len(value) > length_max:
        faults.add(
            pointer, f"{pointer.rpartition('/')[2]} has {len(value)} characters, at most {length_max} are allowed"
        )
        return None
    return value


def _kind(value: Any) -> str:
    """A JSON value's type, for people."""
    names = {type(None): "nothing", bool: "a boolean", int: "a number", float: "a number", str: "text", list: "a list"}
    return names.get(type(value), "an object")


def _escape(key: Any) -> str:
    return str(key).replace("~", "~0").replace("/", "~1")
