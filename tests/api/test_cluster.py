"""The cluster, the probes and the metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.test import Client

from scheduler_project.secret import Secret
from scheduler_project.signing import SigningKey


@pytest.mark.parametrize("path", ["/cluster", "/cluster/"])
def test_the_cluster_names_its_leader_and_members(api: Client, path: str) -> None:
    cluster = api.get(path).json()
    assert cluster["leader"] in [node["node_addr"] for node in cluster["nodes"]]
    assert cluster["commit_index"] > 0


def test_the_probes_are_checklists(api: Client) -> None:
    for path in ("/livez", "/readyz"):
        response = api.get(path)
        assert response.status_code == 200
        assert response.headers["Content-Type"].startswith("text/plain")
        lines = response.content.decode().splitlines()
        assert lines
        assert all(line.startswith("[+]") and line.endswith(" ok") for line in lines), lines


def test_metrics_are_prometheus_text(api: Client) -> None:
    response = api.get("/metrics")
    assert response.status_code == 200
    assert b"# HELP event_scheduler_" in response.content


def test_the_version_names_its_protocols(api: Client) -> None:
    version = api.get("/version").json()
    assert set(version) == {"version", "revision", "python", "protocols"}


@pytest.fixture
def no_engine(web: None, settings: Any, tmp_path: Path) -> None:
    """A storage path where no engine runs, and nobody has asked one for the signing key before."""
    connections["state"].close()
    settings.STORAGE_PATH = tmp_path
    settings.SECRET_KEY = SigningKey(Secret("SECRET_KEY", {}))


@pytest.mark.usefixtures("no_engine")
def test_without_an_engine_the_probes_say_so(api: Client) -> None:
    for path in ("/livez", "/readyz"):
        response = api.get(path)
        assert response.status_code == 503
        assert response.content.startswith(b"[-]engine failed: ")


@pytest.mark.usefixtures("no_engine")
def test_without_an_engine_calls_are_unavailable_and_worth_a_retry(api: Client) -> None:
    for response in (api.get("/channels"), api.delete("/channels/a"), api.get("/metrics")):
        assert (response.status_code, response.json()["reason"]) == (503, "ENGINE_UNREACHABLE")
        assert int(response.headers["Retry-After"]) >= 1


@pytest.mark.usefixtures("no_engine")
def test_without_an_engine_the_admin_says_so(api: Client) -> None:
    response = api.get("/admin/login/")
    assert (response.status_code, response.json()["reason"]) == (503, "NO_SECRET_KEY")


def test_a_state_that_cannot_be_read_is_unavailable_not_a_failure(
    api: Client, storage_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections["state"].close()
    (storage_path / "state" / "state.db").rename(storage_path / "state" / "hidden.db")
    try:
        response = api.get("/channels/none/messages")
        ready = api.get("/readyz")
    finally:
        (storage_path / "state" / "hidden.db").rename(storage_path / "state" / "state.db")
    assert (response.status_code, response.json()["reason"]) in ((503, "STATE_UNAVAILABLE"), (404, "NO_CHANNEL"))
    assert ready.status_code == 503
