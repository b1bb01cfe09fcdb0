"""Pages over a state.db of any content, against sorting it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connections
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from channels_app import reading
from channels_app.models import Message
from channels_app.reading import Filters, pending_page
from scheduler_project.limits import WebLimits
from scheduler_project.pages import Cursor
from scheduler_project.replica import base

SLOT_MS = 1 << 20
COLUMNS = "channel_uid, slot, due_ms, original_due_ms, source_id, publish_us, ordering_key, key, size, accepted_ms"
TABLE = f"CREATE TABLE messages (seq INTEGER PRIMARY KEY, {COLUMNS}, attempts, revision, payload)"
ROW = f"INSERT INTO messages (seq, {COLUMNS}, attempts, revision, payload) VALUES (?,?,?,?,?,?,0,?,?,?,0,0,1,x'')"
Messages = list[tuple[int, int]]
messages = st.lists(
    st.tuples(st.integers(1, 2), st.integers(0, 3 * SLOT_MS) | st.sampled_from([SLOT_MS, 2 * SLOT_MS])), max_size=25
)


@pytest.fixture
def state(tmp_path: Path, settings: Any, django_db_blocker: Any) -> Iterator[sqlite3.Connection]:
    """An empty table of messages where Django finds it."""
    settings.STORAGE_PATH = tmp_path
    (tmp_path / "state").mkdir()
    writer = sqlite3.connect(tmp_path / "state" / "state.db", isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute(TABLE)
    writer.execute("CREATE INDEX messages_due ON messages (channel_uid, slot, seq, due_ms)")
    with django_db_blocker.unblock():
        connections["state"].close()
        yield writer
        connections["state"].close()
    writer.close()


def fill(state: sqlite3.Connection, rows: Messages, size: int = 10) -> None:
    state.execute("DELETE FROM messages")
    for seq, (channel, due) in enumerate(rows, 1):
        state.execute(ROW, (seq, channel, due // SLOT_MS, due, due, str(seq), f"key-{due % 2}", None, size))


def all_pages(filters: Filters, limit: int) -> list[list[int]]:
    """The seqs of every page; each page's way back leads to where it was left."""
    pages: list[list[int]] = []
    cursor: Cursor | None = None
    for _ in range(100):
        page = pending_page(filters, limit, cursor)
        pages.append([message.seq for message in page.messages])
        if page.preceding is not None and pages[-1]:
            back = pending_page(filters, limit, Cursor(page.preceding, backwards=True))
            before = [seq for earlier in pages[:-1] for seq in earlier]
            seqs = [message.seq for message in back.messages]
            assert seqs
            assert seqs == before[-len(seqs) :]
        if page.following is None:
            return pages
        cursor = Cursor(page.following)
    raise AssertionError("the pages do not end")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    rows=messages,
    limit=st.integers(1, 6),
    uids=st.sampled_from([(1,), (1, 2)]),
    bounds=st.sampled_from([(None, None), (SLOT_MS // 2, None), (None, 2 * SLOT_MS), (SLOT_MS, 2 * SLOT_MS + 5)]),
    ordering_key=st.sampled_from([None, "key-0"]),
)
def test_pages_together_are_the_sorted_list(
    state: sqlite3.Connection,
    rows: Messages,
    limit: int,
    uids: tuple[int, ...],
    bounds: tuple[int | None, int | None],
    ordering_key: str | None,
) -> None:
    fill(state, rows)
    start, end = bounds
    expected = sorted(
        (due, seq)
        for seq, (channel, due) in enumerate(rows, 1)
        if channel in uids
        and (start is None or due >= start)
        and (end is None or due < end)
        and (ordering_key is None or due % 2 == 0)
    )
    filters = Filters(channel_uids=uids, due_from_ms=start, due_to_ms=end, ordering_key=ordering_key)
    pages = all_pages(filters, limit)
    assert [seq for page in pages for seq in page] == [seq for _, seq in expected]
    assert all(len(page) == limit for page in pages[:-1])


def test_a_page_ends_before_its_messages_get_too_large(
    state: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "LIMITS", WebLimits(page_bytes_max=25))
    fill(state, [(1, due) for due in range(5)], size=10)
    assert all_pages(Filters(channel_uids=(1,)), 100) == [[1, 2], [3, 4], [5]]


def test_a_statement_that_takes_too_long_is_stopped(state: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(state, [(1, due) for due in range(300)])
    monkeypatch.setattr(base, "LIMITS", WebLimits(read_time_limit_s=0.0))
    with pytest.raises(OperationalError, match="interrupted"), connections["state"].cursor() as cursor:
        cursor.execute("SELECT count(*) FROM messages a, messages b, messages c")
    monkeypatch.setattr(base, "LIMITS", WebLimits())
    assert Message.objects.count() == 300


def test_nothing_can_be_written(state: sqlite3.Connection) -> None:
    with pytest.raises(OperationalError, match="readonly"), connections["state"].cursor() as cursor:
        cursor.execute("DELETE FROM messages")
