"""The control socket and its client: answers, errors, limits, and what a broken connection means."""

from __future__ import annotations

import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.client import Client
from engine.config import ControlLimits
from engine.control import ControlServer
from engine.errors import (
    Conflict,
    FieldError,
    InvalidCommand,
    NoLeader,
    NotFound,
    OutcomeUnknown,
    RequestError,
    RevisionMismatch,
    Unavailable,
)
from engine.frames import SOCKET_NAME, SocketPath

LIMITS = ControlLimits(request_timeout_s=5.0, connections_max=4, frame_bytes_max=10_000)


class Engine:
    """A control server whose operations are given by the test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.operations: dict[str, Callable[..., Any]] = {"ping": lambda: True}
        self.server = ControlServer(directory, self.operations, LIMITS)
        self.server.start()

    def restart(self) -> None:
        self.server.stop()
        self.server = ControlServer(self.directory, self.operations, LIMITS)
        self.server.start()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = Engine(tmp_path)
    yield engine
    engine.server.stop()


@pytest.fixture
def client(engine: Engine) -> Iterator[Client]:
    client = Client(engine.directory, LIMITS)
    yield client
    client.close()


def test_a_call_carries_its_arguments_and_brings_the_answer(engine: Engine, client: Client) -> None:
    seen: dict[str, Any] = {}

    def create(**arguments: Any) -> dict[str, Any]:
        seen.update(arguments)
        return {"id": "c", "ünïcode": [1, None, b"\xff"]}

    engine.operations["create_channel"] = create

    answer = client.create_channel({"id": "c"}, actor="me", request_id="r")

    assert answer == {"id": "c", "ünïcode": [1, None, b"\xff"]}
    assert seen == {"document": {"id": "c"}, "actor": "me", "request_id": "r"}


@pytest.mark.parametrize(
    "error",
    [
        InvalidCommand("wrong", errors=(FieldError("/a", "is wrong"), FieldError("/b", "too"))),
        NotFound("no channel", reason="NO_CHANNEL"),
        Conflict("full", reason="CHANNEL_NOT_EMPTY"),
        RevisionMismatch("old"),
        NoLeader("none", retry_after_s=3.5),
        OutcomeUnknown("who knows"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_arrives_as_it_was_raised(engine: Engine, client: Client, error: RequestError) -> None:
    def fail(**_: Any) -> None:
        raise error

    engine.operations["channels"] = fail

    with pytest.raises(type(error)) as caught:
        client.channels()

    assert (caught.value.detail, caught.value.code, caught.value.errors) == (error.detail, error.code, error.errors)
    assert caught.value.retry_after_s == error.retry_after_s


def test_a_fault_of_the_engine_is_an_error_and_the_connection_goes_on(engine: Engine, client: Client) -> None:
    engine.operations["channels"] = lambda: 1 / 0
    engine.operations["cluster"] = lambda: {"leader": None}

    with pytest.raises(Unavailable, match="ZeroDivisionError"):
        client.channels()

    assert client.cluster() == {"leader": None}


def test_without_an_engine_nothing_was_submitted(tmp_path: Path) -> None:
    client = Client(tmp_path, LIMITS)

    with pytest.raises(Unavailable) as read:
        client.channels()
    with pytest.raises(Unavailable) as written:
        client.delete_channel("c", actor="me")

    assert read.value.code == written.value.code == "ENGINE_UNREACHABLE"


def test_after_a_restart_of_the_engine_calls_just_work(engine: Engine, client: Client) -> None:
    engine.operations["channels"] = list
    engine.operations["delete_channel"] = lambda **_: True
    assert client.channels() == []

    engine.restart()
    assert client.channels() == []
    engine.restart()
    assert client.delete_channel("c", actor="me")


def test_a_mutation_whose_answer_is_lost_has_an_unknown_outcome(engine: Engine, client: Client) -> None:
    entered, release = threading.Event(), threading.Event()

    def hang(**_: Any) -> bool:
        entered.set()
        return release.wait(5)

    engine.operations["delete_channel"] = hang

    def stop_once_called() -> None:
        entered.wait(5)
        engine.server.stop()
        release.set()

    stopper = threading.Thread(target=stop_once_called)
    stopper.start()
    with pytest.raises(OutcomeUnknown, match="Idempotency-Key"):
        client.delete_channel("c", actor="me")
    stopper.join()


def test_threads_have_connections_of_their_own(engine: Engine, client: Client) -> None:
    both = threading.Barrier(2, timeout=5)
    engine.operations["cluster"] = lambda: {"n": both.wait()}
    answers: list[Any] = []

    def call() -> None:
        answers.append(client.cluster())
        client.close()

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(answer["n"] for answer in answers) == [0, 1]


def test_only_the_owner_may_connect(engine: Engine) -> None:
    mode = (engine.directory / SOCKET_NAME).stat().st_mode

    assert stat.S_IMODE(mode) == 0o600


def test_a_storage_path_longer_than_a_socket_address_works(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    engine = Engine(deep)
    engine.operations["channels"] = list
    client = Client(deep, LIMITS)

    assert client.channels() == []

    client.close()
    engine.server.stop()


def connect(engine: Engine) -> socket.socket:
    path = SocketPath(engine.directory)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(5)
    connection.connect(path.address)
    path.close()
    return connection


@pytest.mark.parametrize(
    "garbage", [b"\xff\xff\xff\xff", b"\x05\0\0\0\xc1\xc1\xc1\xc1\xc1", b"\x01\0\0\0\x80\x10\x27\0\0"], ids=repr
)
def test_garbage_costs_only_its_own_connection(engine: Engine, client: Client, garbage: bytes) -> None:
    engine.operations["channels"] = list
    with connect(engine) as connection:
        connection.sendall(garbage)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(4096):
            pass

    assert client.channels() == []


def test_connections_beyond_the_limit_are_closed_at_once(engine: Engine) -> None:
    kept = [connect(engine) for _ in range(LIMITS.connections_max)]
    for connection in kept:
        connection.sendall(b"\x01\0\0\0\x80")
        assert connection.recv(4)
    with connect(engine) as surplus:
        assert surplus.recv(1) == b""

    for connection in kept:
        connection.close()


def test_an_unknown_operation_is_refused(engine: Engine, client: Client) -> None:
    with pytest.raises(InvalidCommand, match="unknown operation 'channels'"):
        client.channels()


def test_without_descriptors_for_a_while_the_socket_answers_afterwards(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.unit.engine.descriptor_shortage", str(tmp_path)]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)

    assert ended.returncode == 0, ended.stderr
