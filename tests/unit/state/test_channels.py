"""The rules of channels, and the answers that idempotency keys give."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from engine import commands as c
from engine.model import Closing, Cluster, Node, Pause, Side
from tests.unit.state.builders import SMALL, T0_MS, World, accept, confirm, create, update


def close(uid: int = 1, mode: Closing | None = Closing.DISCARD, **more: Any) -> c.CloseChannel:
    return c.CloseChannel(stamp_ms=T0_MS, channel_uid=uid, mode=mode, **more)


def drop(uid: int = 1) -> c.DropChannel:
    return c.DropChannel(stamp_ms=T0_MS, channel_uid=uid)


def test_a_new_channel_gets_the_next_uid_and_revision_one(world: World) -> None:
    channel = world.do(create("b", subscription="b", stamp_ms=T0_MS + 3)).channel
    assert (channel.uid, channel.revision, channel.created_ms, channel.updated_ms) == (2, 1, T0_MS + 3, T0_MS + 3)
    assert world.state.channel("b") == world.state.channel_by_uid(2) == channel
    assert [found.id for found in world.state.channels()] == ["a", "b"]
    assert world.state.channel("c") is None


def test_an_id_or_a_subscription_that_is_taken_is_refused(world: World) -> None:
    assert world.do(create("a", subscription="b")).reason == c.REASON_CHANNEL_EXISTS
    taken = world.do(create("b"))
    assert taken.reason == c.REASON_SUBSCRIPTION_TAKEN
    assert "'a'" in taken.detail
    assert world.state.channel("b") is None


def test_a_channel_made_from_the_environment_is_not_made_a_second_time(world: World) -> None:
    assert world.do(create("x", subscription="x", initial=True)).channel.uid == 2
    world.do(close(2), drop(2))
    assert world.state.was_ever("x")
    for _ in range(2):
        assert world.do(create("x", subscription="x", initial=True)).reason == c.REASON_CHANNEL_EXISTS
        world.state.boundary()
        world.reopen()
    assert world.do(create("x", subscription="x")).channel.uid == 3


def test_an_update_needs_the_present_revision_and_a_free_subscription(world: World) -> None:
    world.do(create("b", subscription="b"))
    channel = world.state.channel("a")
    assert channel is not None
    assert world.do(update(channel, expected_revision=2)).reason == c.REASON_REVISION
    assert world.do(update(channel, subscription="b")).reason == c.REASON_SUBSCRIPTION_TAKEN
    changed = world.do(update(channel, subscription="new", name="N", stamp_ms=T0_MS + 9)).channel
    assert (changed.name, changed.revision, changed.created_ms, changed.updated_ms) == ("N", 2, T0_MS, T0_MS + 9)
    assert world.do(create("c", subscription="s")).channel.uid == 3
    stranger = msgspec.structs.replace(channel, uid=9)
    assert world.do(update(stranger)).reason == c.REASON_NO_CHANNEL


def test_pausing_one_side_leaves_the_other_and_changing_nothing_is_no_revision(world: World) -> None:
    why = Pause(by="ann", reason="upgrade")
    paused = world.do(c.PauseChannel(stamp_ms=T0_MS, channel_uid=1, side=Side.LISTEN, pause=why)).channel
    assert (paused.paused_listen, paused.paused_release, paused.revision) == (why, None, 2)
    again = world.do(c.PauseChannel(stamp_ms=T0_MS, channel_uid=1, side=Side.LISTEN, pause=why)).channel
    assert again.revision == 2
    both = world.do(c.PauseChannel(stamp_ms=T0_MS, channel_uid=1, side=Side.BOTH, pause=None)).channel
    assert (both.paused_listen, both.paused_release, both.revision) == (None, None, 3)
    missing = world.do(c.PauseChannel(stamp_ms=T0_MS, channel_uid=9, side=Side.BOTH, pause=None))
    assert missing.reason == c.REASON_NO_CHANNEL


def test_the_end_of_a_pause_does_not_end_the_one_that_replaced_it(world: World) -> None:
    first = world.do(
        c.PauseChannel(stamp_ms=T0_MS, channel_uid=1, side=Side.BOTH, pause=Pause(by="x", until_ms=T0_MS + 1))
    ).channel
    longer = Pause(by="x", until_ms=T0_MS + 60_000)
    world.do(c.PauseChannel(stamp_ms=T0_MS, channel_uid=1, side=Side.BOTH, pause=longer))

    late = world.do(
        c.PauseChannel(stamp_ms=T0_MS + 1, channel_uid=1, side=Side.BOTH, pause=None, expected_revision=first.revision)
    )

    assert late.reason == c.REASON_REVISION
    assert world.state.channel("a").paused_release == longer


def test_without_a_mode_only_an_empty_channel_closes_and_the_refusal_says_what_it_holds(world: World) -> None:
    world.do(accept("m1", "m2", faults={1: c.Fault("X", "y")}))
    refused = world.do(close(mode=None))
    assert refused.reason == c.REASON_CHANNEL_NOT_EMPTY
    assert "1 pending and 1 quarantined" in refused.detail
    world.do(create("b", subscription="b"))
    assert world.do(close(2, mode=None)).channel.closing is not None


def test_closing_checks_the_revision_and_a_later_mode_replaces_the_first(world: World) -> None:
    assert world.do(close(expected_revision=5)).reason == c.REASON_REVISION
    closing = world.do(close(mode=Closing.DRAIN, expected_revision=1)).channel
    assert (closing.closing, closing.revision) == (Closing.DRAIN, 2)
    assert world.do(close(mode=Closing.DRAIN)).channel.revision == 2
    assert world.do(close(mode=Closing.DISCARD)).channel.closing is Closing.DISCARD
    assert world.do(close(9)).reason == c.REASON_NO_CHANNEL


def test_a_channel_is_dropped_only_when_closing_and_empty_and_its_successor_knows_nothing(world: World) -> None:
    world.do(accept("m1"))
    assert world.do(drop()).reason == "CHANNEL_NOT_CLOSING"
    world.do(close(mode=Closing.DRAIN))
    assert world.do(drop()).reason == c.REASON_CHANNEL_NOT_EMPTY
    world.state.boundary()
    assert world.do(confirm(1), drop()) == c.Done()
    assert world.do(drop()).reason == c.REASON_NO_CHANNEL
    assert world.state.digest() == {}
    assert world.do(create("a")).channel.uid == 2
    world.state.boundary()
    world.reopen()
    assert world.do(accept("m1", uid=2)).pending == 1
    assert world.do(accept("m1", uid=1)).reason == c.REASON_NO_CHANNEL
    assert world.state.stats(1).accepted == 0
    connection = sqlite3.connect(world.path)
    assert connection.execute("SELECT count(*) FROM seen").fetchall() == [(0,)]
    assert connection.execute("SELECT uid FROM channels").fetchall() == [(2,)]
    connection.close()


def test_a_cluster_is_founded_once(world: World) -> None:
    cluster = Cluster(cluster_id="c1", secret_key="s")
    assert world.do(c.Found(stamp_ms=T0_MS, cluster=cluster)) == c.Done()
    other = c.Found(stamp_ms=T0_MS, cluster=Cluster(cluster_id="c2"))
    assert world.do(other).reason == c.REASON_ALREADY_FOUNDED
    world.state.boundary()
    world.reopen()
    assert world.state.cluster() == cluster
    assert world.do(other).reason == c.REASON_ALREADY_FOUNDED


def test_nodes_are_kept_by_name_with_their_latest_address(world: World) -> None:
    for name, addr in (("n2", "h:2"), ("n1", "h:1"), ("n2", "h:3")):
        world.do(c.PutNode(stamp_ms=T0_MS, node=Node(name=name, addr=addr)))
    expected = [Node(name="n1", addr="h:1"), Node(name="n2", addr="h:3")]
    assert world.state.nodes() == expected
    world.state.boundary()
    world.reopen()
    assert world.state.nodes() == expected


def test_a_repeated_request_is_answered_alike_and_done_once(world: World) -> None:
    request = create("b", subscription="b", request_id="r", fingerprint="f")
    first = world.do(request)
    assert world.do(request) == first
    world.state.boundary()
    world.reopen()
    assert world.do(request) == first
    assert world.state.was_ever("b")
    assert world.do(create("c", subscription="c")).channel.uid == 3


def test_a_refusal_is_remembered_too(world: World) -> None:
    request = create("b", request_id="r", fingerprint="f")
    assert world.do(request).reason == c.REASON_SUBSCRIPTION_TAKEN
    channel = world.state.channel("a")
    assert channel is not None
    world.do(update(channel, subscription="elsewhere"))
    assert world.do(request).reason == c.REASON_SUBSCRIPTION_TAKEN


def test_a_key_used_for_another_request_is_refused(world: World) -> None:
    world.do(create("b", subscription="b", request_id="r", fingerprint="f"))
    refused = world.do(create("c", subscription="c", request_id="r", fingerprint="g"))
    assert refused.reason == c.REASON_KEY_REUSED
    assert world.state.channel("c") is None


class Keys:
    """Requests with idempotency keys that differ in nothing else."""

    def __init__(self, directory: Path, **limits: Any) -> None:
        self.world = World(directory, replace(SMALL, result_window_ms=1000, **limits))
        self.world.do(create())

    def use(self, key: str, after_ms: int, fingerprint: str = "f") -> str:
        """Use a key some time after T0; returns the reason of a refusal, or nothing."""
        answer = self.world.do(
            c.PauseChannel(
                stamp_ms=T0_MS + after_ms,
                channel_uid=1,
                side=Side.BOTH,
                pause=Pause(by=key),
                request_id=key,
                fingerprint=fingerprint,
            )
        )
        return answer.reason if isinstance(answer, c.Rejected) else ""


def test_keys_are_capped_and_forgotten_after_their_window(tmp_path: Path) -> None:
    keys = Keys(tmp_path, results_max=2)
    assert [keys.use("r1", 0), keys.use("r2", 500)] == ["", ""]
    assert keys.use("r3", 999) == c.REASON_KEYS_FULL
    assert keys.use("r1", 999) == ""
    assert keys.use("r3", 1000) == ""
    assert keys.use("r2", 1499, "g") == c.REASON_KEY_REUSED
    assert keys.use("r2", 1500, "g") == ""
    keys.world.state.close()


def test_a_key_used_anew_after_its_window_does_not_hold_up_the_forgetting_of_others(tmp_path: Path) -> None:
    keys = Keys(tmp_path, results_max=4, results_purged_max=1)
    assert [keys.use(key, 0) for key in ("r1", "r2", "r3", "r4")] == [""] * 4
    assert [keys.use(key, 2000) for key in ("r2", "r5", "r6", "r7")] == [""] * 4
    assert keys.use("r8", 2000) == c.REASON_KEYS_FULL
    keys.world.state.close()


def test_the_oldest_key_is_forgotten_first_after_a_restart_too(tmp_path: Path) -> None:
    keys = Keys(tmp_path, results_max=2, results_purged_max=1)
    assert [keys.use("z", 0), keys.use("a", 500)] == ["", ""]
    keys.world.state.boundary()
    keys.world.reopen()
    assert keys.use("x", 1000) == ""
    keys.world.state.close()


def test_a_stamp_that_goes_back_counts_as_the_highest_one(world: World) -> None:
    world.do(accept("m1", stamp_ms=T0_MS + 500))
    assert world.do(create("b", subscription="b", stamp_ms=T0_MS)).channel.created_ms == T0_MS + 500
    assert world.state.last_stamp_ms == T0_MS + 500


def test_observers_learn_what_became_pending_and_which_channel_changed(world: World) -> None:
    told: list[object] = []

    class Notebook:
        def on_pending(self, channel_uid, seqs, dues_ms) -> None:
            told.append((channel_uid, list(seqs), list(dues_ms), world.state.get(seqs)[0] is not None))

        def on_channel(self, channel_uid, channel) -> None:
            told.append((channel_uid, channel and channel.closing))

    channel = world.state.channel("a")
    assert channel is not None
    world.state.observer = Notebook()
    world.do(accept("m1", "m2", dues_ms=[3, 4]), accept("m1"), accept("m3", faults={0: c.Fault("X", "y")}))
    world.do(confirm(1, 2), update(channel), close())
    world.do(c.Discard(stamp_ms=T0_MS, channel_uid=1, seqs=[3]), drop())
    assert told == [(1, [1, 2], [3, 4], True), (1, None), (1, Closing.DISCARD), (1, None)]
