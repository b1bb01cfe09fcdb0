"""Real processes, killed at random moments under load, and an outside checker: invariants 1 to 5."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.client import Client
from engine.errors import OutcomeUnknown, RequestError
from tests.blackbox.node import NodeProcess
from tests.blackbox.processes import descendants, start_broker, wait_for
from tests.blackbox.pubsub import PROJECT, PubSub
from tests.integration.crash.checker import Load, faults_in, repeats
from tests.integration.crash.engines import Engines

KILLS = 50
LIFE_S = (0.02, 0.9)
"""From before the engine has opened its files to well into steady running."""
IN_FLIGHT_S = 2.0
"""Longest time that a release may wait for its Confirm on a loaded machine; usually it is milliseconds."""
ARRIVAL_S = 45.0
"""What a killed engine held comes back when its lease of 10 s ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A broker with one source and one target."""

    directory: Path
    address: str
    pubsub: PubSub


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        broker, address = start_broker(tmp_path / "broker.log")
        stack.callback(broker.close)
        pubsub = PubSub(address)
        stack.callback(pubsub.close)
        for name in ("source", "target"):
            pubsub.create_topic(name)
            pubsub.create_subscription(name, name)
        yield Site(directory=tmp_path, address=address, pubsub=pubsub)


@pytest.fixture
def seed() -> int:
    """Set KILL_SEED to repeat a run; the moments of the kills still depend on the machine."""
    return int(os.environ.get("KILL_SEED") or int.from_bytes(os.urandom(4)))


class Witness:
    """Believes every answer of an engine, and looks after the next start whether it still holds."""

    def __init__(self) -> None:
        self._names = {""}
        self._counts: dict[str, int] = {}
        self.answers = 0

    def ask(self, client: Client, name: str) -> None:
        """Rename the channel and read its counters; an engine that is not up yet answers nothing."""
        try:
            self._check(client)
            client.update_channel("default", {"name": name}, actor="test")
        except OutcomeUnknown:
            self._names.add(name)
        except RequestError:
            return
        else:
            self._names = {name}
            self._counts = _counts(client)
            self.answers += 1

    def _check(self, client: Client) -> None:
        found = client.channel("default")
        if self._counts:
            assert found["name"] in self._names, f"a confirmed change is gone: {found['name']} not in {self._names}"
        for name, before in self._counts.items():
            assert found["stats"][name] >= before, f"{name} went back from {before} to {found['stats'][name]}"


def _counts(client: Client) -> dict[str, int]:
    stats = client.channel("default")["stats"]
    return {name: stats[name] for name in ("accepted", "released")}


@pytest.mark.timeout(180)
def test_fifty_kills_under_load_lose_nothing_release_nothing_early_and_repeat_only_what_was_in_flight(
    site: Site, seed: int
) -> None:
    print(f"KILL_SEED={seed}")
    chance = random.Random(seed)
    kills_us: list[int] = []
    witness = Witness()
    with ExitStack() as stack:
        engines = Engines(site.directory, site.address, subscription="source", topic="target")
        stack.callback(engines.close)
        collector = stack.enter_context(site.pubsub.collect("target"))
        load = Load(site.pubsub, "source", seed)
        stack.callback(load.close)
        for number in range(KILLS):
            engines.start()
            time.sleep(chance.uniform(*LIFE_S))
            if chance.random() < 0.5:
                client = engines.client()
                witness.ask(client, f"round {number}")
                client.close()
            engines.kill()
            kills_us.append(time.time_ns() // 1000)
        load.stop()
        engines.start()
        collector.wait_data(load.published, ARRIVAL_S)
        client = engines.client()
        stack.callback(client.close)
        wait_for(lambda: client.channel("default")["stats"]["pending"] == 0, 15, "nothing is pending any more")
        stats = client.channel("default")["stats"]
        engines.stop()
        arrivals = collector.arrivals
    faults = faults_in(load, arrivals, kills_us, IN_FLIGHT_S)
    print(f"{len(load.published)} published, {repeats(arrivals)} repeats, {witness.answers} answers before kills")
    assert not faults, f"KILL_SEED={seed}: {len(faults)} faults: {faults[:10]}\n{engines.tail()}"
    assert stats["accepted"] == len(load.published)
    assert stats["released"] == len(load.published)
    assert witness.answers > 0


def test_a_whole_node_killed_with_its_web_side_comes_back_on_the_same_ports_with_everything(
    site: Site, seed: int
) -> None:
    print(f"KILL_SEED={seed}")
    chance = random.Random(seed)
    kills_us = []
    node = NodeProcess(
        site.directory / "node",
        site.address,
        {
            "PUBSUB_LISTENER_PROJECT_ID": PROJECT,
            "PUBSUB_LISTENER_SUBSCRIPTION_ID": "source",
            "PUBSUB_PUBLISHER_PROJECT_ID": PROJECT,
            "PUBSUB_PUBLISHER_TOPIC_ID": "target",
        },
    )
    with ExitStack() as stack:
        stack.callback(node.close)
        collector = stack.enter_context(site.pubsub.collect("target"))
        load = Load(site.pubsub, "source", seed)
        stack.callback(load.close)
        for _ in range(2):
            node.start()
            time.sleep(chance.uniform(0.1, 1.0))
            web = descendants(node.process.pid)
            node.kill_engine()
            kills_us.append(time.time_ns() // 1000)
            wait_for(lambda web=web: not any(map(_exists, web)), 5, "the web side is gone with its engine")
        load.stop()
        node.start()
        collector.wait_data(load.published, ARRIVAL_S)
        assert node.stop() == 0
        arrivals = collector.arrivals
    faults = faults_in(load, arrivals, kills_us, IN_FLIGHT_S)
    assert not faults, f"KILL_SEED={seed}: {len(faults)} faults: {faults[:10]}\n{node.process.output()[-4000:]}"


def _exists(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
