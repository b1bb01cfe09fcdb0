"""Messages over REST: what the engine accepted, read from state.db."""

from __future__ import annotations

import base64
import time
from typing import Any

import pytest
from django.test import Client

from engine.emulator import Emulator
from scheduler_project.times import parse_time
from tests.api.conftest import MakeChannel, wait_for
from tests.api.publishing import Publisher


@pytest.fixture
def channel(make_channel: MakeChannel) -> str:
    return str(make_channel()["id"])


def hold(api: Client, publisher: Publisher, channel: str, *messages: tuple[bytes, dict[str, str]]) -> list[str]:
    """Publish, and wait until the channel holds the messages and state.db shows them."""
    before = held(api, channel)
    ids = publisher.publish(f"{channel}-in", *messages)
    wait_for(lambda: held(api, channel) == before + len(messages))
    wait_for(lambda: listed(api, channel) == before + len(messages))
    return ids


def held(api: Client, channel: str) -> int:
    stats = api.get(f"/channels/{channel}").json()["stats"]
    return int(stats["pending"] + stats["quarantined"])


def listed(api: Client, channel: str) -> int:
    states = ("pending", "quarantined")
    return sum(len(api.get(f"/channels/{channel}/messages", {"state": s}).json()["results"]) for s in states)


def in_seconds(seconds: float) -> str:
    return f"{time.time() + seconds:.3f}"


def test_strong_consistency_lists_at_once_what_is_counted(api: Client, publisher: Publisher, channel: str) -> None:
    for number in range(1, 4):
        publisher.publish(f"{channel}-in", (b"x", {"available_at": in_seconds(3600)}))
        wait_for(lambda number=number: held(api, channel) == number)

        answer = api.get(f"/channels/{channel}/messages", {"consistency": "strong"})

        assert len(answer.json()["results"]) == number


def test_a_pending_message_is_shown_as_it_came(api: Client, publisher: Publisher, channel: str) -> None:
    due = in_seconds(3600)
    (source_id,) = hold(api, publisher, channel, (b"hello", {"available_at": due, "colour": "blue"}))
    (message,) = api.get(f"/channels/{channel}/messages").json()["results"]
    assert message["state"] == "pending"
    assert message["channel"] == channel
    assert message["source_message_id"] == source_id
    assert message["attributes"] == {"available_at": due, "colour": "blue"}
    assert parse_time(message["due"]) == parse_time(due)
    assert message["original_due"] == message["due"]
    assert message["due"].endswith("Z")
    assert "data" not in message
    assert message["attempts"] == 0
    whole = api.get(f"/channels/{channel}/messages/{message['id']}/").json()
    assert base64.b64decode(whole["data"]) == b"hello"


def test_bodies_come_when_they_are_asked_for(api: Client, publisher: Publisher, channel: str) -> None:
    hold(api, publisher, channel, (b"\x00\xff", {"available_at": in_seconds(3600)}))
    (message,) = api.get(f"/channels/{channel}/messages", {"data": "1"}).json()["results"]
    assert base64.b64decode(message["data"]) == b"\x00\xff"


def test_pages_are_in_due_order_over_near_and_far_times(api: Client, publisher: Publisher, channel: str) -> None:
    delays = [86400, 5000, 4990, 4995, 100_000, 4999, 90, 7_000_000]
    hold(api, publisher, channel, *((b"", {"available_at": in_seconds(delay)}) for delay in delays))
    path = f"/channels/{channel}/messages"
    everything = [message["due"] for message in api.get(path).json()["results"]]
    assert everything == sorted(everything)
    assert len(everything) == len(delays)
    page: dict[str, Any] = {"next": f"{path}?page_size=3"}
    forwards = []
    while page["next"] is not None:
        page = api.get(page["next"]).json()
        forwards += [message["due"] for message in page["results"]]
    assert forwards == everything
    backwards: list[str] = []
    while page["previous"] is not None:
        page = api.get(page["previous"]).json()
        backwards = [message["due"] for message in page["results"]] + backwards
    assert backwards == everything[: len(backwards)]
    assert len(backwards) == 6


def test_due_times_bound_a_list_from_the_first_to_before_the_last(
    api: Client, publisher: Publisher, channel: str
) -> None:
    dues = [str(int(time.time()) + delay) for delay in (1000, 2000, 3000)]
    hold(api, publisher, channel, *((due.encode(), {"available_at": due}) for due in dues))
    bounds = {"due_from": dues[0], "due_to": dues[2]}
    found = api.get(f"/channels/{channel}/messages", {**bounds, "data": "1"}).json()["results"]
    assert [base64.b64decode(message["data"]).decode() for message in found] == dues[:2]


