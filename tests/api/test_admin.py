"""The admin's pages, each against a real engine."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from channels_app.models import Channel, Message
from scheduler_project.accounts import Role
from scheduler_project.client import get_client
from scheduler_project.replica.models import ReadOnlyState
from tests.api.conftest import PROJECT, MakeChannel, login, wait_for
from tests.api.publishing import Publisher

CHANNELS = "admin:channels_app_channel_changelist"
ADD = "admin:channels_app_channel_add"
CHANGE = "admin:channels_app_channel_change"
DELETE = "admin:channels_app_channel_delete"
MESSAGES = "admin:channels_app_message_changelist"
QUARANTINE = "admin:channels_app_quarantinedmessage_changelist"


def form(channel_id: str, **changes: str) -> dict[str, str]:
    """The form of a channel as a browser sends it."""
    return {
        "id": channel_id,
        "name": channel_id,
        "source_project_id": PROJECT,
        "source_subscription_id": f"{channel_id}-in",
        "destination_project_id": PROJECT,
        "destination_topic_id": f"{channel_id}-out",
        "missing_time": "quarantine",
        "bad_time": "quarantine",
        "time_unit": "s",
        **changes,
    }


def text(client: Client, url: str, **parameters: str) -> str:
    """A page that must be there."""
    response = client.get(url, parameters)
    assert response.status_code == 200, response
    return response.content.decode()


def test_a_stranger_is_asked_to_log_in(api: Client) -> None:
    response = api.get("/admin/")
    assert (response.status_code, response.headers["Location"]) == (302, "/admin/login/?next=/admin/")
    assert "Event Scheduler" in text(api, "/admin/login/")


def test_the_root_leads_to_the_admin(api: Client) -> None:
    assert api.get("/").headers["Location"] == "/admin/"
    assert api.get("/admin").headers["Location"] == "/admin/"


def test_static_files_are_served_without_being_collected(api: Client) -> None:
    for path in ("/static/admin/css/base.css", "/static/event_scheduler/admin.css"):
        response = api.get(path)
        assert response.status_code == 200
        assert b"".join(response.streaming_content)
        response.close()


def test_the_overview_names_what_can_be_managed(admin: Client) -> None:
    page = text(admin, "/admin/")
    for word in ("Channels", "Pending messages", "Quarantined messages"):
        assert word in page
    assert "password_change" not in page


def test_the_list_shows_each_channels_state_and_figures(admin: Client, make_channel: MakeChannel) -> None:
    created = make_channel()
    page = text(admin, reverse(CHANNELS), q=created["id"])
    assert created["id"] in page
    assert re.search(r"es-(active|failed)", page)
    assert f"{PROJECT} / {created['id']}-in" in page


def test_a_channel_is_added_changed_and_deleted(admin: Client, api: Client) -> None:
    added = admin.post(reverse(ADD), form("by-admin", max_delay="30d"))
    assert added.status_code == 302, added.content.decode()
    channel = api.get("/channels/by-admin").json()
    assert channel["policy"]["max_delay"] == "30d"
    change = reverse(CHANGE, args=("by-admin",))
    assert 'value="30d"' in text(admin, change)
    changed = admin.post(change, form("by-admin", name="Renamed", revision=str(channel["revision"])))
    assert changed.status_code == 302, changed.content.decode()
    assert api.get("/channels/by-admin").json()["name"] == "Renamed"
    delete = reverse(DELETE, args=("by-admin",))
    assert "holds no message" in text(admin, delete)
    assert admin.post(delete).status_code == 302
    assert api.get("/channels/by-admin").status_code == 404


def test_faults_stand_at_their_fields(admin: Client, api: Client) -> None:
    response = admin.post(reverse(ADD), form("faulty", source_subscription_id="x", max_delay="soon"))
    assert response.status_code == 200
    faults = response.context["adminform"].form.errors
    assert set(faults) == {"source_subscription_id", "max_delay"}
    assert api.get("/channels/faulty").status_code == 404


def test_a_change_of_what_someone_else_has_changed_is_refused(
    admin: Client, api: Client, make_channel: MakeChannel
) -> None:
    created = make_channel()
    path = f"/channels/{created['id']}"
    api.patch(path, {"name": "first"}, content_type="application/json")
    stale = form(created["id"], name="second", revision=str(created["revision"]))
    response = admin.post(reverse(CHANGE, args=(created["id"],)), stale)
    assert response.status_code == 200
    assert "revision" in str(response.context["adminform"].form.non_field_errors())
    assert api.get(path).json()["name"] == "first"


def test_pause_and_resume_carry_the_users_name(admin: Client, api: Client, make_channel: MakeChannel) -> None:
    channel_id = make_channel()["id"]
    admin.post(reverse("admin:channels_app_channel_pause", args=(channel_id,)), {"reason": "tea"})
    assert api.get(f"/channels/{channel_id}").json()["paused"]["release"] == {
        "by": "root",
        "reason": "tea",
        "until": None,
    }
    assert "Resume" in text(admin, reverse(CHANGE, args=(channel_id,)))
    admin.post(reverse("admin:channels_app_channel_resume", args=(channel_id,)))
    assert api.get(f"/channels/{channel_id}").json()["paused"]["listen"] is None


def test_messages_are_listed_found_and_shown(
    admin: Client, api: Client, make_channel: MakeChannel, publisher: Publisher
) -> None:
    channel_id = make_channel()["id"]
    later = {"available_at": f"{time.time() + 1800:.0f}", "colour": "<blue>"}
    ids = publisher.publish(f"{channel_id}-in", (b'{"a": 1}', later), (b"", {"available_at": "x"}))
    path = f"/channels/{channel_id}/messages"
    wait_for(lambda: len(api.get(path).json()["results"]) == 1)
    (message,) = api.get(path).json()["results"]
    page = text(admin, reverse(MESSAGES), channel=channel_id, range="hour")
    assert message["id"] in page
    assert message["id"] not in text(admin, reverse(MESSAGES), channel=channel_id, range="overdue")
    assert message["id"] in text(admin, reverse(MESSAGES), q=ids[0])
    found = admin.get(reverse(MESSAGES), {"q": message["id"]})
    whole = text(admin, found.headers["Location"])
    assert "&lt;blue&gt;" in whole
    assert "&quot;a&quot;: 1" in whole
    wait_for(lambda: channel_id in text(admin, reverse(QUARANTINE), channel=channel_id))
    assert "available_at" in text(admin, reverse(QUARANTINE), channel=channel_id)


def test_pages_of_messages_lead_on_and_back(admin: Client, make_channel: MakeChannel, publisher: Publisher) -> None:
    channel_id = make_channel()["id"]
    dues = [time.time() + 1000 + step for step in range(60)]
    publisher.publish(f"{channel_id}-in", *((b"", {"available_at": f"{due:.3f}"}) for due in dues))
    url = reverse(MESSAGES)
    wait_for(lambda: 'rel="next"' in text(admin, url, channel=channel_id))
    following = admin.get(url, {"channel": channel_id}).context["next"]
    second = admin.get(url + following)
    assert len(second.context["rows"]) == 10
    first = admin.get(url + second.context["previous"])
    assert len(first.context["rows"]) == 50


def test_a_message_that_is_gone_is_not_found(admin: Client) -> None:
    for pk in ("999999", "x"):
        assert admin.get(reverse("admin:channels_app_message_change", args=(pk,))).status_code == 404


def test_discarding_asks_for_the_channels_id(
    admin: Client, api: Client, make_channel: MakeChannel, publisher: Publisher
) -> None:
    channel_id = make_channel()["id"]
    publisher.publish(f"{channel_id}-in", (b"", {"available_at": f"{time.time() + 1800:.0f}"}))
    path = f"/channels/{channel_id}"
    wait_for(lambda: api.get(path).json()["stats"]["pending"] == 1)
    delete = reverse(DELETE, args=(channel_id,))
    assert "1 pending" in text(admin, delete)
    refused = admin.post(delete, {"pending": "discard", "confirmation": "yes"})
    assert "Type the channel" in refused.content.decode()
    assert api.get(path).status_code == 200
    assert admin.post(delete, {"pending": "discard", "confirmation": channel_id}).status_code == 302
    assert api.get(path).status_code == 404


@pytest.mark.parametrize(("role", "may_pause"), [(Role.VIEWER, False), (Role.OPERATOR, True)])
def test_lesser_roles_see_and_are_not_offered_more(make_channel: MakeChannel, role: Role, may_pause: bool) -> None:
    channel_id = make_channel()["id"]
    browser = login("lesser", role)
    assert channel_id in text(browser, reverse(CHANNELS), q=channel_id)
    page = text(browser, reverse(CHANGE, args=(channel_id,)))
    assert ("Pause both sides" in page) is may_pause
    assert browser.get(reverse(ADD)).status_code == 403
    assert browser.post(reverse(CHANGE, args=(channel_id,)), form(channel_id)).status_code == 403
    assert browser.post(reverse(DELETE, args=(channel_id,))).status_code == 403
    pause = browser.post(reverse("admin:channels_app_channel_pause", args=(channel_id,)))
    assert pause.status_code == (302 if may_pause else 403)


def test_the_orm_refuses_to_write_the_state(web: None, make_channel: MakeChannel) -> None:
    created = make_channel()
    get_client().fresh()
    channel = Channel.objects.get(pk=created["id"])
    for write in (
        Channel.objects.all().delete,
        lambda: Channel.objects.update(name="x"),
        lambda: Message.objects.create(seq=1),
        lambda: Message.objects.bulk_create([]),
        channel.save,
        channel.delete,
    ):
        with pytest.raises(ReadOnlyState, match="engine alone"):
            write()


def test_the_cluster_has_a_page(admin: Client) -> None:
    page = text(admin, "/admin/cluster_app/member/")
    assert "leader" in page
    assert "localhost:5559" in page
    assert admin.get("/admin/cluster_app/member/localhost/change/").status_code == 404


def test_refusals_are_pages_for_people(admin: Client, settings: Any, tmp_path: Path) -> None:
    missing = admin.get("/admin/nothing/")
    assert (missing.status_code, missing.headers["Content-Type"]) == (404, "text/html; charset=utf-8")
    unknown = admin.get(reverse(DELETE, args=("never-there",)))
    assert unknown.status_code == 404
    assert "never-there" in unknown.content.decode()
    running = settings.STORAGE_PATH
    settings.STORAGE_PATH = tmp_path
    try:
        away = admin.get("/admin/cluster_app/member/")
    finally:
        settings.STORAGE_PATH = running
    assert away.status_code == 503
    assert "does not answer" in away.content.decode()
