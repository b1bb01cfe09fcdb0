"""Messages cut into frames and put together again."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import TransportLimits
from engine.raft.transport.fragments import MESSAGE_COST_BYTES, Outbox, Reassembly
from engine.raft.transport.frames import FIRST, LAST, Frame, FrameError, FrameReader, FrameType

LIMITS = TransportLimits(fragment_bytes=100, message_bytes_max=2000, queue_bytes=5000, urgent_bytes=500)


def frames_of(outbox: Outbox) -> list[Frame]:
    reader = FrameReader(LIMITS.fragment_bytes + 8)
    found = []
    while (parts := outbox.next_frame(None)) is not None:
        reader.feed(b"".join(parts))
        frame = reader.next()
        assert frame is not None
        found.append(frame)
    return found


@settings(max_examples=80, deadline=None)
@given(st.lists(st.binary(max_size=700), max_size=6))
def test_messages_of_any_size_come_out_as_they_went_in(payloads: list[bytes]) -> None:
    outbox, reassembly = Outbox(LIMITS), Reassembly(LIMITS.message_bytes_max)
    for number, payload in enumerate(payloads):
        assert outbox.push(number, payload, urgent=False)
    messages = [message for frame in frames_of(outbox) if (message := reassembly.add(frame)) is not None]
    assert messages == list(enumerate(payloads))
    assert outbox.backlog_bytes == 0


def test_an_urgent_message_goes_between_two_fragments() -> None:
    outbox, reassembly = Outbox(LIMITS), Reassembly(LIMITS.message_bytes_max)
    outbox.push(1, bytes(500), urgent=False)
    reader = FrameReader(LIMITS.fragment_bytes + 8)
    kinds = []
    for turn in range(7):
        parts = outbox.next_frame(None)
        if parts is not None:
            reader.feed(b"".join(parts))
            frame = reader.next()
            assert frame is not None
            message = reassembly.add(frame)
            kinds += [message[0]] if message else []
        if turn == 1:
            outbox.push(2, b"urgent", urgent=True)
    assert kinds == [2, 1]


def test_a_queue_is_bounded_in_bytes_also_when_messages_are_empty() -> None:
    outbox = Outbox(LIMITS)
    taken = 0
    while outbox.push(1, b"", urgent=False):
        taken += 1
        assert taken <= LIMITS.queue_bytes
    assert taken == -(-LIMITS.queue_bytes // MESSAGE_COST_BYTES)
    assert outbox.push(1, b"", urgent=True)


def test_a_closed_outbox_takes_nothing_and_still_gives_what_it_has() -> None:
    outbox = Outbox(LIMITS)
    outbox.push(1, b"before", urgent=False)
    outbox.close()
    assert not outbox.push(1, b"after", urgent=False)
    assert not outbox.push(1, b"after", urgent=True)
    assert [frame.body for frame in frames_of(outbox)] == [b"before"]


def fragment(transfer: int, content: bytes, flags: int, total: int | None = None, kind: int = 1) -> Frame:
    head = struct.pack("<I", transfer) if total is None else struct.pack("<II", transfer, total)
    return Frame(FrameType.DATA, flags, kind, head + content)


@pytest.mark.parametrize(
    "frames",
    [
        [fragment(1, b"x", FIRST, total=LIMITS.message_bytes_max + 1)],
        [fragment(1, b"x", FIRST, total=0xFFFFFFFF)],
        [fragment(1, b"x", 0)],
        [fragment(1, b"", FIRST, total=10)],
        [fragment(1, b"x", FIRST, total=10), fragment(1, b"", 0)],
        [fragment(1, b"x", FIRST, total=10), fragment(2, b"x", 0)],
        [fragment(1, b"x", FIRST, total=10), fragment(1, b"x", 0, kind=2)],
        [fragment(1, b"x", FIRST, total=10), fragment(2, b"x", FIRST, total=10)],
        [fragment(1, b"x", FIRST, total=10), fragment(1, b"x" * 10, 0)],
        [fragment(1, b"x", FIRST, total=10), fragment(1, b"x", LAST)],
        [Frame(FrameType.DATA, FIRST, 1, b"123")],
        [fragment(1, b"x", FIRST, total=10), Frame(FrameType.DATA, LAST, 1, b"12")],
    ],
)
def test_fragments_that_do_not_fit_are_refused(frames: list[Frame]) -> None:
    reassembly = Reassembly(LIMITS.message_bytes_max)
    for frame in frames[:-1]:
        assert reassembly.add(frame) is None
    with pytest.raises(FrameError):
        reassembly.add(frames[-1])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=120)), max_size=12))
def test_any_row_of_fragments_is_refused_or_stays_below_the_limit(frames: list[tuple[int, bytes]]) -> None:
    reassembly = Reassembly(LIMITS.message_bytes_max)
    for flags, body in frames:
        try:
            message = reassembly.add(Frame(FrameType.DATA, flags, 1, body))
        except FrameError:
            return
        assert message is None or len(message[1]) <= LIMITS.message_bytes_max
