"""One broker and one node for all of these tests; each test has a channel of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from engine.emulator.control_client import ControlClient, RemoteFaults
from tests.blackbox.node import NodeProcess
from tests.blackbox.processes import start_broker
from tests.blackbox.pubsub import PubSub
from tests.integration.relay.site import Relay

MakeRelay = Callable[..., Relay]


@pytest.fixture(scope="session")
def broker_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    process, address = start_broker(tmp_path_factory.mktemp("broker") / "broker.log")
    yield address
    process.close()


@pytest.fixture(scope="session")
def pubsub(broker_address: str) -> Iterator[PubSub]:
    client = PubSub(broker_address)
    yield client
    client.close()


@pytest.fixture
def faults(broker_address: str) -> Iterator[RemoteFaults]:
    """Faults of the broker; all of them end with the test."""
    with ControlClient(broker_address) as client:
        yield client.faults
        client.faults.clear()


@pytest.fixture(scope="session")
def shared_node(broker_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path_factory.mktemp("node"), broker_address)
    node.start()
    yield node
    node.close()


@pytest.fixture
def node(shared_node: NodeProcess) -> NodeProcess:
    """The running node; a test that stopped it and failed before starting it again does not fail the next one."""
    if shared_node.process.exit_code is not None:
        shared_node.start()
    return shared_node


@pytest.fixture
def make_relay(node: NodeProcess, pubsub: PubSub) -> Iterator[MakeRelay]:
    with ExitStack() as stack:

        def make(**options: Any) -> Relay:
            relay = Relay(node, pubsub, **options)
            stack.callback(relay.close)
            return relay

        yield make


@pytest.fixture
def relay(make_relay: MakeRelay) -> Relay:
    return make_relay()
