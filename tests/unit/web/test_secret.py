"""Secrets, from the environment and from files that change."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import ConfigError
from scheduler_project import secret
from scheduler_project.limits import WebLimits
from scheduler_project.secret import Secret
from scheduler_project.signing import FallbackKeys, SigningKey


@pytest.fixture(autouse=True)
def look_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret, "LIMITS", WebLimits(secret_check_s=0.0))


def write(path: Path, content: bytes) -> Path:
    """Replace a file as a mounted secret is replaced: by another one."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(content)
    return fresh.replace(path)


def test_a_secret_of_several_lines_signs_with_the_first() -> None:
    several = Secret("KEY", {"KEY": "new\nold\r\n"})
    assert several.lines() == ("new", "old")
    assert several.value() == "new"
    assert str(SigningKey(several)) == "new"
    assert [*FallbackKeys(several)] == ["old"]


def test_a_secret_that_is_not_set_has_no_value() -> None:
    assert Secret("KEY", {}).value() is None
    assert Secret("KEY", {"KEY": "", "KEY_FILE": ""}).lines() == ()


def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = write(tmp_path / "key", b"first\n")
    watched = Secret("KEY", {"KEY_FILE": str(path)})
    assert watched.value() == "first"
    write(path, b"second\n")
    assert watched.value() == "second"


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xff\xfe"])
def test_a_file_that_turns_useless_keeps_the_last_good_value(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path / "key", b"good")
    watched = Secret("KEY", {"KEY_FILE": str(path)})
    write(path, content)
    assert watched.value() == "good"
    path.unlink()
    assert watched.value() == "good"
    write(path, b"better")
    assert watched.value() == "better"


@pytest.mark.parametrize("content", [None, b"", b"\xff"])
def test_a_file_that_is_useless_at_the_start_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match="KEY_FILE="):
        Secret("KEY", {"KEY_FILE": str(path)})


def test_a_value_and_a_file_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match="KEY and KEY_FILE are both set"):
        Secret("KEY", {"KEY": "a", "KEY_FILE": "b"})
