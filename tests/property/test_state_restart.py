"""A replica stopped at any moment around a boundary, reopened and replayed, equals one that never stopped."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from itertools import islice
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import commands as c
from engine.model import Closing, Cluster, Node, Pause, Policy, Side
from engine.state.state import State
from tests.unit.state.builders import SMALL, T0_MS, create, destination, source

LIMITS = replace(
    SMALL,
    listening_minute_ms=100,
    listening_step_ms=80,
    results_max=3,
    result_window_ms=400,
    results_purged_max=1,
    vacuum_kept_pages=0,
    wal_bytes=0,
)
POLICY = Policy(dedupe_window_ms=150)

UIDS = st.sampled_from([1, 1, 2, 3])
SEQS = st.lists(st.integers(0, 40), max_size=6)
FAULT = c.Fault("BAD", "no time")


REQUEST = {"request_id": st.sampled_from(["", "", "r0", "r1", "r2", "r3"]), "fingerprint": st.sampled_from("fg")}
UNSTAMPED = {"stamp_ms": st.just(0)}


def _accept(uid: int, names: list[str], subscription: str, odd: int, due: int) -> c.Accept:
    n = len(names)
    return c.Accept(
        stamp_ms=0,
        channel_uid=uid,
        subscription=subscription,
        source_ids=names,
        publish_us=[5] * n,
        dues_ms=[T0_MS + due + i for i in range(n)],
        payloads=[b"x" * (i * 7) for i in range(n)],
        ordering_keys={0: "k"} if odd == 1 else {},
        keys={1: "key"} if odd == 2 else {},
        faults={0: FAULT} if odd == 3 else {},
        discards={1: "gone"} if odd == 4 else {},
    )


ACCEPTS = st.builds(
    _accept,
    UIDS,
    st.lists(st.sampled_from([f"id{i}" for i in range(12)]), max_size=5),
    st.sampled_from(["S", "S", "T"]),
    st.integers(0, 6),
    st.sampled_from([0, 1 << 20, -5]),
)
COMMANDS = st.one_of(
    ACCEPTS,
    ACCEPTS,
    ACCEPTS,
    st.builds(c.Confirm, channel_uid=UIDS, seqs=SEQS, revisions=st.sampled_from([{}, {}, {3: 2}]), **UNSTAMPED),
    st.builds(c.Quarantine, channel_uid=UIDS, seqs=SEQS, fault=st.just(FAULT), **UNSTAMPED),
    st.builds(c.Discard, channel_uid=UIDS, seqs=SEQS, **UNSTAMPED),
    st.builds(
        c.CreateChannel,
        id=st.sampled_from("abc"),
        name=st.just("N"),
        source=st.sampled_from("abc").map(source),
        destination=st.just(destination()),
        policy=st.just(POLICY),
        initial=st.booleans(),
        **UNSTAMPED,
        **REQUEST,
    ),
    st.builds(
        c.UpdateChannel,
        channel_uid=UIDS,
        expected_revision=st.integers(1, 2),
        name=st.just("M"),
        source=st.sampled_from("abc").map(source),
        destination=st.just(destination("u")),
        policy=st.sampled_from([POLICY, Policy(dedupe_window_ms=50)]),
        **UNSTAMPED,
        **REQUEST,
    ),
    st.builds(
        c.PauseChannel,
        channel_uid=UIDS,
        side=st.sampled_from(Side),
        pause=st.sampled_from([None, Pause(by="x")]),
        **UNSTAMPED,
        **REQUEST,
    ),
    st.builds(
        c.CloseChannel,
        channel_uid=UIDS,
        mode=st.sampled_from([None, Closing.DISCARD, Closing.DRAIN]),
        **UNSTAMPED,
        **REQUEST,
    ),
    st.builds(c.DropChannel, channel_uid=UIDS, **UNSTAMPED),
    st.just(c.Found(stamp_ms=0, cluster=Cluster(cluster_id="c1"))),
    st.builds(c.PutNode, node=st.sampled_from("xy").map(lambda addr: Node(name="n", addr=addr)), **UNSTAMPED),
)
STEPS = st.lists(st.tuples(st.sampled_from([0, 1, 40, 90, 300, -50]), COMMANDS), min_size=1, max_size=40)


def _log(steps: list[tuple[int, c.Command]]) -> list[bytes]:
    """A log that begins with two channels; its stamps go back now and then."""
    log = [
        c.encode(create("a", subscription="a", policy=POLICY)),
        c.encode(create("b", subscription="b", policy=POLICY, request_id="r0", fingerprint="f")),
    ]
    stamp_ms = T0_MS
    for delta_ms, command in steps:
        stamp_ms += delta_ms
        log.append(c.encode(msgspec.structs.replace(command, stamp_ms=stamp_ms)))
    return log


def snapshot(state: State) -> object:
    """All that can be seen of a state."""
    rows = {channel.uid: state.seqs(channel.uid, -1, 1000) for channel in state.channels()}
    return (
        state.applied_index,
        state.digest(),
        state.channels(),
        state.nodes(),
        state.cluster(),
        {uid: (state.stats(uid), list(zip(seqs, state.get(seqs), strict=True))) for uid, seqs in rows.items()},
        [state.was_ever(id) for id in "abcd"],
        state.last_stamp_ms,
    )


EVENTS = st.lists(
    st.tuples(
        st.integers(1, 8),
        st.sampled_from(["freeze", "write", "boundary", "kill", "kill writing", "copy writing", "abandon"]),
        st.integers(0, 30),
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None, print_blob=True)
@given(STEPS, EVENTS)
def test_a_replica_stopped_at_any_moment_and_replayed_equals_one_that_never_stopped(
    steps: list[tuple[int, c.Command]], events: list[tuple[int, str, int]]
) -> None:
    log = _log(steps)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        steady = State.open(directory / "steady.db", LIMITS)
        expected = []
        sights = []
        for index, entry in enumerate(log, 1):
            expected += steady.apply(index, 1, [entry])
            sights.append(snapshot(steady))
        steady.close()

        path = directory / "0" / "state.db"
        path.parent.mkdir()
        state = State.open(path, LIMITS)
        try:
            for number, (entries, event, step) in enumerate([*events, (len(log), "kill", 0)], 1):
                for index in range(state.applied_index, min(state.applied_index + entries, len(log))):
                    assert state.apply(index + 1, 1, [log[index]]) == [expected[index]]
                path, state = _happen(event, step, path, directory / str(number) / "state.db", state)
                if state.applied_index:
                    assert snapshot(state) == sights[state.applied_index - 1]
            for index in range(state.applied_index, len(log)):
                assert state.apply(index + 1, 1, [log[index]]) == [expected[index]]
            assert snapshot(state) == sights[-1]
        finally:
            state.close()


def _happen(event: str, step: int, path: Path, next_path: Path, state: State) -> tuple[Path, State]:
    """Something befalls the replica; returns where it lives now, and the state it has there."""
    if event == "freeze":
        state.freeze()
    elif event == "write":
        state.write_frozen()
    elif event == "boundary":
        state.boundary()
        state.tidy()
    elif event == "abandon":
        state.freeze()
        list(islice(state.write_steps(), step))
    elif event == "kill":
        state.close()
        state = State.open(path, LIMITS)
    else:
        state.freeze()
        steps = state.write_steps()
        list(islice(steps, step))
        next_path.parent.mkdir()
        for file in sorted(path.parent.iterdir()):
            if event == "kill writing" or not file.name.endswith("-shm"):
                shutil.copy(file, next_path.parent / file.name)
        steps.close()
        state.close()
        path, state = next_path, State.open(next_path, LIMITS)
    return path, state
