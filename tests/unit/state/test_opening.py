"""What a start does with the file it finds: take it, or refuse it with a sentence and leave it alone."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import commands as c
from engine.errors import ConfigError, DamagedError
from engine.model import Cluster, Node, Pause, Side
from engine.state.schema import FORMAT
from engine.state.state import State
from tests.unit.state.builders import SMALL, T0_MS, World, accept, confirm, create

FAULT = c.Fault("X", "y")


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """The file of a state with a row in every table, closed after a boundary."""
    world = World(tmp_path)
    world.do(
        create(request_id="r", fingerprint="f"),
        c.Found(stamp_ms=T0_MS, cluster=Cluster(cluster_id="c1")),
        c.PutNode(stamp_ms=T0_MS, node=Node(name="n", addr="h:1")),
        accept("m1", "m2", "m3", faults={2: FAULT}),
    )
    world.state.boundary()
    world.state.close()
    return world.path


def sql(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def test_a_new_directory_gets_an_empty_state_in_write_ahead_mode_that_can_shrink(tmp_path: Path) -> None:
    state = State.open(tmp_path / "state.db", SMALL)
    assert (state.applied_index, state.stored_index, state.channels(), state.digest()) == (0, 0, [], {})
    state.close()
    connection = sqlite3.connect(tmp_path / "state.db")
    modes = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "auto_vacuum")]
    connection.close()
    assert modes == ["wal", 2]
    State.open(tmp_path / "state.db", SMALL).close()


def test_the_stored_index_is_where_a_start_goes_on(stored: Path) -> None:
    state = State.open(stored, SMALL)
    assert (state.applied_index, state.applied_term) == (state.stored_index, state.stored_term) == (4, 1)
    assert state.cluster() == Cluster(cluster_id="c1")
    assert state.last_stamp_ms == T0_MS
    state.close()


def test_a_file_of_a_newer_format_is_refused_and_left_as_it_is(stored: Path) -> None:
    sql(stored, f"PRAGMA user_version = {FORMAT + 1}", "PRAGMA wal_checkpoint(TRUNCATE)")
    before = {file.name: file.read_bytes() for file in stored.parent.iterdir()}
    with pytest.raises(ConfigError, match="newer version"):
        State.open(stored, SMALL)
    assert {file.name: file.read_bytes() for file in stored.parent.iterdir()} == before


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda path: path.write_bytes(b"hello"), "not a SQLite database"),
        (lambda path: path.write_bytes(b"x" * 9000), "not a SQLite database"),
        (lambda path: path.write_bytes(path.read_bytes()[:9000]), "cut short"),
        (lambda path: sql(path, "PRAGMA application_id = 7"), "another program"),
        (lambda path: path.write_bytes(path.read_bytes()[:4096] + b"\xff" * (path.stat().st_size - 4096)), "damaged"),
    ],
    ids=["text", "noise", "cut", "foreign", "overwritten"],
)
def test_a_file_that_is_not_a_whole_state_db_is_refused_and_kept(
    stored: Path, spoil: Callable[[Path], object], sentence: str
) -> None:
    spoil(stored)
    before = stored.read_bytes()
    with pytest.raises(DamagedError, match=sentence) as raised:
        State.open(stored, SMALL)
    assert str(stored) in str(raised.value)
    assert "kept" in str(raised.value)
    assert stored.read_bytes() == before


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE meta SET value = value + 1 WHERE name = 'next_seq'",
        "DELETE FROM meta WHERE name = 'next_uid'",
        "DELETE FROM meta",
        "UPDATE channels SET name = 'B'",
        "UPDATE channel_stats SET pending = pending - 1",
        "UPDATE channel_stats SET body = x'00'",
        "DELETE FROM channel_stats",
        "UPDATE former_ids SET id = 'b'",
        "DELETE FROM former_ids",
        "UPDATE nodes SET addr = 'h:2'",
        "DELETE FROM nodes",
        "UPDATE cluster SET body = x'00'",
        "UPDATE results SET fingerprint = 'g'",
        "DELETE FROM results",
        "UPDATE seen SET minute = minute + 1",
        "UPDATE seen SET hashes = zeroblob(length(hashes))",
        "INSERT INTO messages SELECT 99, channel_uid, slot, due_ms, original_due_ms, source_id, publish_us,"
        " ordering_key, key, size, accepted_ms, attempts, revision, crc, payload FROM messages WHERE seq = 1",
    ],
)
def test_a_row_changed_behind_the_engine_is_found_when_opening(stored: Path, statement: str) -> None:
    sql(stored, statement)
    with pytest.raises(DamagedError, match=r"state\.db"):
        State.open(stored, SMALL)


@pytest.mark.parametrize("column", ["due_ms = 3", "payload = x'01'", "key = ''", "source_id = 'm9'", "attempts = 1",
                                    "original_due_ms = 1", "publish_us = 1", "ordering_key = 'k'", "revision = 2",
                                    "accepted_ms = 1", "channel_uid = 2", "crc = crc + 1"])  # fmt: skip
def test_a_damaged_message_is_found_when_it_is_read_and_others_are_not_held_up(stored: Path, column: str) -> None:
    sql(stored, f"UPDATE messages SET {column} WHERE seq = 2")
    state = State.open(stored, SMALL)
    assert state.get([1])[0] is not None
    with pytest.raises(DamagedError, match="seq 2 in messages"):
        state.get([1, 2])
    state.close()


def test_damaged_ids_are_found_when_a_redelivered_message_is_compared_with_them(stored: Path) -> None:
    sql(stored, "UPDATE seen SET ids = zeroblob(length(ids))")
    state = State.open(stored, SMALL)
    with pytest.raises(DamagedError, match="in seen"):
        state.apply(5, 1, [c.encode(accept("m1"))])
    state.close()


def test_a_copy_of_a_running_nodes_file_without_its_write_ahead_file_is_not_taken_for_whole(tmp_path: Path) -> None:
    """Pages of two boundaries: the small tables no longer belong to the meta of either."""
    (tmp_path / "node").mkdir()
    world = World(tmp_path / "node")
    world.do(create(), accept(*[f"m{i}" for i in range(50)]))
    world.state.boundary()
    world.state.tidy()
    sql(world.path, "PRAGMA wal_checkpoint(TRUNCATE)")
    old = world.path.read_bytes()
    world.do(c.PauseChannel(stamp_ms=T0_MS, channel_uid=1, side=Side.BOTH, pause=Pause(by="x")), confirm(1, 2, 3))
    world.state.boundary()
    sql(world.path, "PRAGMA wal_checkpoint(TRUNCATE)")
    new = world.path.read_bytes()
    world.state.close()
    changed = [at for at in range(4096, len(old), 4096) if old[at : at + 4096] != new[at : at + 4096]]
    assert len(changed) >= 3
    refused = 0
    for at in changed:
        torn = tmp_path / f"torn{at}.db"
        torn.write_bytes(new[:at] + old[at : at + 4096] + new[at + 4096 :])
        try:
            State.open(torn, SMALL).close()
        except DamagedError:
            refused += 1
    assert refused >= 2


def test_a_stop_before_the_first_boundary_starts_empty_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.do(create(), accept("m1"))
    copy = tmp_path / "copy.db"
    shutil.copy(world.path, copy)
    world.state.close()
    state = State.open(copy, SMALL)
    assert (state.applied_index, state.channels()) == (0, [])
    state.close()


def test_readers_of_the_file_see_exactly_the_state_of_the_last_boundary(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.do(create(), accept("m1", "m2", due_ms=T0_MS + 1))
    world.state.boundary()
    world.do(confirm(1), accept("m3"))
    connection = sqlite3.connect(f"file:{world.path}?mode=ro", uri=True)
    assert connection.execute("SELECT seq, slot, due_ms, size FROM messages").fetchall() == [
        (seq, (T0_MS + 1) >> 20, T0_MS + 1, len("payload of m1")) for seq in (1, 2)
    ]
    assert connection.execute("SELECT pending, accepted, released FROM channel_stats").fetchall() == [(2, 2, 0)]
    assert connection.execute("SELECT value FROM meta WHERE name = 'applied_index'").fetchall() == [(2,)]
    connection.close()
    world.state.close()
