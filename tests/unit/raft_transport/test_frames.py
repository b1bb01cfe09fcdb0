"""Frames from any bytes: what is whole and right comes out, everything else is refused at once."""

from __future__ import annotations

import itertools
import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.raft.transport.frames import (
    FIRST,
    HEADER_BYTES,
    LAST,
    Frame,
    FrameError,
    FrameReader,
    FrameType,
    Seal,
    frame_parts,
)

KEY = b"k" * 32
LIMIT = 1000
MESSAGES = st.lists(st.tuples(st.integers(0, 0xFFFF), st.binary(max_size=LIMIT)), max_size=8)


def reader(key: bytes | None = None) -> FrameReader:
    made = FrameReader(LIMIT)
    made.seal = Seal(key) if key else None
    return made


def data(kind: int, body: bytes, seal: Seal | None = None) -> bytes:
    return b"".join(frame_parts(seal, FrameType.DATA, (body,), flags=FIRST | LAST, kind=kind))


def take(frames: FrameReader, received: bytes) -> list[Frame]:
    frames.feed(received)
    found = []
    while (frame := frames.next()) is not None:
        found.append(frame)
    return found


def in_pieces(received: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(received) + 1) for cut in cuts} | {0, len(received)})
    return [received[a:b] for a, b in itertools.pairwise(places)]


@settings(max_examples=80, deadline=None)
@given(MESSAGES, st.lists(st.integers(min_value=0), max_size=20), st.booleans())
def test_what_was_written_comes_out_however_it_was_cut(
    messages: list[tuple[int, bytes]], cuts: list[int], sealed: bool
) -> None:
    seal = Seal(KEY) if sealed else None
    written = b"".join(data(kind, body, seal) for kind, body in messages)
    frames = reader(KEY if sealed else None)
    found = [frame for piece in in_pieces(written, cuts) for frame in take(frames, piece)]
    assert [(frame.kind, frame.body) for frame in found] == messages
    assert frames.held_bytes == 0


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=3000), st.lists(st.integers(min_value=0), max_size=6), st.booleans())
def test_any_bytes_are_frames_or_refused_and_never_pile_up(garbage: bytes, cuts: list[int], sealed: bool) -> None:
    frames = reader(KEY if sealed else None)
    with suppress(FrameError):
        for piece in in_pieces(garbage, cuts):
            assert sealed is False or take(frames, piece) == [], "nothing passes without the key"
            take(frames, b"")
            assert frames.held_bytes <= LIMIT + HEADER_BYTES + 16


@settings(max_examples=150, deadline=None)
@given(st.integers(min_value=0), st.integers(1, 255))
def test_a_changed_byte_in_a_session_is_never_accepted(place: int, change: int) -> None:
    seal = Seal(KEY)
    first, second = data(1, b"first", seal), bytearray(data(2, b"second", seal))
    second[place % len(second)] ^= change
    frames = reader(KEY)
    assert len(take(frames, first)) == 1
    with suppress(FrameError):
        assert take(frames, bytes(second)) == [], "a longer length may wait for more, but nothing comes out"


def test_repeated_left_out_and_exchanged_frames_are_refused() -> None:
    seal = Seal(KEY)
    one, two, three = (data(number, b"body", seal) for number in (1, 2, 3))
    for order in ((one, one), (one, three), (two, one), (one, two, two)):
        frames = reader(KEY)
        with pytest.raises(FrameError, match="MAC"):
            take(frames, b"".join(order))


def test_frames_of_another_session_are_refused() -> None:
    with pytest.raises(FrameError, match="MAC"):
        take(reader(KEY), data(1, b"body", Seal(b"o" * 32)))


@pytest.mark.parametrize("length", [LIMIT + 1, 1 << 20, 0x7FFFFFFF, 0xFFFFFFFF])
def test_a_length_above_the_limit_is_refused_by_the_header_alone(length: int) -> None:
    with pytest.raises(FrameError, match=str(length)):
        take(reader(), struct.pack("<BBHI", FrameType.DATA, FIRST | LAST, 0, length))


@pytest.mark.parametrize(
    ("number", "flags", "kind"), [(0, 0, 0), (10, 0, 0), (255, 0, 0), (6, 4, 0), (7, 1, 0), (1, 0, 5)]
)
def test_unknown_types_and_flags_are_refused(number: int, flags: int, kind: int) -> None:
    with pytest.raises(FrameError):
        take(reader(), struct.pack("<BBHI", number, flags, kind, 0))


def test_many_small_pieces_cost_no_more_than_a_few_large_ones() -> None:
    """Bytes that were fed are moved a bounded number of times, however small the pieces are."""
    frames = FrameReader(1 << 20)
    written = data(1, bytes(1 << 20))
    found = []
    for start in range(0, len(written), 64):
        found += take(frames, written[start : start + 64])
    assert [len(frame.body) for frame in found] == [1 << 20]
