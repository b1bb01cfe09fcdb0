"""Channels over REST, against a real engine."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from tests.api.conftest import MakeChannel, channel_body

JSON = "application/json"


def test_a_created_channel_is_answered_with_its_location_and_revision(api: Client, make_channel: MakeChannel) -> None:
    created = make_channel()
    response = api.get(f"/channels/{created['id']}")
    assert response.status_code == 200
    assert response.headers["ETag"] == f'"{created["revision"]}"'
    assert response.json()["source"] == created["source"]


def test_the_location_of_a_created_channel_leads_to_it(api: Client) -> None:
    body = {**channel_body("located"), "name": "Located"}
    response = api.post("/channels/", body, content_type=JSON)
    assert response.status_code == 201
    assert response.headers["Location"] == "http://testserver/channels/located"
    assert api.get(response.headers["Location"]).json()["name"] == "Located"


@pytest.mark.parametrize("path", ["/channels", "/channels/"])
def test_lists_are_pages_with_and_without_a_slash(api: Client, make_channel: MakeChannel, path: str) -> None:
    created = make_channel()
    body = api.get(path).json()
    assert set(body) == {"results", "next", "previous"}
    assert created["id"] in [channel["id"] for channel in body["results"]]


def test_pages_lead_through_all_channels_and_back(api: Client, make_channel: MakeChannel) -> None:
    for _ in range(3):
        make_channel()
    everything = [channel["id"] for channel in api.get("/channels").json()["results"]]
    page = api.get("/channels", {"page_size": 2}).json()
    forwards, last = [c["id"] for c in page["results"]], page
    while last["next"] is not None:
        last = api.get(last["next"]).json()
        forwards += [channel["id"] for channel in last["results"]]
    assert forwards == everything
    before = api.get(last["previous"]).json()["results"]
    assert [channel["id"] for channel in before] == everything[: -len(last["results"])][-2:]


def test_a_page_size_above_the_maximum_is_cut(api: Client) -> None:
    assert api.get("/channels", {"page_size": 100_000}).status_code == 200


@pytest.mark.parametrize("parameters", [{"page_size": "0"}, {"page_size": "x"}, {"cursor": "nonsense"}])
def test_a_page_that_cannot_be_is_refused(api: Client, parameters: dict[str, str]) -> None:
    response = api.get("/channels", parameters)
    assert response.status_code == 400
    assert response.json()["errors"][0]["pointer"] == f"/{next(iter(parameters))}"


def test_a_body_with_faults_names_each_field(api: Client) -> None:
    response = api.post("/channels", {"source": {"driver": "kafka"}}, content_type=JSON)
    assert response.status_code == 400
    assert response.headers["Content-Type"] == "application/problem+json"
    problem = response.json()
    assert problem["reason"] == "INVALID"
    pointers = {fault["pointer"] for fault in problem["errors"]}
    assert "/destination" in pointers


def test_an_id_that_exists_is_a_conflict(api: Client, make_channel: MakeChannel) -> None:
    created = make_channel()
    response = api.post("/channels", channel_body(created["id"]), content_type=JSON)
    assert (response.status_code, response.json()["reason"]) == (409, "CHANNEL_EXISTS")


def test_a_patch_merges_and_raises_the_revision(api: Client, make_channel: MakeChannel) -> None:
    created = make_channel()
    patch = {"policy": {"max_delay": "30d"}}
    response = api.patch(f"/channels/{created['id']}/", patch, content_type="application/merge-patch+json")
    assert response.status_code == 200
    assert response.json()["policy"]["max_delay"] == "30d"
    assert response.json()["policy"]["bad_time"] == created["policy"]["bad_time"]
    assert response.json()["revision"] > created["revision"]


@pytest.mark.parametrize("tag", ['"99"', "99", '"no-number"', 'W/"98", "99"'])
def test_a_patch_for_another_revision_changes_nothing(api: Client, make_channel: MakeChannel, tag: str) -> None:
    created = make_channel()
    path = f"/channels/{created['id']}"
    response = api.patch(path, {"name": "late"}, content_type=JSON, headers={"If-Match": tag})
    assert (response.status_code, response.json()["reason"]) == (412, "REVISION_MISMATCH")
    assert api.get(path).json()["name"] == created["name"]


@pytest.mark.parametrize("tag", ['"{}"', "{}", "*", '"77", "{}"'])
def test_a_patch_for_the_current_revision_is_applied(api: Client, make_channel: MakeChannel, tag: str) -> None:
    created = make_channel()
    headers = {"If-Match": tag.format(created["revision"])}
    response = api.patch(f"/channels/{created['id']}", {"name": "new"}, content_type=JSON, headers=headers)
    assert (response.status_code, response.json()["name"]) == (200, "new")


def test_an_empty_channel_is_deleted_and_then_unknown(api: Client, make_channel: MakeChannel) -> None:
    path = f"/channels/{make_channel()['id']}"
    assert api.delete(path).status_code == 204
    response = api.get(path)
    assert (response.status_code, response.json()["reason"]) == (404, "NO_CHANNEL")


@pytest.mark.parametrize("mode", ["move:other", "burn"])
def test_an_unknown_way_of_deletion_is_refused(api: Client, make_channel: MakeChannel, mode: str) -> None:
    path = f"/channels/{make_channel()['id']}"
    response = api.delete(f"{path}?pending={mode}")
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (400, "/pending")
    assert api.get(path).status_code == 200


def test_pause_and_resume_name_who_and_why(api: Client, make_channel: MakeChannel) -> None:
    path = f"/channels/{make_channel()['id']}"
    body = {"side": "release", "reason": "maintenance"}
    paused = api.post(f"{path}/pause", body, content_type=JSON).json()
    assert paused["paused"]["listen"] is None
    assert paused["paused"]["release"] == {"by": "local", "reason": "maintenance", "until": None}
    assert api.post(f"{path}/resume/", {}, content_type=JSON).json()["paused"] == {"listen": None, "release": None}


@pytest.mark.parametrize(
    ("body", "pointer"),
    [({"side": "left"}, "/side"), ({"until": True}, "/until"), ({"reason": 7}, "/reason"), ({"why": "x"}, "/why")],
)
def test_a_pause_that_says_something_odd_is_refused(
    api: Client, make_channel: MakeChannel, body: dict[str, Any], pointer: str
) -> None:
    response = api.post(f"/channels/{make_channel()['id']}/pause", body, content_type=JSON)
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (400, pointer)


def test_an_idempotency_key_makes_a_retry_safe(api: Client, make_channel: MakeChannel) -> None:
    headers = {"Idempotency-Key": "make-once"}
    body = channel_body("once")
    first = api.post("/channels", body, content_type=JSON, headers=headers)
    again = api.post("/channels", body, content_type=JSON, headers=headers)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json()["created_at"] == first.json()["created_at"]
    other = api.post("/channels", channel_body("twice"), content_type=JSON, headers=headers)
    assert (other.status_code, other.json()["reason"]) == (422, "IDEMPOTENCY_KEY_REUSED")


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"",
        b"[]",
        b'"text"',
        b'{"name": NaN}',
        b'{"name": "\\ud800"}',
        b'{"name": "\xff"}',
        b'{"name": 123456789012345678901234567890}',
        b"[" * 5000,
        b'{"name":' * 100 + b"1" + b"}" * 100,
    ],
)
def test_a_body_that_is_no_channel_is_a_problem_of_the_callers(api: Client, body: bytes) -> None:
    response = api.generic("POST", "/channels", body, content_type=JSON)
    assert response.status_code == 400
    assert response.headers["Content-Type"] == "application/problem+json"


def test_a_body_that_is_too_large_is_refused_unread(api: Client) -> None:
    response = api.generic("POST", "/channels", b" " * (16 * 1024 * 1024), content_type=JSON)
    assert (response.status_code, response.json()["reason"]) == (413, "BODY_TOO_LARGE")


def test_another_media_type_is_refused(api: Client) -> None:
    response = api.post("/channels", "a=1", content_type="text/plain")
    assert (response.status_code, response.json()["status"]) == (415, 415)


def test_a_method_that_a_resource_does_not_have_is_refused(api: Client) -> None:
    response = api.put("/channels", {}, content_type=JSON)
    assert (response.status_code, response.json()["reason"]) == (405, "METHOD_NOT_ALLOWED")
    assert "POST" in response.headers["Allow"]


@pytest.mark.parametrize("path", ["/nothing", "/channels/a/b/c", "/channels/none", "/channels/none/messages"])
def test_what_is_not_there_is_a_problem_document(api: Client, path: str) -> None:
    response = api.get(path)
    assert response.status_code == 404
    assert response.headers["Content-Type"] == "application/problem+json"
    assert response.json()["title"] == "Not Found"


def test_strong_consistency_is_answered_while_someone_leads(api: Client) -> None:
    assert api.get("/channels", {"consistency": "strong"}).status_code == 200
    assert api.get("/channels", {"consistency": "iron"}).status_code == 400
