"""A database backend for state.db: SQLite opened read-only, each statement bounded in time.

The file belongs to the engine, which opens it first: a read-only reader of a write-ahead log needs the engine's shared
memory file. Its path follows the setting STORAGE_PATH at each connection.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.db.backends.sqlite3 import base
from django.db.backends.sqlite3.creation import DatabaseCreation

from scheduler_project.limits import LIMITS

_STEPS_BETWEEN_CHECKS = 10_000


class ReplicaCreation(DatabaseCreation):
    """Tests never make or destroy this database: it is the engine's."""

    def create_test_db(self, *_args: Any, **_kwargs: Any) -> str:
        return str(self.connection.settings_dict["NAME"])

    def destroy_test_db(self, *_args: Any, **_kwargs: Any) -> None:
        """Leave the engine's file alone."""


class DatabaseWrapper(base.DatabaseWrapper):
    """SQLite, read-only, with a time limit that starts anew at each statement."""

    creation_class = ReplicaCreation

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadline_s = 0.0
        self.execute_wrappers.append(self._start_time_limit)

    def get_connection_params(self) -> dict[str, Any]:
        parameters: dict[str, Any] = super().get_connection_params()
        path = settings.STORAGE_PATH / "state" / "state.db"
        parameters["database"] = f"file:{quote(str(path))}?mode=ro"
        parameters["timeout"] = LIMITS.busy_timeout_s
        return parameters

    def get_new_connection(self, conn_params: dict[str, Any]) -> sqlite3.Connection:
        connection: sqlite3.Connection = super().get_new_connection(conn_params)
        connection.execute("PRAGMA query_only = ON")
        # Sorting stays in memory: nothing is written outside STORAGE_PATH.
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.set_progress_handler(lambda: time.monotonic() > self._deadline_s, _STEPS_BETWEEN_CHECKS)
        return connection

    def _start_time_limit(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        self._deadline_s = time.monotonic() + LIMITS.read_time_limit_s
        return execute(sql, params, many, context)
