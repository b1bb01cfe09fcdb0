"""Range reads: complete while boundaries pass, in chunks, over all layers."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from engine import commands as c
from engine.model import Closing
from engine.state.rows import SLOT_BITS, slot_of
from engine.state.window import Window
from tests.unit.state.builders import T0_MS, World, accept, confirm, create

SLOT = slot_of(T0_MS)
SLOT_MS = 1 << SLOT_BITS


def collect(world: World, slot: int, uid: int = 1) -> set[tuple[int, int]]:
    return {
        (due_ms, seq)
        for dues, seqs in world.state.window(uid, slot)
        for due_ms, seq in zip(dues.tolist(), seqs.tolist(), strict=True)
    }


def test_a_window_holds_what_is_pending_in_its_slot_from_all_layers(world: World) -> None:
    world.do(create("b", subscription="b"))
    inside, outside = SLOT * SLOT_MS, (SLOT + 1) * SLOT_MS
    for generation in range(3):
        ids = [f"{generation}-{i}" for i in range(7)]
        world.do(accept(*ids, dues_ms=[inside + i for i in range(5)] + [outside, inside - 1]))
        world.do(accept(*ids, uid=2, due_ms=inside))
        if generation == 0:
            world.state.boundary()
        elif generation == 1:
            world.state.freeze()
    mine = {(inside + i, generation * 14 + 1 + i) for generation in range(3) for i in range(5)}
    assert collect(world, SLOT) == mine
    assert collect(world, SLOT + 1) == {(outside, generation * 14 + 6) for generation in range(3)}
    assert len(collect(world, SLOT, uid=2)) == 21
    assert collect(world, SLOT + 2) == set()


def test_windows_come_as_integer_columns_in_chunks(world: World) -> None:
    world.do(accept(*[f"m{i}" for i in range(8)], due_ms=SLOT * SLOT_MS))
    for _ in range(2):
        chunks = list(world.state.window(1, SLOT))
        assert [len(dues) for dues, _ in chunks] == [3, 3, 2]
        assert all(dues.dtype == seqs.dtype == np.int64 for dues, seqs in chunks)
        world.state.boundary()


def test_the_next_slot_is_the_lowest_one_from_any_layer(world: World) -> None:
    assert world.state.next_slot(1, -(1 << 40)) is None
    for shift in (5, 3, 9):
        world.do(accept(f"m{shift}", due_ms=(SLOT + shift) * SLOT_MS))
        if shift == 5:
            world.state.boundary()
        elif shift == 3:
            world.state.freeze()
    assert [world.state.next_slot(1, SLOT + shift) for shift in (0, 3, 4, 6, 10)] == [SLOT + 3, SLOT + 3, SLOT + 5,
                                                                                     SLOT + 9, None]  # fmt: skip
    world.state.boundary()
    world.do(confirm(1))
    world.state.boundary()
    assert world.state.next_slot(1, SLOT + 4) == SLOT + 9


def test_seqs_page_through_pending_and_quarantined_messages_of_one_channel(world: World) -> None:
    world.do(create("b", subscription="b"))
    fault = c.Fault("X", "y")
    for generation in range(3):
        ids = [f"{generation}-{i}" for i in range(9)]
        world.do(accept(*ids, dues_ms=[T0_MS - i * SLOT_MS for i in range(9)], faults={4: fault, 7: fault}))
        world.do(accept(*ids, uid=2))
        if generation == 0:
            world.state.boundary()
        elif generation == 1:
            world.state.freeze()
    world.do(confirm(1, 2, 3, 4, 20, 37), c.Quarantine(stamp_ms=T0_MS, channel_uid=1, seqs=[5, 21], fault=fault))
    expected = [seq for base in (0, 18, 36) for seq in range(base + 1, base + 10) if seq not in (1, 2, 3, 4, 20, 37)]
    assert world.state.seqs(1, 0, 100) == expected
    paged, after = [], 0
    while page := world.state.seqs(1, after, 2):
        paged += page
        after = page[-1]
    assert paged == expected


def test_deleting_in_slices_from_the_start_ends(world: World) -> None:
    """Slices that were read ahead must not come back once their rows are gone, boundaries or not."""
    world.do(accept(*[f"m{i}" for i in range(40)]))
    world.state.boundary()
    world.do(c.CloseChannel(stamp_ms=T0_MS, channel_uid=1, mode=Closing.DISCARD))
    slices = 0
    while seqs := world.state.seqs(1, 0, 2):
        assert world.do(c.Discard(stamp_ms=T0_MS, channel_uid=1, seqs=seqs)) == c.Removed(removed=len(seqs))
        slices += 1
        if slices % 2 == 0:
            world.state.boundary()
    assert slices == 20
    assert world.do(c.DropChannel(stamp_ms=T0_MS, channel_uid=1)) == c.Done()


class Interrupted:
    """The state's lock for one reader, with a boundary that ends just before it is taken or just after it is given."""

    def __init__(self, world: World, *, before: bool) -> None:
        self.world = world
        self.before = before

    def __enter__(self) -> None:
        if self.before:
            self.world.state.write_frozen()
        self.world.state._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.world.state._lock.release()
        if not self.before:
            self.world.state.write_frozen()


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("question", ["window", "next slot", "seqs"])
def test_a_boundary_that_ends_in_the_middle_of_a_read_hides_nothing(world: World, question: str, before: bool) -> None:
    fault = c.Fault("X", "y")
    world.do(accept("m1", "m2", due_ms=SLOT * SLOT_MS))
    world.state.boundary()
    world.do(accept("m3", "m4", due_ms=SLOT * SLOT_MS, faults={1: fault}), accept("m5", due_ms=(SLOT - 2) * SLOT_MS))
    world.state.freeze()
    state = world.state
    window = Window(state._store, state._layers, Interrupted(world, before=before), lambda: state.stored_index)
    if question == "window":
        assert {seq for _, seqs in window.chunks(1, SLOT) for seq in seqs.tolist()} == {1, 2, 3}
    elif question == "next slot":
        assert window.next_slot(1, 0) == SLOT - 2
    else:
        assert window.seqs(1, 0, 10) == [1, 2, 3, 4, 5]
    assert state.stored_index == state.applied_index


def test_no_pending_message_is_missed_while_boundaries_pass(world: World) -> None:
    """What was pending before the call began and still is when it ended was in the window or readable by seq."""
    stop = threading.Event()
    failures: list[BaseException] = []
    pending: set[int] = set()
    guard = threading.Lock()

    def work() -> None:
        try:
            number, first = 0, 1
            while not stop.is_set():
                number += 1
                ids = [f"{number}-{i}" for i in range(6)]
                answer = world.do(accept(*ids, due_ms=SLOT * SLOT_MS + number % 50))
                with guard:
                    pending.update(range(answer.first_seq, answer.first_seq + 6))
                    leaving = [seq for seq in (first, first + 3) if seq in pending]
                    pending.difference_update(leaving)
                world.do(confirm(*leaving))
                first += 6
        except BaseException as error:
            failures.append(error)

    def flush() -> None:
        try:
            while not stop.is_set():
                world.state.freeze()
                world.state.write_frozen()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work), threading.Thread(target=flush)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(25):
            with guard:
                before = set(pending)
            window = {seq for _, seqs in world.state.window(1, SLOT) for seq in seqs.tolist()}
            listed = set(world.state.seqs(1, 0, 1 << 30))
            rows = world.state.get(sorted(before))
            with guard:
                throughout = before & pending
            assert throughout <= window
            assert throughout <= listed
            assert {seq for seq, row in zip(sorted(before), rows, strict=True) if row is not None} >= throughout
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures
