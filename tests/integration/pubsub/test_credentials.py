"""Key files: each way to be wrong is explained, a new key takes effect by itself, a broken one harms nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from engine.pubsub.credentials import key_file_problem
from engine.pubsub.errors import FailureKind, classify
from tests.integration.pubsub.conftest import Bench, eventually, message, send
from tests.integration.pubsub.keys import TokenEndpoint, private_key, service_account, write

GOOGLE = "https://oauth2.googleapis.com/token"


@pytest.fixture(scope="module")
def pem() -> str:
    return private_key()


@pytest.fixture
def tokens() -> Iterator[TokenEndpoint]:
    endpoint = TokenEndpoint()
    yield endpoint
    endpoint.close()


def fault_of(bench, path) -> str:
    sink = bench.sink(key_file=str(path))
    error = send(sink, message("x")).exception(10)
    assert error is not None
    failure = classify(error, sink.topic)
    assert (failure.kind, failure.code) == (FailureKind.CHANNEL, "KEY_FILE")
    assert str(path) in failure.reason
    assert key_file_problem(str(path), None) == failure.reason
    return failure.reason


def test_a_missing_key_file(bench, tmp_path):
    assert "is missing" in fault_of(bench, tmp_path / "none.json")


def test_a_directory_for_a_key_file(bench, tmp_path):
    assert "is a directory" in fault_of(bench, tmp_path)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "is not JSON"),
        (b"not json", "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b"[]", "has the type None"),
        (b"{}", "has the type None"),
        (b'{"type": 7}', "has the type 7"),
        (b'{"type": "robot"}', "has the type 'robot'"),
        (b'{"type": "service_account"}', "is not a usable key"),
        (b'{"type": "authorized_user"}', "is not a usable key"),
        (b'{"type": "external_account"}', "is not a usable key"),
        (b'{"type": "external_account", "credential_source": 5}', "is not a usable key"),
        (b'{"type": "impersonated_service_account"}', "is not a usable key"),
        (b" " * (1 << 20) + b"{}", "is larger than"),
    ],
)
def test_a_file_that_is_no_key(bench, tmp_path, content, fault):
    path = tmp_path / "key.json"
    path.write_bytes(content)
    assert fault in fault_of(bench, path)


def test_a_key_whose_private_key_is_damaged(bench, tmp_path, pem):
    damaged = write(tmp_path / "key.json", service_account(pem[:200], GOOGLE))
    assert "is not a usable key" in fault_of(bench, damaged)


def test_a_path_outside_the_directory_of_key_files_is_refused_and_not_looked_at(emulator, tmp_path, pem):
    inside = tmp_path / "keys"
    inside.mkdir()
    write(tmp_path / "outside.json", service_account(pem, GOOGLE))
    write(inside / "good.json", service_account(pem, GOOGLE))
    bench = Bench(emulator.address, key_files_dir=inside)
    try:
        assert send(bench.sink(key_file="good.json"), message("x")).result(10)
        for name in ("../outside.json", str(tmp_path / "outside.json"), "..", "a/../good.json", "x\0y"):
            error = send(bench.sink(key_file=name), message("x")).exception(10)
            assert error is not None
            assert "KEY_FILES_DIR" in classify(error, "t").reason
    finally:
        bench.close()


def test_a_real_key_is_checked_but_never_used_with_an_emulator(bench, tmp_path, pem):
    key = write(tmp_path / "key.json", service_account(pem, GOOGLE))
    assert send(bench.sink(key_file=str(key)), message("x")).result(10)
    assert key_file_problem(str(key), None) is None


def test_a_source_with_a_wrong_key_recovers_as_soon_as_the_right_one_is_there(bench, tmp_path, pem):
    path = tmp_path / "key.json"
    source, _listener = bench.source(key_file=str(path))
    eventually(lambda: source.status().state == "failing")
    assert "is missing" in (source.status().reason or "")
    path.write_text("{")
    eventually(lambda: "is not JSON" in (source.status().reason or ""))
    write(path, service_account(pem, GOOGLE))
    eventually(lambda: source.status().state == "streaming")


def test_a_refused_key_is_shown_and_a_swapped_one_works_without_a_restart(bench, tmp_path, pem, tokens):
    path = write(tmp_path / "key.json", service_account(pem, tokens.uri))
    source, listener = bench.source(key_file=str(path))
    eventually(lambda: source.status().state == "failing")
    status = source.status()
    assert status.failure is not None
    assert (status.failure.kind, status.failure.code) == (FailureKind.CHANNEL, "CREDENTIALS")
    assert "invalid_grant" in (status.reason or "")
    assert "put a new one into key_file" in (status.reason or "")
    tokens.grants = True
    write(path, service_account(pem, tokens.uri, key_id="2"))
    eventually(lambda: source.status().state == "streaming")
    send(bench.sink(), message("hello")).result(10)
    eventually(lambda: listener.payloads == [message("hello")])


def test_a_token_endpoint_that_is_away_is_no_fault_of_the_key(bench, tmp_path, pem, tokens):
    tokens.close()
    path = write(tmp_path / "key.json", service_account(pem, tokens.uri))
    source, _listener = bench.source(key_file=str(path))
    eventually(lambda: source.status().state == "failing")
    failure = source.status().failure
    assert failure is not None
    assert failure.kind is FailureKind.TRANSIENT


def test_a_running_source_takes_a_new_key_and_ignores_a_broken_one(bench, tmp_path, pem):
    path = write(tmp_path / "key.json", service_account(pem, GOOGLE))
    source, listener = bench.source(key_file=str(path))
    eventually(lambda: source.status().state == "streaming")
    first = source._connection
    path.write_text("half a k")
    eventually(lambda: first is not None and first._shared.complaint)
    send(bench.sink(), message("still")).result(10)
    eventually(lambda: listener.payloads == [message("still")])
    assert source.status().streams_opened == 1
    write(path, service_account(pem, GOOGLE, key_id="2"))
    eventually(lambda: source.status().streams_opened == 2)
    assert source._connection is not first
    assert "failing" not in listener.names()


def test_over_tls_a_key_signs_each_call_and_a_refused_one_is_replaced(tmp_path):
    """In a process of its own, since gRPC reads the trusted roots once."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.integration.pubsub.tls_probe", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines()[-1] == "published"
