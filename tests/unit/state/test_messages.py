"""Accept, confirm, quarantine, discard: what is stored, what is answered, what is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine import commands as c
from engine.config import StateLimits
from engine.model import ChannelStats, Closing, Policy
from engine.state import rows
from tests.unit.state.builders import SUBSCRIPTION, T0_MS, World, accept, confirm, create

FAULT = c.Fault("BAD_TIME", "looks like milliseconds")


def test_accepted_messages_are_pending_with_all_that_was_sent(world: World) -> None:
    answer = world.do(
        accept(
            "m1", "m2", dues_ms=[T0_MS + 5, T0_MS + 6], payloads=[b"one", b""], ordering_keys={1: "k"}, keys={0: "x"}
        )
    )
    assert answer == c.Accepted(first_seq=1, pending=2)
    first, second = world.state.get([1, 2])
    assert first is not None
    assert second is not None
    assert first[: rows.CRC] == (1, T0_MS + 5, b"one", "m1", 7, "", "x", T0_MS, 0, 1, T0_MS + 5)
    assert second[: rows.CRC] == (1, T0_MS + 6, b"", "m2", 7, "k", None, T0_MS, 0, 1, T0_MS + 6)
    assert world.state.stats(1) == ChannelStats(pending=2, pending_bytes=3, accepted=2)


def test_rows_read_back_from_the_file_are_the_same(world: World) -> None:
    ids = [f"m{i}" for i in range(20)]
    world.do(accept(*ids, ordering_keys={3: "ключ", 4: 'a"\x00b'}, keys={5: "", 6: "é"}))
    before = world.state.get(list(range(0, 23)))
    world.state.boundary()
    assert world.state.get(list(range(0, 23))) == before
    assert world.state.get([20, 1, 7]) == [before[20], before[1], before[7]]


def test_a_source_message_seen_before_is_not_stored_again(world: World) -> None:
    world.do(accept("m1", "m2"))
    answer = world.do(accept("m2", "m3", "m3"))
    assert answer == c.Accepted(first_seq=3, pending=1, duplicates=2)
    assert world.state.stats(1).duplicates == 2


@pytest.mark.parametrize(
    "other", [{"publish_us": 8}, {"subscription": SUBSCRIPTION + "2"}, {"uid": 2}], ids=["time", "source", "channel"]
)
def test_the_same_id_is_another_message_if_anything_else_differs(world: World, other: dict[str, Any]) -> None:
    world.do(create("b", subscription="b"), accept("m1"))
    assert world.do(accept("m1", **other)).pending == 1
    world.state.boundary()
    assert world.do(accept("m1", **other)).duplicates == 1


def test_faulty_messages_are_set_aside_and_discarded_ones_only_remembered(world: World) -> None:
    answer = world.do(accept("m1", "m2", "m3", dues_ms=[5, 0, 0], faults={1: FAULT}, discards={2: "MISSING"}))
    assert answer == c.Accepted(first_seq=1, pending=1, quarantined=1, discarded=1)
    again = world.do(accept("m1", "m2", "m3"))
    assert again.duplicates == 3
    stats = world.state.stats(1)
    assert (stats.pending, stats.quarantined, stats.discarded, stats.accepted) == (1, 1, 1, 2)
    assert stats.quarantined_bytes == len("payload of m2")
    assert world.state.seqs(1, 0, 10) == [1, 2]
    assert world.state.get([2]) == [None]


@pytest.mark.parametrize("stored", [False, True])
def test_an_outage_does_not_forget_what_was_seen_before_it(tmp_path: Path, stored: bool) -> None:
    world = World(tmp_path)
    world.do(create(policy=Policy(dedupe_window_ms=60_000)), accept("m1"))
    if stored:
        world.state.boundary()
    day_ms = 24 * 3600 * 1000
    assert world.do(accept("m1", stamp_ms=T0_MS + day_ms)).duplicates == 1
    listening = [accept(f"x{i}", stamp_ms=T0_MS + day_ms + 9_000 * i) for i in range(30)]
    world.do(*listening)
    assert world.do(accept("m1", stamp_ms=T0_MS + day_ms + 270_000)).duplicates == 0
    world.state.close()


def test_the_window_is_never_shorter_than_fifteen_minutes_of_listening(tmp_path: Path) -> None:
    world = World(tmp_path, StateLimits())
    world.do(create(policy=Policy(dedupe_window_ms=1)), accept("m1"))
    world.do(*[accept(f"x{i}", stamp_ms=T0_MS + 10_000 * i) for i in range(1, 90)])
    assert world.do(accept("m1", stamp_ms=T0_MS + 900_000)).duplicates == 1
    world.do(*[accept(f"y{i}", stamp_ms=T0_MS + 900_000 + 10_000 * i) for i in range(1, 8)])
    assert world.do(accept("m1", stamp_ms=T0_MS + 980_000)).duplicates == 0
    world.state.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"payloads": [b"x"]},
        {"dues_ms": [1, 2, 3]},
        {"publishes_us": [1]},
        {"dues_ms": [1 << 63, 5]},
        {"publishes_us": [1, 1 << 63]},
        {"stamp_ms": 1 << 63},
        {"stamp_ms": -1},
    ],
)
def test_an_accept_that_cannot_be_stored_is_rejected_and_changes_nothing(world: World, wrong: dict[str, Any]) -> None:
    before = world.state.digest()
    answer = world.do(accept("m1", "m2", **wrong))
    assert isinstance(answer, c.Rejected)
    assert answer.reason == "MALFORMED"
    assert world.state.digest() == before
    assert world.do(accept("m1")).pending == 1


def test_an_accept_for_an_unknown_or_closing_channel_is_rejected_so_that_it_is_not_acked(world: World) -> None:
    assert world.do(accept("m1", uid=9)).reason == c.REASON_NO_CHANNEL
    world.do(c.CloseChannel(stamp_ms=T0_MS, channel_uid=1, mode=Closing.DISCARD))
    assert world.do(accept("m1")).reason == c.REASON_CHANNEL_CLOSING


@pytest.mark.parametrize("layer", ["active", "frozen", "stored"])
def test_a_confirm_removes_what_is_there_at_its_revision_and_counts_the_rest_as_stale(world: World, layer: str) -> None:
    world.do(create("b", subscription="b"), accept("m1", "m2", "m3", "m4"), accept("other", uid=2))
    if layer != "active":
        world.state.freeze()
    if layer == "stored":
        world.state.write_frozen()
    answer = world.do(confirm(1, 1, 2, 3, 5, 77, 0, revisions={2: 2}))
    assert answer == c.Removed(removed=2, stale=5)
    assert [row is not None for row in world.state.get([1, 2, 3, 4, 5])] == [False, True, False, True, True]
    stats = world.state.stats(1)
    assert (stats.pending, stats.released, stats.stale_confirms) == (2, 2, 5)
    assert stats.pending_bytes == 2 * len("payload of m1")
    assert world.do(confirm(1)) == c.Removed(removed=0, stale=1)
    assert world.do(confirm(1, uid=9)).reason == c.REASON_NO_CHANNEL


@pytest.mark.parametrize("layer", ["active", "frozen", "stored"])
def test_quarantining_moves_a_pending_message_with_its_reason(world: World, layer: str) -> None:
    world.do(accept("m1", "m2", "m3"))
    if layer != "active":
        world.state.freeze()
    if layer == "stored":
        world.state.write_frozen()
    answer = world.do(c.Quarantine(stamp_ms=T0_MS + 1, channel_uid=1, seqs=[1, 2, 9], fault=FAULT, revisions={2: 3}))
    assert answer == c.Removed(removed=1, stale=2)
    stats = world.state.stats(1)
    assert (stats.pending, stats.quarantined, stats.accepted, stats.released) == (2, 1, 3, 0)
    assert world.state.get([1]) == [None]
    assert world.state.seqs(1, 0, 9) == [1, 2, 3]
    world.state.boundary()
    assert world.state.seqs(1, 0, 9) == [1, 2, 3]


@pytest.mark.parametrize("layer", ["active", "frozen", "stored"])
def test_a_closing_channel_is_emptied_by_discards_of_both_kinds(world: World, layer: str) -> None:
    world.do(accept("m1", "m2", "m3", dues_ms=[1, 0, 3], faults={1: FAULT}))
    if layer != "active":
        world.state.freeze()
    if layer == "stored":
        world.state.write_frozen()
    refused = world.do(c.Discard(stamp_ms=T0_MS, channel_uid=1, seqs=[1]))
    assert refused.reason == "CHANNEL_NOT_CLOSING"
    world.do(c.CloseChannel(stamp_ms=T0_MS, channel_uid=1, mode=Closing.DISCARD))
    answer = world.do(c.Discard(stamp_ms=T0_MS, channel_uid=1, seqs=[1, 2, 3, 3, 8]))
    assert answer == c.Removed(removed=3, stale=2)
    stats = world.state.stats(1)
    assert (stats.pending, stats.pending_bytes, stats.quarantined, stats.quarantined_bytes) == (0, 0, 0, 0)
    assert stats.discarded == 3
    assert world.state.seqs(1, 0, 9) == []
    world.state.boundary()
    assert world.state.seqs(1, 0, 9) == []


def test_the_digest_forgets_a_message_that_came_and_went(world: World) -> None:
    """Its counters stay, so two states that released the same agree and others do not."""
    world.do(accept("m1", "m2"))
    both = world.state.digest()
    world.do(confirm(1))
    one = world.state.digest()
    assert one != both
    world.state.boundary()
    assert world.state.digest() == one


def test_a_message_confirmed_within_its_generation_never_reaches_the_file(world: World) -> None:
    world.do(accept("m1", "m2"), confirm(1))
    world.state.boundary()
    with world.state._store.reader() as connection:
        assert connection.execute("SELECT seq FROM messages").fetchall() == [(2,)]
