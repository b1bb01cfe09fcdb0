"""The log's formats, as another program reads them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

PROGRAM = """
import logging, structlog
from scheduler_project import logs
logs.configure({format!r}, {level!r}, "stdout")
log = structlog.get_logger("engine.listener")
log.debug("a detail", action="detail")
log.info("a channel is there", action="channel_created", channel="a", api_token="hush", password="hush")
logging.getLogger("foreign").info("from %s", "elsewhere", extra={{"size": 3}})
try:
    raise ValueError("broken")
except ValueError:
    log.exception("it failed", action="failed")
"""


def lines(log_format: str, level: str = "info") -> list[str]:
    program = PROGRAM.format(format=log_format, level=level)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stderr == ""
    return done.stdout.splitlines()


def documents(log_format: str, level: str = "info") -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(log_format, level)]


def test_json_lines_have_time_level_and_message() -> None:
    ours, foreign, failed = documents("json")
    assert (ours["level"], ours["message"], ours["action"]) == ("info", "a channel is there", "channel_created")
    assert ours["time"].endswith("Z")
    assert (foreign["message"], foreign["size"], foreign["logger"]) == ("from elsewhere", 3, "foreign")
    assert "ValueError: broken" in failed["exception"]


def test_cloud_logging_finds_its_own_names() -> None:
    ours, _, failed = documents("gcp")
    assert (ours["severity"], ours["message"]) == ("INFO", "a channel is there")
    assert failed["severity"] == "ERROR"
    assert "ValueError: broken" in failed["stack_trace"]


def test_text_is_a_line_for_people() -> None:
    first, *_ = lines("text")
    assert "a channel is there" in first
    assert "action=channel_created" in first
    assert "\x1b[" not in first


@pytest.mark.parametrize("log_format", ["text", "json", "gcp"])
def test_secrets_are_hidden(log_format: str) -> None:
    assert "hush" not in "".join(lines(log_format))


@pytest.mark.parametrize(
    ("level", "count"), [("trace", 4), ("debug", 4), ("info", 3), ("warn", 1), ("error", 1), ("fatal", 0), ("panic", 0)]
)
def test_a_level_lets_through_what_it_says(level: str, count: int) -> None:
    assert len(documents("json", level)) == count
