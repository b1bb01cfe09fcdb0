"""A configuration that cannot work is one sentence and exit code 2, at the start and in `--check`."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from tests.blackbox.node import NodeProcess
from tests.integration.node.conftest import Manage, exit_code

WRONG = [
    ({"API_PORT": "tcp://10.0.0.5:5569"}, "API_PORT='tcp://10.0.0.5:5569'", "Kubernetes"),
    ({"LOG_FORMAT": "xml"}, "LOG_FORMAT='xml'", "text, json, gcp"),
    ({"API_HOST": "0.0.0.0"}, "API_HOST='0.0.0.0'", "API_TOKEN"),
    ({"PUBLISHER_DRIVER": "kafka"}, "PUBLISHER_DRIVER='kafka'", "pubsub"),
    ({"ADMIN_USERNAME": "root", "ADMIN_PASSWORD_HASH": "x"}, "ADMIN_PASSWORD_HASH", "not a password hash"),
    ({"API_TOKEN_FILE": "/nonexistent"}, "API_TOKEN_FILE='/nonexistent'", "No such file"),
    ({"DATABASE_URL": "mongo://x"}, "DATABASE_URL", "postgres"),
]


@pytest.mark.parametrize(("environment", "named", "allowed"), WRONG, ids=[next(iter(w[0])) for w in WRONG])
def test_a_wrong_configuration_is_one_sentence(
    manage: Manage, environment: dict[str, str], named: str, allowed: str
) -> None:
    process = manage("run_scheduler", environment=environment)
    assert exit_code(process) == 2
    (line,) = process.output().splitlines()
    assert line.startswith("error: ")
    assert named in line
    assert allowed in line


def test_a_port_that_is_taken_is_named_by_the_check(manage: Manage) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = manage("run_scheduler", "--check", environment={"API_PORT": str(port)})
        assert exit_code(process) == 2
    assert re.fullmatch(rf"error: API_PORT={port}: .* in use\n", process.output())


def test_a_good_configuration_passes_the_check_and_starts_nothing(manage: Manage, tmp_path: Path) -> None:
    environment = {"API_HOST": "0.0.0.0", "API_TOKEN": "x"}
    process = manage("run_scheduler", "--check", environment=environment)
    assert exit_code(process) == 0
    assert process.output() == "The configuration is valid.\n"
    assert not (tmp_path / "storage").exists()


def test_the_check_names_every_fault(manage: Manage, tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("nonsense")
    tls = {"API_TLS_CERT_FILE": str(tmp_path / "key.pem"), "API_TLS_KEY_FILE": str(tmp_path / "key.pem")}
    process = manage("run_scheduler", "--check", environment={"API_HOST": "0.0.0.0", "ADMIN_USERNAME": "x", **tls})
    assert exit_code(process) == 2
    for named in ("API_HOST", "ADMIN_USERNAME", "API_TLS_CERT_FILE"):
        assert f"error: {named}=" in process.output()


def test_commands_that_sign_nothing_work_without_an_engine(manage: Manage) -> None:
    process = manage("check")
    assert exit_code(process) == 0


# ---- the API from a shell --------------------------------------------------------------------------------------------


def test_channels_are_managed_from_a_shell(manage: Manage, node: NodeProcess) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        process = manage(*arguments, environment={"API_PORT": str(node.api_port)})
        code = exit_code(process)
        return code, process.output()

    create = ("channels", "create", "--id", "shell", "--project", "demo", "--subscription", "in-x", "--topic", "out-x")
    assert run(*create)[0] == 0
    code, shown = run("channels", "update", "shell", "--set", "policy.max_delay=30d", "--json")
    assert code == 0
    assert '"max_delay": "30d"' in shown
    assert re.search(r"^shell +shell ", run("channels", "list")[1], re.MULTILINE)
    assert "SOURCE MESSAGE" in run("messages", "list", "shell")[1]
    assert "applied_index" in run("cluster", "status", "--json")[1]
    assert run("channels", "delete", "shell") == (0, "shell is deleted.\n")
    code, said = run("channels", "show", "shell")
    assert code == 1
    assert "(NO_CHANNEL)" in said
    assert run("channels", "fly")[0] == 2


def test_without_a_node_a_command_says_so(manage: Manage) -> None:
    process = manage("channels", "list")
    assert exit_code(process) == 1
    assert "does not answer" in process.output()