def test_a_message_is_found_by_its_source_id(api: Client, publisher: Publisher, channel: str) -> None:
    soon = {"available_at": in_seconds(3600)}
    ids = hold(api, publisher, channel, (b"one", soon), (b"two", soon))
    found = api.get(f"/channels/{channel}/messages", {"source_message_id": ids[1]}).json()["results"]
    assert [message["source_message_id"] for message in found] == [ids[1]]


def test_a_wrong_time_is_in_the_quarantine_with_its_reason(api: Client, publisher: Publisher, channel: str) -> None:
    hold(api, publisher, channel, (b"", {"available_at": "tomorrow"}))
    assert api.get(f"/channels/{channel}/messages").json()["results"] == []
    (message,) = api.get(f"/channels/{channel}/messages", {"state": "quarantined"}).json()["results"]
    assert (message["state"], message["due"]) == ("quarantined", None)
    assert "tomorrow" in message["reason"]
    assert api.get(f"/channels/{channel}/messages/{message['id']}").json()["state"] == "quarantined"


def test_a_channel_that_holds_messages_is_not_deleted(api: Client, publisher: Publisher, channel: str) -> None:
    hold(api, publisher, channel, (b"", {"available_at": in_seconds(3600)}), (b"", {"available_at": "x"}))
    response = api.delete(f"/channels/{channel}")
    assert (response.status_code, response.json()["reason"]) == (409, "CHANNEL_NOT_EMPTY")
    assert (response.json()["count"], response.json()["pending"]) == (2, 1)
    assert api.delete(f"/channels/{channel}/?pending=discard").status_code == 204


def test_a_draining_channel_is_closing_until_its_messages_are_gone(
    api: Client, publisher: Publisher, channel: str
) -> None:
    hold(api, publisher, channel, (b"", {"available_at": in_seconds(3600)}))
    response = api.delete(f"/channels/{channel}?pending=drain")
    assert (response.status_code, response.json()["state"]) == (202, "closing")


@pytest.mark.parametrize(
    ("parameters", "pointer"),
    [
        ({"state": "released"}, "/state"),
        ({"state": "lost"}, "/state"),
        ({"due_from": "soon"}, "/due_from"),
        ({"due_to": "2026-01-01T00:00:00"}, "/due_to"),
        ({"data": "maybe"}, "/data"),
    ],
)
def test_a_filter_that_means_nothing_is_refused(
    api: Client, channel: str, parameters: dict[str, str], pointer: str
) -> None:
    response = api.get(f"/channels/{channel}/messages", parameters)
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (400, pointer)


@pytest.mark.parametrize("message_id", ["x", "0-0-0", "cluster-1-1", "%00"])
def test_a_message_that_was_never_here_is_not_found(api: Client, channel: str, message_id: str) -> None:
    response = api.get(f"/channels/{channel}/messages/{message_id}")
    assert (response.status_code, response.json()["reason"]) == (404, "NO_MESSAGE")


def test_another_channels_message_is_not_found_here(
    api: Client, publisher: Publisher, make_channel: MakeChannel, channel: str, emulator: Emulator
) -> None:
    other = str(make_channel()["id"])
    hold(api, publisher, other, (b"", {"available_at": in_seconds(3600)}))
    (message,) = api.get(f"/channels/{other}/messages").json()["results"]
    assert api.get(f"/channels/{channel}/messages/{message['id']}").status_code == 404


def test_a_page_of_large_messages_ends_early_and_goes_on(api: Client, publisher: Publisher, channel: str) -> None:
    body = b"x" * 6_000_000
    for delay in (1000, 2000, 3000):
        publisher.publish(f"{channel}-in", (body, {"available_at": in_seconds(delay)}))
    path = f"/channels/{channel}/messages"
    wait_for(lambda: len(api.get(path, {"page_size": 1, "due_from": in_seconds(2500)}).json()["results"]) == 1)
    wait_for(lambda: held(api, channel) == 3)
    wait_for(lambda: api.get(path).json()["next"] is not None)
    first = api.get(path).json()
    assert len(first["results"]) == 2
    assert len(api.get(first["next"]).json()["results"]) == 1
