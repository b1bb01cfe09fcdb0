"""A local Pub/Sub whose clock the test moves, and a client of raw stubs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from engine.emulator import Emulator, ManualClock
from tests.contract.pubsub.client import Client

PROJECT = "demo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One topic with one subscription, ready for use."""

    emulator: Emulator
    clock: ManualClock
    client: Client
    topic: str
    subscription: str


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def emulator(clock: ManualClock) -> Iterator[Emulator]:
    with Emulator(clock=clock, pull_wait_s=0.2) as emulator:
        yield emulator


@pytest.fixture
def client(emulator: Emulator) -> Iterator[Client]:
    client = Client(emulator.address)
    yield client
    client.close()


@pytest.fixture
def bench(emulator: Emulator, clock: ManualClock, client: Client) -> Bench:
    topic = emulator.create_topic(PROJECT, "orders")
    subscription = emulator.create_subscription(PROJECT, "worker", "orders")
    return Bench(emulator=emulator, clock=clock, client=client, topic=topic, subscription=subscription)
