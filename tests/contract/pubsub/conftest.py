"""The same cases against the local Pub/Sub and, where it is installed, against Google's own emulator.

Where Google's emulator is known to differ from the service, the table in `differences` says so: there a case must fail
against it, so that the entry goes when the difference does.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from engine.emulator import Emulator
from tests.contract.pubsub.client import Client
from tests.contract.pubsub.differences import DIFFERENCES

START_S = 40.0


def google_missing() -> str:
    """Why Google's emulator cannot run here; empty when it can."""
    for program in ("gcloud", "java"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    gcloud = shutil.which("gcloud")
    assert gcloud is not None
    installed = Path(gcloud).resolve().parents[1] / "platform" / "pubsub-emulator"
    return "" if installed.is_dir() else "gcloud's component pubsub-emulator is not installed"


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def google_address() -> Iterator[str]:
    """Google's emulator, started once."""
    missing = google_missing()
    if missing:
        pytest.skip(f"Google's emulator cannot run: {missing}")
    address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        ["gcloud", "beta", "emulators", "pubsub", "start", f"--host-port={address}", "--project=demo"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        with grpc.insecure_channel(address) as channel:
            grpc.channel_ready_future(channel).result(START_S)
        yield address
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(10)


@pytest.fixture(scope="session")
def own_address() -> Iterator[str]:
    """The local Pub/Sub, started once."""
    with Emulator() as emulator:
        yield emulator.address


@dataclass(slots=True)
class Service:
    """A server under test, and fresh resources in it."""

    name: str
    address: str
    client: Client
    project: str
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def topic(self, **fields: Any) -> str:
        """Create a topic; returns its name."""
        name = f"projects/{self.project}/topics/topic-{next(self._numbers)}"
        self.client.CreateTopic(name=name, **fields)
        return name

    def subscription(self, topic: str, **fields: Any) -> str:
        """Create a subscription; returns its name."""
        name = f"projects/{self.project}/subscriptions/subscription-{next(self._numbers)}"
        self.client.CreateSubscription(name=name, topic=topic, **fields)
        return name


_projects = itertools.count(1)


@pytest.fixture(params=["own", "google"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    """Each case runs against both, in a project of its own."""
    case = request.node.name.replace("google-", "").replace("[google]", "")
    if request.param == "google" and case in DIFFERENCES:
        request.applymarker(pytest.mark.xfail(reason=DIFFERENCES[case], strict=True))
    address = request.getfixturevalue(f"{request.param}_address")
    client = Client(address)
    yield Service(
        name=request.param, address=address, client=client, project=f"case-{next(_projects)}-{time.time_ns():x}"
    )
    client.close()
