"""Cursors are opaque, and anything else in their place is refused."""

from __future__ import annotations

import base64

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidCommand
from scheduler_project.pages import Cursor, decode_cursor


@given(st.integers(-(2**62) + 1, 2**62 - 1), st.text(), st.booleans())
def test_a_cursor_comes_back_as_it_was(number: int, text: str, backwards: bool) -> None:
    cursor = Cursor((number, text), backwards)
    assert decode_cursor(cursor.encode(), [int, str]) == cursor


@given(st.text(max_size=40))
def test_any_text_is_a_cursor_or_refused(text: str) -> None:
    try:
        decode_cursor(text, [int, int])
    except InvalidCommand:
        return


@pytest.mark.parametrize("content", [[False, "a"], [0, 1, 2], [False, 1], [False, 1, True], [False, 1, 2**63], 7, []])
def test_another_lists_cursor_is_refused(content: object) -> None:
    text = base64.urlsafe_b64encode(msgspec.msgpack.encode(content)).decode()
    with pytest.raises(InvalidCommand):
        decode_cursor(text, [int, int])
