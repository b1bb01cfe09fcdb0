"""A node's start, its end, and what happens when a part of it dies."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import time
from pathlib import Path
from urllib.parse import urlencode

from tests.blackbox.node import NodeProcess
from tests.blackbox.processes import descendants, wait_for
from tests.integration.node.conftest import MakeNode, Manage, exit_code


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def web_processes(node: NodeProcess) -> list[int]:
    return descendants(node.process.pid)


def test_a_signal_stops_a_node_in_order_and_every_line_of_its_log_is_json(make_node: MakeNode) -> None:
    node = make_node(LOG_FORMAT="json", LOG_LEVEL="debug")
    node.start()
    web = web_processes(node)
    assert len(web) == 3
    node.rest.get("/channels").ok(200)
    node.process.signal(signal.SIGTERM)
    assert exit_code(node.process) == 0
    assert not any(alive(pid) for pid in web)
    documents = [json.loads(line) for line in node.process.output().splitlines()]
    assert all({"time", "level", "message"} <= set(document) for document in documents)
    steps = [document.get("action") or document["message"] for document in documents]
    ordered = ["engine_started", "web_started", "node_stopping", "Shutting down: Master", "engine_stopped"]
    assert [step for step in steps if step in ordered] == ordered


def test_a_signal_to_the_whole_group_and_a_second_one_still_end_in_order(make_node: MakeNode) -> None:
    node = make_node()
    node.start()
    os.killpg(node.process.pid, signal.SIGINT)
    os.killpg(node.process.pid, signal.SIGINT)
    assert exit_code(node.process) == 0
    assert "action=engine_stopped" in node.process.output()


def test_a_signal_during_the_start_is_heeded(manage: Manage) -> None:
    process = manage("run_scheduler")
    process.wait_until(lambda: "action=engine_started" in process.output(), 20, "the engine is up")
    process.signal(signal.SIGTERM)
    assert exit_code(process) == 0
    assert "action=engine_stopped" in process.output()


def test_nothing_outlives_a_killed_node_and_its_port_is_free_at_once(make_node: MakeNode) -> None:
    node = make_node()
    node.start()
    web = web_processes(node)
    os.kill(node.process.pid, signal.SIGKILL)
    wait_for(lambda: not any(alive(pid) for pid in web), 2, "the web side is gone")
    node.kill()
    node.start()
    assert node.rest.is_ready()


def test_a_web_side_that_dies_is_started_again(node: NodeProcess) -> None:
    first = web_processes(node)
    arbiter = next(pid for pid in first if descendants(pid))
    os.kill(arbiter, signal.SIGKILL)
    wait_for(lambda: not any(alive(pid) for pid in first), 2, "arbiter and workers are gone")
    node.process.wait_until(node.rest.is_ready, 20, "ready again")
    assert "action=web_died" in node.process.output()


def test_a_worker_that_dies_is_replaced(node: NodeProcess) -> None:
    worker = next(pid for pid in web_processes(node) if not descendants(pid))
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: len([pid for pid in web_processes(node) if pid != worker and alive(pid)]) == 3, 10, "three again")
    node.process.wait_until(node.rest.is_ready, 10, "ready again")


def test_a_second_process_on_the_same_storage_is_refused(node: NodeProcess, manage: Manage) -> None:
    second = manage("run_scheduler", environment={"STORAGE_PATH": str(node.storage)})
    assert exit_code(second) == 2
    (line,) = [line for line in second.output().splitlines() if line.startswith("error: ")]
    assert "is in use by another process" in line
    assert node.rest.is_ready()


def test_slow_clients_do_not_make_a_node_look_dead(node: NodeProcess) -> None:
    held = []
    try:
        for number in range(100):
            client = socket.create_connection(("127.0.0.1", node.api_port))
            held.append(client)
            # Half of them say nothing, the others begin a request and stall.
            if number % 2:
                client.sendall(b"GET /channels HTTP/1.1\r\nHost: localhost\r\n")
        for path in ("/livez", "/readyz"):
            began_s = time.monotonic()
            node.rest.call("GET", path, timeout_s=5.0).ok(200)
            assert time.monotonic() - began_s < 1.0
    finally:
        for client in held:
            client.close()


def test_a_login_of_the_environment_enters_the_admin(node: NodeProcess) -> None:
    page = node.rest.call("GET", "/admin/login/")
    csrf = page.headers["set-cookie"].partition("=")[2].partition(";")[0]
    connection = http.client.HTTPConnection("127.0.0.1", node.api_port, timeout=10)
    form = urlencode({"username": "root", "password": "pw", "csrfmiddlewaretoken": csrf})
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": f"event_scheduler_csrf={csrf}"}
    connection.request("POST", "/admin/login/?next=/admin/", form, headers)
    response = connection.getresponse()
    response.read()
    connection.close()
    assert (response.status, response.headers["Location"]) == (302, "/admin/")


def test_a_chunked_body_is_read(node: NodeProcess) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", node.api_port, timeout=10)
    connection.request(
        "POST",
        "/channels",
        iter([b'{"source":', b" 1}"]),
        {"Content-Type": "application/json", "Transfer-Encoding": "chunked"},
        encode_chunked=True,
    )
    response = connection.getresponse()
    problem = json.loads(response.read())
    connection.close()
    assert response.status == 400
    assert "/source" in {fault["pointer"] for fault in problem["errors"]}


def test_the_cluster_says_where_its_nodes_answer(node: NodeProcess) -> None:
    (member,) = node.rest.get("/cluster").body["nodes"]
    assert member["api_addr"].endswith(f":{node.api_port}")
