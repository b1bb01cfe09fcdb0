"""Writes the golden data directories of this version: `python -m tests.golden.make NAME`.

Each later version must open all of them. They are made once for a format and then never changed: a new format gets a
new directory beside the old ones.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.integration.flows.conftest import PROJECT, Stand, until

HERE = Path(__file__).parent
KEPT = ("state", "log")


def fill(stand: Stand) -> None:
    """A bit of everything that a state can hold, spread over what is in state.db and what is only in the log."""
    body = {
        "id": "second",
        "name": "Zweiter Kanal",
        "source": {"config": {"project_id": PROJECT, "subscription_id": "another-sub"}},
        "destination": {"config": {"project_id": PROJECT, "topic_id": "out-topic"}},
        "policy": {"max_delay": "30d", "time_unit": "auto"},
    }
    stand.client.create_channel(body, actor="golden", request_id="golden-1")
    stand.client.pause_channel("second", side="listen", reason="never listens", actor="golden")
    stand.publish_in(3600.0, 60.0, 7200.5, ordering_key="k")
    stand.publish((b"\x00\xff", {"available_at": "2026-02-01T00:00:00.001Z", "ключ": "значение", "scheduler-key": "a"}))
    stand.publish((b"when?", {}), (b"ms", {"available_at": "1767225600000"}))
    stand.accepted(6)
    stand.while_time_passes(stand.client.fresh)
    stand.clock.advance(61.0)
    until(lambda: stand.bodies() == [b"1"], "one is released")
    stand.at_rest()
    stand.client.delete_channel("second", actor="golden")
    stand.client.create_channel(body, actor="golden", request_id="golden-2")
    stand.publish_in(100.0)
    stand.accepted(7)


def picture(stand: Stand) -> dict[str, Any]:
    """What must be found again."""
    channels = stand.client.channels()
    for channel in channels:
        for live in ("state", "reason", "stats"):
            channel[live] = (
                None
                if live != "stats"
                else {
                    name: channel["stats"][name]
                    for name in ("pending", "quarantined", "accepted", "released", "duplicates", "discarded")
                }
            )
    return {"channels": channels, "cluster_id": stand.client.cluster()["cluster_id"], "now_ms": stand.clock.now_ms()}


def main(name: str) -> None:
    """Make `NAME-clean` (after a stop) and `NAME-killed` (a copy of a running node, as a kill leaves it)."""
    with tempfile.TemporaryDirectory() as directory:
        stand = Stand(Path(directory))
        fill(stand)
        expected = picture(stand)
        for kind in ("killed", "clean"):
            target = HERE / f"{name}-{kind}"
            if kind == "clean":
                stand.close()
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            for part in KEPT:
                shutil.copytree(Path(directory) / part, target / part)
            (target / "expected.json").write_text(json.dumps(expected, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
