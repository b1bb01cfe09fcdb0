"""One engine in this process for all of these tests, behind Django's test client; each test has channels of its own."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.db import connections
from django.test import Client
from django.test.utils import setup_databases, teardown_databases

from engine.config import EngineConfig, Limits, StateLimits
from engine.emulator import Emulator
from engine.node import Node
from scheduler_project.accounts import AdminUser, Role, Tokens
from scheduler_project.admin_users import store_users
from scheduler_project.client import get_client, get_health_client
from tests.api.publishing import Publisher

MakeChannel = Callable[..., dict[str, Any]]
PROJECT = "api-tests"
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def emulator() -> Iterator[Emulator]:
    with Emulator() as running:
        yield running


@pytest.fixture(scope="session")
def publisher(emulator: Emulator) -> Iterator[Publisher]:
    running = Publisher(emulator.address, PROJECT)
    yield running
    running.close()


@pytest.fixture(scope="session")
def storage_path(emulator: Emulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where an engine runs."""
    path = tmp_path_factory.mktemp("api") / "storage"
    limits = Limits(state=StateLimits(boundary_period_s=0.05))
    node = Node(EngineConfig(storage_path=path, emulator_host=emulator.address, limits=limits))
    node.start()
    yield path
    node.stop(5.0)


@pytest.fixture(scope="session")
def own_tables(django_test_environment: None, django_db_blocker: Any) -> Iterator[None]:
    """Django's own tables, in memory."""
    with django_db_blocker.unblock():
        made = setup_databases(verbosity=0, interactive=False, aliases={"default"})
    yield
    with django_db_blocker.unblock():
        teardown_databases(made, verbosity=0)


@pytest.fixture(autouse=True)
def web(
    storage_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch, own_tables: None, django_db_blocker: Any
) -> Iterator[None]:
    """Django over that engine, without the transactions of a TestCase: a reader of state.db must see what comes."""
    settings.STORAGE_PATH = storage_path
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    set_tokens(monkeypatch, {})
    with django_db_blocker.unblock():
        wait_for(lambda: get_client().cluster()["leader"] is not None)
        yield
        User.objects.all().delete()
        connections["state"].close()
        settings.STORAGE_PATH = storage_path
        for client in (get_client(), get_health_client()):
            client.close()


@pytest.fixture
def make_channel(api: Client, emulator: Emulator) -> MakeChannel:
    """Makes a channel whose topic and subscription exist; `held` ones do not release."""

    def make(*, held: bool = False, **changes: Any) -> dict[str, Any]:
        name = f"channel-{next(_numbers)}"
        for topic in (f"{name}-in", f"{name}-out"):
            emulator.create_topic(PROJECT, topic)
        emulator.create_subscription(PROJECT, f"{name}-in", f"{name}-in")
        document = {**channel_body(name), **changes}
        response = api.post("/channels", document, content_type="application/json")
        assert response.status_code == 201, response.content
        if held:
            pause = {"side": "release"}
            assert api.post(f"/channels/{name}/pause", pause, content_type="application/json").status_code == 200
        return response.json()

    return make


@pytest.fixture(scope="session")
def api() -> Client:
    """A caller on this machine; one for all, since each new one looks for all static files first."""
    return Client(raise_request_exception=True)


@pytest.fixture
def admin(web: None) -> Client:
    """A browser with an admin's session."""
    return login("root", Role.ADMIN)


def login(username: str, role: Role) -> Client:
    """A browser that has logged in through the admin's page."""
    hashed = make_password("secret", salt="pepper")
    store_users([AdminUser(username=username, password_hash=hashed, role=role)])
    browser = Client()
    response = browser.post("/admin/login/?next=/admin/", {"username": username, "password": "secret"})
    assert response.status_code == 302, response.content
    return browser


def set_tokens(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> None:
    """Let the web side accept the tokens of this environment."""
    accepted = Tokens(environ)
    monkeypatch.setattr("scheduler_project.auth.tokens", lambda: accepted)


def channel_body(name: str) -> dict[str, Any]:
    """The body that creates a channel."""
    return {
        "id": name,
        "source": {"driver": "pubsub", "config": {"project_id": PROJECT, "subscription_id": f"{name}-in"}},
        "destination": {"driver": "pubsub", "config": {"project_id": PROJECT, "topic_id": f"{name}-out"}},
    }


def wait_for(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Poll until `condition` holds."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.01)
