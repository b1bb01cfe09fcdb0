"""Who may call what."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from django.test import Client

from scheduler_project.accounts import Role
from tests.api.conftest import MakeChannel, channel_body, login, set_tokens

JSON = "application/json"


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    set_tokens(monkeypatch, {"API_TOKEN": "opensesame"})
    return {"Authorization": "Bearer opensesame"}


@pytest.mark.parametrize("path", ["/channels", "/channels/x", "/cluster", "/metrics", "/version", "/nothing"])
def test_with_a_token_configured_everything_asks_for_it(api: Client, token: dict[str, str], path: str) -> None:
    response = api.get(path)
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == "Bearer"
    assert response.json()["reason"] == "UNAUTHENTICATED"
    assert api.get(path, headers=token).status_code in (200, 404)


@pytest.mark.parametrize("value", ["Bearer wrong", "Bearer ", "Basic opensesame", "opensesame", "Bearer \xfc"])
def test_a_wrong_credential_is_refused(api: Client, token: dict[str, str], value: str) -> None:
    assert api.get("/channels", headers={"Authorization": value}).status_code == 401


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/livez/", "/readyz/"])
def test_probes_ask_nobody(api: Client, token: dict[str, str], path: str) -> None:
    assert api.get(path, headers={"Host": "10.1.2.3:5569"}).status_code == 200


def test_an_unknown_host_is_refused_elsewhere(api: Client) -> None:
    assert api.get("/metrics", headers={"Host": "10.1.2.3:5569"}).status_code == 200
    response = api.get("/channels", headers={"Host": "10.1.2.3:5569"})
    assert (response.status_code, response.json()["reason"]) == (400, "MALFORMED")


def test_without_a_token_only_this_machine_has_rights(api: Client) -> None:
    assert api.get("/channels", REMOTE_ADDR="::1").status_code == 200
    assert api.get("/channels", REMOTE_ADDR="::ffff:127.0.0.1").status_code == 200
    assert api.get("/channels", REMOTE_ADDR="192.0.2.7").status_code == 401


def test_a_caller_behind_an_unknown_proxy_is_not_taken_for_local(api: Client) -> None:
    assert api.get("/channels", headers={"X-Forwarded-For": "192.0.2.7"}).status_code == 401


def test_another_sites_page_cannot_act_for_its_local_reader(api: Client, make_channel: MakeChannel) -> None:
    path = f"/channels/{make_channel()['id']}/pause"
    foreign = api.post(path, {}, content_type=JSON, headers={"Origin": "https://evil.example"})
    assert (foreign.status_code, foreign.json()["reason"]) == (403, "CSRF_FAILED")
    assert api.post(path, {}, content_type=JSON, headers={"Origin": "http://testserver"}).status_code == 200


def test_roles_bound_what_a_token_may_do(
    api: Client, make_channel: MakeChannel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = f"/channels/{make_channel()['id']}"
    entries = [
        {"name": role, "sha256": hashlib.sha256(role.encode()).hexdigest(), "role": role}
        for role in ("viewer", "operator", "admin")
    ]
    file = tmp_path / "tokens.json"
    file.write_text(json.dumps(entries))
    set_tokens(monkeypatch, {"API_TOKENS_FILE": str(file)})
    may = {}
    for role in ("viewer", "operator", "admin"):
        headers = {"Authorization": f"Bearer {role}"}
        may[role] = (
            api.get(path, headers=headers).status_code,
            api.post(f"{path}/pause", {}, content_type=JSON, headers=headers).status_code,
            api.patch(path, {"name": role}, content_type=JSON, headers=headers).status_code,
        )
    assert may == {"viewer": (200, 403, 403), "operator": (200, 200, 403), "admin": (200, 200, 200)}
    paused = api.get(path, headers={"Authorization": "Bearer admin"}).json()["paused"]
    assert paused["listen"]["by"] == "admin"


def test_a_session_calls_the_api_with_its_csrf_token(web: None, monkeypatch: pytest.MonkeyPatch) -> None:
    login("root", Role.ADMIN)
    set_tokens(monkeypatch, {"API_TOKEN": "opensesame"})
    browser = Client(enforce_csrf_checks=True)
    browser.get("/admin/login/")
    csrf = browser.cookies["event_scheduler_csrf"].value
    form = {"username": "root", "password": "secret", "csrfmiddlewaretoken": csrf}
    assert browser.post("/admin/login/?next=/admin/", form).status_code == 302
    assert browser.get("/channels").status_code == 200
    refused = browser.post("/channels", channel_body("by-session"), content_type=JSON)
    assert (refused.status_code, refused.json()["reason"]) == (403, "CSRF_FAILED")
    headers = {"X-CSRFToken": browser.cookies["event_scheduler_csrf"].value}
    assert browser.post("/channels", channel_body("by-session"), content_type=JSON, headers=headers).status_code == 201


def test_cookies_are_marked_secure_over_https_alone(web: None) -> None:
    login("root", Role.ADMIN)
    form = {"username": "root", "password": "secret"}
    for secure in (False, True):
        browser = Client()
        browser.post("/admin/login/?next=/admin/", form, secure=secure)
        assert bool(browser.cookies["event_scheduler_session"]["secure"]) is secure
