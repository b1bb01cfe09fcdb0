"""What `run_scheduler --dev` adds: the local Pub/Sub inside this process, and a login made up for this run."""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections.abc import Iterator, MutableMapping
from typing import Final

from engine.errors import ConfigError
from scheduler_project.env import DEVELOPMENT, is_loopback

PROJECT: Final = "demo"
_DEFAULT_ADDRESS: Final = "127.0.0.1:8085"


@contextlib.contextmanager
def development(environ: MutableMapping[str, str]) -> Iterator[list[str]]:
    """Change `environ` for development, with the local Pub/Sub running; gives the lines to print.

    PUBSUB_EMULATOR_HOST says where the local Pub/Sub listens; one that runs there already is used instead.
    """
    environ[DEVELOPMENT] = "true"
    lines = []
    if not environ.get("ADMIN_USERNAME") and not environ.get("ADMIN_USERS_FILE"):
        password = secrets.token_urlsafe(9)
        environ["ADMIN_USERNAME"], environ["ADMIN_PASSWORD"] = "admin", password
        lines.append(f"admin login: admin / {password}")
    with _local_pubsub(environ) as address:
        environ["PUBSUB_EMULATOR_HOST"] = address
        lines.append(f"local Pub/Sub: PUBSUB_EMULATOR_HOST={address}, any project, such as {PROJECT}")
        yield lines


@contextlib.contextmanager
def _local_pubsub(environ: MutableMapping[str, str]) -> Iterator[str]:
    wanted = environ.get("PUBSUB_EMULATOR_HOST")
    address = wanted or _DEFAULT_ADDRESS
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit():
        raise ConfigError(f"PUBSUB_EMULATOR_HOST={address!r}: allowed is host:port")
    if not _free(host, int(port)):
        if wanted:
            yield wanted
            return
        address = f"{host}:0"
    from engine.emulator import Emulator

    with Emulator(address, project_autocreate=True) as emulator:
        yield emulator.address


def _free(host: str, port: int) -> bool:
    """Whether a server of ours can listen there: an address of this machine that nobody has."""
    if not is_loopback(host):
        return False
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
