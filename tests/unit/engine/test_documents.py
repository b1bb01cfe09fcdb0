"""Channels as JSON documents: what is taken, what is refused and how it is shown."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from engine.documents import Configuration, merge_patch, parse_channel, render_channel
from engine.errors import InvalidCommand
from engine.model import Channel, Disposition, Pause

BODY: dict[str, Any] = {
    "source": {"driver": "pubsub", "config": {"project_id": "p", "subscription_id": "later-sub"}},
    "destination": {"driver": "pubsub", "config": {"project_id": "p", "topic_id": "now"}},
}


def body(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(BODY), **changes}


def parse(document: Any) -> Configuration:
    return parse_channel(document, bare_key_files=False)


def at(path: str, value: Any) -> dict[str, Any]:
    document: Any = body()
    *parents, last = path.strip("/").split("/")
    inner = document
    for parent in parents:
        inner = inner.setdefault(parent, {})
    inner[last] = value
    return document


def as_channel(parsed: Configuration, **changes: Any) -> Channel:
    return Channel(
        uid=1,
        id=parsed.id or "c",
        name=parsed.name,
        source=parsed.source,
        destination=parsed.destination,
        policy=parsed.policy,
        **changes,
    )


def test_the_smallest_body_is_a_channel_with_the_default_policy() -> None:
    parsed = parse(body())

    assert parsed.source.config.subscription == "projects/p/subscriptions/later-sub"
    assert parsed.destination.config.topic == "projects/p/topics/now"
    assert parsed.policy.missing_time is Disposition.QUARANTINE
    assert parsed.source.config.key_file is None


def test_an_empty_key_file_is_none() -> None:
    assert parse(at("/source/config/key_file", "")).source.config.key_file is None


def test_what_is_shown_can_be_sent_back() -> None:
    parsed = parse(
        body(
            id="orders",
            name="Orders",
            policy={"max_delay": "30d", "missing_time": "discard", "time_unit": "auto", "retry": {"attempts": 5}},
        )
    )
    shown = render_channel(as_channel(parsed, paused_release=Pause(by="ops", reason="upgrade", until_ms=0)))

    assert parse({**shown, "state": "active", "stats": {"pending": 3}}) == parsed
    assert shown["policy"]["max_delay"] == "30d"
    assert shown["policy"]["catch_up"] == {"mode": "all"}
    assert shown["paused"] == {
        "listen": None,
        "release": {"by": "ops", "reason": "upgrade", "until": "1970-01-01T00:00:00.000Z"},
    }


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("/id", "a/b", "no channel id"),
        ("/id", "-a", "no channel id"),
        ("/id", "a" * 101, "101 characters"),
        ("/id", 5, "text"),
        ("/name", "n" * 201, "201 characters"),
        ("/colour", "red", "unknown field 'colour'"),
        ("/source", None, "required"),
        ("/source/driver", "kafka", "known: pubsub"),
        ("/source/config", [], "config is required"),
        ("/source/config/project_id", "", "required"),
        ("/source/config/project_id", "a b", "spaces"),
        ("/source/config/project_id", "a/b", "'/'"),
        ("/source/config/subscription_id", "ab", "3 to 255"),
        ("/source/config/subscription_id", "goog-sub", "goog"),
        ("/source/config/subscription_id", "1sub", "letter"),
        ("/source/config/topic_id", "top", "unknown field"),
        ("/destination/config/topic_id", "tóp", "3 to 255"),
        ("/destination/config/topic_id", "t" * 256, "256 characters"),
        ("/destination/config/key_file", 7, "text"),
        ("/source/config/endpoint", "nowhere", "host:port"),
        ("/source/config/endpoint", "host:99999", "host:port"),
        ("/policy/max_delay", "0.5s", "1s to 36500d"),
        ("/policy/max_delay", True, "no duration"),
        ("/policy/max_delay", "soon", "no duration"),
        ("/policy/dedupe_window", "5m", "15m to 7d"),
        ("/policy/missing_time", "keep", "quarantine, release, discard"),
        ("/policy/bad_time", 1, "quarantine, release, discard"),
        ("/policy/time_unit", "ms", "s, auto"),
        ("/policy/rate_limit", 5, "can only be None in this version"),
        ("/policy/ordering", "strict", "can only be 'due'"),
        ("/policy/colour", 1, "unknown policy"),
        ("/policy/retry/attempts", 0, "whole number from 1"),
        ("/policy/retry/attempts", 1.5, "whole number"),
        ("/policy/retry/attempts", True, "whole number"),
        ("/policy/retry/max_backoff", "50ms", "below min_backoff"),
        ("/policy/retry/min_backoff", 0, "10ms to 1h"),
        ("/policy/retry/jitter", 0, "unknown field"),
    ],
)
def test_a_wrong_value_is_named_with_its_place_and_what_is_allowed(path: str, value: Any, says: str) -> None:
    with pytest.raises(InvalidCommand) as caught:
        parse(at(path, value))

    faults = {fault.pointer: fault.detail for fault in caught.value.errors}
    assert says in faults[path]


def test_all_faults_are_named_at_once() -> None:
    with pytest.raises(InvalidCommand, match="3 fields") as caught:
        parse({"id": "!", "source": 5, "destination": {}})

    assert [fault.pointer for fault in caught.value.errors] == ["/id", "/source", "/destination/config"]


@pytest.mark.parametrize("document", [None, [], "x", 5])
def test_what_is_no_object_is_no_channel(document: Any) -> None:
    with pytest.raises(InvalidCommand, match="JSON object"):
        parse(document)


@pytest.mark.parametrize("name", ["../key.json", "/etc/passwd", "..", "a\0b"])
def test_with_a_directory_for_key_files_only_a_bare_name_is_taken(name: str) -> None:
    document = at("/source/config/key_file", name)

    with pytest.raises(InvalidCommand, match="KEY_FILES_DIR"):
        parse_channel(document, bare_key_files=True)

    if "\0" not in name:
        assert parse(document).source.config.key_file == name


@pytest.mark.parametrize(
    ("target", "patch", "merged"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_merge_patch_follows_rfc_7396(target: Any, patch: Any, merged: Any) -> None:
    assert merge_patch(target, patch) == merged
