"""Nodes as an operator runs them, without any Pub/Sub: what is tested here is the process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.blackbox.node import NodeProcess
from tests.blackbox.processes import Process, free_port, wait_for

MakeNode = Callable[..., NodeProcess]
Manage = Callable[..., Process]
NOBODY = "127.0.0.1:9"


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[MakeNode]:
    """Makes nodes that are not started yet; all of them end with the test."""
    nodes: list[NodeProcess] = []

    def make(**environment: str) -> NodeProcess:
        node = NodeProcess(tmp_path / f"node-{len(nodes)}", NOBODY, environment)
        nodes.append(node)
        return node

    yield make
    for node in nodes:
        node.close()


@pytest.fixture(scope="package")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A running node for tests that leave it running."""
    running = NodeProcess(tmp_path_factory.mktemp("node"), NOBODY, {"ADMIN_USERNAME": "root", "ADMIN_PASSWORD": "pw"})
    running.start()
    yield running
    running.close()


@pytest.fixture
def manage(tmp_path: Path) -> Iterator[Manage]:
    """Runs `manage.py` with an environment of its own."""
    processes: list[Process] = []

    def run(*arguments: str, environment: Mapping[str, str] | None = None) -> Process:
        own = {
            "STORAGE_PATH": str(tmp_path / "storage"),
            "API_PORT": str(free_port()),
            "CLUSTER_NODE_PORT": str(free_port()),
            "PUBSUB_EMULATOR_HOST": NOBODY,
            **(environment or {}),
        }
        process = Process(["manage.py", *arguments], log=tmp_path / f"{len(processes)}.log", environment=own)
        processes.append(process)
        return process

    yield run
    for process in processes:
        process.close()


def exit_code(process: Process, timeout_s: float = 20.0) -> int:
    """Wait for the end."""
    wait_for(lambda: process.exit_code is not None, timeout_s, lambda: f"an end; so far: {process.output()}")
    code = process.exit_code
    assert code is not None
    return code
