"""One node from start to end: the engine in this process, the web side below it, and the order of their going.

Start: configuration → engine (lock, replay, control socket) → web side; Django's own tables and the logins are made
while it loads, and it says that it is ready once they are there.
Stop: the web side finishes its requests, which still need the engine → engine. Signals only set flags.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from types import FrameType

import structlog
from django.core.management import call_command
from django.db import DatabaseError

from engine.config import EngineConfig
from engine.node import Node
from scheduler_project.accounts import AdminUser, AdminUsers
from scheduler_project.admin_users import store_users
from scheduler_project.env import WebConfig
from scheduler_project.limits import LIMITS
from scheduler_project.supervisor import WebChild

log = structlog.get_logger(__name__)
_LOOK_S = 0.25
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


_YOUNG_OBJECTS = 50_000
_OLD_ROUNDS = 100


def spare_collector() -> None:
    """Keep Python's cycle collector off what lives long: a full round over it would stop every thread for long.

    What was made until now is never looked at again, and new objects seldom. Messages in memory are tuples of plain
    values, which hold no cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, 20, _OLD_ROUNDS)


class Runner:
    """Runs a node until a signal, the engine's death, or a web side that keeps dying."""

    def __init__(self, engine: EngineConfig, web: WebConfig, environ: Mapping[str, str]) -> None:
        self._grace_s = engine.shutdown_grace_s
        self._warn(web)
        self._users = AdminUsers(environ)
        self._stored_users: tuple[AdminUser, ...] | None = None
        self._tables_retry_s = 0.0
        # The other nodes know this one by its cluster host; the web side is bound to its own, perhaps to all.
        self._node = Node(replace(engine, api_addr=f"{engine.node_host}:{web.api_port}"))
        self._web = WebChild(environ)
        self._signals = 0

    def run(self) -> int:
        """The exit code: 0 after a signal, 1 when something failed; ConfigError and DamagedError before the start."""
        # What is kept holds messages and password hashes: nobody else's to read.
        os.umask(0o077)
        for number in _STOP_SIGNALS:
            signal.signal(number, self._on_signal)
        self._node.start()
        spare_collector()
        try:
            if not self._signals:
                self._web.start()
                self._prepare_tables()
            code = self._watch()
        except BaseException:
            self._stop()
            raise
        return self._stop() or code

    def _watch(self) -> int:
        while not self._signals:
            if self._node.wait(_LOOK_S):
                log.critical("The engine died, so the node ends.", action="node_failed", reason=repr(self._node.fatal))
                return 1
            if not self._web.look():
                return 1
            self._web.reap_orphans()
            self._prepare_tables()
        return 0

    def _prepare_tables(self) -> None:
        """Make Django's own tables and follow the declared logins, which may be in a file that changes.

        They are disposable: what keeps them from being written (a full disk, a database that is away) never stops the
        relay, and is tried again.
        """
        users = self._users.get()
        if users == self._stored_users or time.monotonic() < self._tables_retry_s:
            return
        try:
            if self._stored_users is None:
                call_command("migrate", database="default", interactive=False, verbosity=0)
            store_users(users)
        except (DatabaseError, OSError) as error:
            self._tables_retry_s = time.monotonic() + LIMITS.tables_retry_s
            reason = " ".join(str(error).split())
            log.error("Django's own tables cannot be written.", action="tables_failed", reason=reason)
        else:
            self._stored_users = users

    def _stop(self) -> int:
        """Stop both sides within the grace; 1 when the engine could not be stopped in time."""
        log.info("The node stops.", action="node_stopping", grace_s=self._grace_s)
        deadline_s = time.monotonic() + self._grace_s
        failed = self._node.fatal is not None
        self._web.stop(0.0 if failed or self._signals > 1 else self._grace_s * LIMITS.web_stop_share)
        # In a thread of its own, so that a second signal can cut the waiting short.
        stopping = threading.Thread(
            target=self._node.stop, args=(max(deadline_s - time.monotonic(), 0.0),), name="stop", daemon=True
        )
        seen = self._signals
        stopping.start()
        while stopping.is_alive() and time.monotonic() < deadline_s + LIMITS.hurry_s:
            stopping.join(0.05)
            if self._signals > max(seen, 1):
                seen = self._signals
                deadline_s = min(deadline_s, time.monotonic())
        if stopping.is_alive():
            log.error("The engine did not stop in time; a restart replays its log.", action="stop_timed_out")
            return 1
        return 0

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._signals += 1

    @staticmethod
    def _warn(web: WebConfig) -> None:
        if web.unsafe_open_api and not web.loopback:
            log.warning(
                "UNSAFE_OPEN_API: everyone who reaches this address has all rights.",
                action="open_api",
                address=web.bind,
            )
