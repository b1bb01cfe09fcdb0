"""Requests that are sent again with the same key, because nobody knows what became of them."""

from __future__ import annotations

import threading

from engine.client import Client
from engine.config import ControlLimits, Limits
from tests.integration.flows.conftest import Stand


def test_a_repeated_change_is_answered_like_the_first_although_the_revision_is_another(stand: Stand) -> None:
    change = {"name": "Renamed"}
    revision = stand.client.channel("default")["revision"]

    first = stand.client.update_channel("default", change, actor="a", expected_revision=revision, request_id="k")
    again = stand.client.update_channel("default", change, actor="a", expected_revision=revision, request_id="k")

    assert again["revision"] == first["revision"] == revision + 1


def test_a_change_with_a_key_is_merged_again_when_the_channel_changes_meanwhile(stand: Stand) -> None:
    stand.restart(Limits(control=ControlLimits(merge_attempts_max=1000)))
    done = threading.Event()

    def disturb() -> None:
        client = Client(stand.directory)
        while not done.is_set():
            client.pause_channel("default", side="listen", actor="b")
            client.resume_channel("default", side="listen", actor="b")
        client.close()

    disturbing = threading.Thread(target=disturb)
    disturbing.start()
    try:
        for number in range(12):
            change = {"name": f"Name {number}"}
            answers = [
                stand.client.update_channel("default", change, actor="a", request_id=f"k{number}") for _ in range(2)
            ]
            assert answers[0]["revision"] == answers[1]["revision"]
    finally:
        done.set()
        disturbing.join()
