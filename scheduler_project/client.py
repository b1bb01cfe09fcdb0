"""The engine's client, one for a process; connections are made per thread, at the first call."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from django.conf import settings

from engine.client import Client
from engine.config import ControlLimits
from scheduler_project.limits import LIMITS


def get_client() -> Client:
    """The client of this node's engine."""
    return _client(settings.STORAGE_PATH, ControlLimits())


def get_health_client() -> Client:
    """The same with the short patience of a probe."""
    return _client(settings.STORAGE_PATH, ControlLimits(request_timeout_s=LIMITS.health_timeout_s))


@lru_cache(maxsize=8)
def _client(storage_path: Path, limits: ControlLimits) -> Client:
    return Client(storage_path, limits)
