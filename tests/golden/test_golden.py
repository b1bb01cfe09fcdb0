"""Data directories of every released format open, hold what they held, and go on from there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.golden.make import HERE, picture
from tests.integration.flows.conftest import Stand, until

DIRECTORIES = sorted(path.parent for path in HERE.glob("*/expected.json"))


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    return tmp_path / "storage"


@pytest.mark.parametrize("golden", DIRECTORIES, ids=lambda path: path.name)
def test_a_directory_of_an_earlier_format_opens_with_all_it_held(golden: Path, storage: Path) -> None:
    shutil.copytree(golden, storage)
    expected = json.loads((storage / "expected.json").read_text())

    stand = Stand(storage, now_ms=expected["now_ms"])
    try:
        assert picture(stand) | {"now_ms": expected["now_ms"]} == expected

        # What is pending in it leaves at its time, under the ids that it had when it was accepted.
        stand.clock.advance(101.0)
        until(lambda: len(stand.receive()) == 1, "the first has arrived")
        stand.clock.advance(7200.0)
        until(lambda: len(stand.receive()) == 3, "the second and third have arrived")
        stand.clock.advance(32 * 24 * 3600.0)
        until(lambda: len(stand.receive()) == 4, "the last has arrived")
        seqs = [int(message.attributes["scheduler-message-id"].rsplit("-", 1)[1]) for message in stand.receive()]
        assert seqs == [7, 1, 3, 4]
        last = stand.receive()[-1]
        assert (last.data, last.attributes["ключ"]) == (b"\x00\xff", "значение")
        assert last.attributes["scheduler-message-id"].startswith(expected["cluster_id"])
        assert stand.stats()["quarantined"] == 2
    finally:
        stand.close()


def test_there_is_a_directory_of_each_kind() -> None:
    assert {path.name for path in DIRECTORIES} >= {"v1-clean", "v1-killed"}
