"""Django's own opinion of a production-like configuration, and of the migrations."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from django.apps import apps

from scheduler_project.replica.models import ReplicaModel
from tests.tidy.tree import PACKAGES, ROOT


def test_check_deploy_has_nothing_to_say(tmp_path: Path) -> None:
    assert _manage(tmp_path, "check", "--deploy", "--fail-level", "WARNING") == ""


def test_every_model_change_has_its_migration(tmp_path: Path) -> None:
    assert _manage(tmp_path, "makemigrations", "--check", "--dry-run") == ""


def test_no_model_of_ours_is_kept_in_djangos_own_tables() -> None:
    ours = [model for model in apps.get_models() if model.__module__.split(".")[0] in PACKAGES]
    assert ours, "the apps have models over state.db"
    assert [model.__name__ for model in ours if model._meta.managed or not issubclass(model, ReplicaModel)] == []


def _manage(storage: Path, *arguments: str) -> str:
    """What a management command complains of, with the environment of a node that others can reach."""
    environment = {
        "PATH": os.environ["PATH"],
        "STORAGE_PATH": str(storage),
        "API_HOST": "0.0.0.0",
        "API_TOKEN": "for-this-test-alone",
        "SECRET_KEY": "".join(map(chr, range(48, 123))),
        "ALLOWED_HOSTS": "scheduler.example.com",
        "CSRF_TRUSTED_ORIGINS": "https://scheduler.example.com",
        "TRUSTED_PROXIES": "10.0.0.0/8",
    }
    command = [sys.executable, "-W", "error", "manage.py", *arguments]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return "" if ended.returncode == 0 else ended.stdout + ended.stderr
