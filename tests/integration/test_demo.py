"""`manage.py demo` from outside: what it prints, when it ends, what it leaves."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.blackbox.processes import Process, descendants, wait_for
from tests.blackbox.rest import Rest

READY_S = 40.0
LINE = re.compile(r"due (\d\d:\d\d:\d\d)\.\d{3} +late (\d+\.\d) ms$")


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port on which somebody listens already."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_the_demo_runs_for_its_time_beside_taken_ports_shows_arrivals_each_second_and_leaves_nothing(
    tmp_path: Path, taken_port: int
) -> None:
    demo = Process(
        ["manage.py", "demo"],
        log=tmp_path / "demo.log",
        environment={"DEMO_SECONDS": "6", "API_PORT": str(taken_port), "TMPDIR": str(tmp_path)},
    )
    try:
        admin = demo.wait_line("    admin ", READY_S)
        port = int(admin.rpartition(":")[2].partition("/")[0])
        assert port != taken_port
        assert Rest(port).is_ready()
        assert re.search(r"login +admin / \S+", demo.output())
        children = descendants(demo.pid)
        assert children
        wait_for(lambda: demo.exit_code is not None, 30, "the demo ends by itself")
        assert demo.exit_code == 0, demo.output()
        arrivals = [match for line in demo.output().splitlines() if (match := LINE.search(line))]
        seconds = {match[1] for match in arrivals}
        assert len(seconds) >= 4
        assert len(arrivals) >= 6
        assert not any(Path(f"/proc/{pid}").exists() for pid in children)
        assert not list(tmp_path.glob("scheduler-demo-*"))
    finally:
        demo.close()


def test_ctrl_c_ends_the_demo_in_order(tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    demo = Process(["manage.py", "demo"], log=tmp_path / "demo.log", environment={"STORAGE_PATH": str(storage)})
    try:
        demo.wait_until(lambda: LINE.search(demo.output().rstrip("\n")) is not None, READY_S, "an arrival")
        children = descendants(demo.pid)
        demo.signal(signal.SIGINT)
        wait_for(lambda: demo.exit_code is not None, 30, "the demo ends")
        assert demo.exit_code == 0, demo.output()
        assert not any(Path(f"/proc/{pid}").exists() for pid in children)
        assert list(storage.rglob("state.db"))
    finally:
        demo.close()


def test_a_wrong_duration_is_refused_with_a_sentence(tmp_path: Path) -> None:
    demo = Process(["manage.py", "demo"], log=tmp_path / "demo.log", environment={"DEMO_SECONDS": "soon"})
    wait_for(lambda: demo.exit_code is not None, 20, "the demo refuses")
    assert demo.exit_code == 2
    assert "DEMO_SECONDS='soon'" in demo.output()
    assert "Traceback" not in demo.output()
