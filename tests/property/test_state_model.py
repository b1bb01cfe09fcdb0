"""The state against a model of a few dicts, through boundaries and restarts."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine import commands as c
from engine.model import Closing
from engine.state import rows
from tests.unit.state.builders import T0_MS, World, accept, confirm, create

FAULT = c.Fault("BAD", "no time")
UIDS = st.sampled_from([1, 2])
SEQS = st.lists(st.integers(0, 30), max_size=5, unique=True)
DUES_MS = st.sampled_from([T0_MS, T0_MS + 1, T0_MS + (1 << 20), -1])


class Model(RuleBasedStateMachine):
    """Each rule does the same to the state and to the dicts, and compares the answers."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.world = World(Path(self.directory.name))
        self.pending: dict[int, tuple[int, int, bytes]] = {}
        self.aside: dict[int, int] = {}
        self.seen: set[tuple[int, str]] = set()
        self.closing: set[int] = set()
        self.next_seq = 1

    def teardown(self) -> None:
        self.world.state.close()
        self.directory.cleanup()

    @initialize()
    def begin(self) -> None:
        self.world.do(create("a", subscription="a"), create("b", subscription="b"))

    @rule(uid=UIDS, names=st.lists(st.integers(0, 25).map(str), max_size=6), due_ms=DUES_MS, faulty=st.booleans())
    def accept(self, uid: int, names: list[str], due_ms: int, faulty: bool) -> None:
        faults = {0: FAULT} if faulty else {}
        payloads = [f"{name}:{self.next_seq}".encode() for name in names]
        answer = self.world.do(accept(*names, uid=uid, due_ms=due_ms, payloads=payloads, faults=faults))
        if uid in self.closing:
            assert answer.reason == c.REASON_CHANNEL_CLOSING
            return
        fresh: dict[str, int] = {}
        for i, name in enumerate(names):
            if (uid, name) not in self.seen:
                fresh.setdefault(name, i)
        waiting = [i for i in fresh.values() if i not in faults]
        aside = [i for i in fresh.values() if i in faults]
        assert answer == c.Accepted(
            first_seq=self.next_seq,
            pending=len(waiting),
            duplicates=len(names) - len(fresh),
            quarantined=len(aside),
        )
        for i in waiting:
            self.pending[self._seq()] = (uid, due_ms, payloads[i])
        for _ in aside:
            self.aside[self._seq()] = uid
        self.seen.update((uid, name) for name in fresh)

    def _seq(self) -> int:
        self.next_seq += 1
        return self.next_seq - 1

    @rule(uid=UIDS, seqs=SEQS, stale=st.booleans())
    def confirm(self, uid: int, seqs: list[int], stale: bool) -> None:
        mine = [] if stale else [seq for seq in seqs if seq in self.pending and self.pending[seq][0] == uid]
        answer = self.world.do(confirm(*seqs, uid=uid, revisions=dict.fromkeys(seqs, 2) if stale else {}))
        assert answer == c.Removed(removed=len(mine), stale=len(seqs) - len(mine))
        for seq in mine:
            del self.pending[seq]

    @rule(uid=UIDS, seqs=SEQS)
    def quarantine(self, uid: int, seqs: list[int]) -> None:
        mine = [seq for seq in seqs if seq in self.pending and self.pending[seq][0] == uid]
        answer = self.world.do(c.Quarantine(stamp_ms=T0_MS, channel_uid=uid, seqs=seqs, fault=FAULT))
        assert answer == c.Removed(removed=len(mine), stale=len(seqs) - len(mine))
        for seq in mine:
            del self.pending[seq]
            self.aside[seq] = uid

    @precondition(lambda self: not self.closing)
    @rule()
    def close(self) -> None:
        answer = self.world.do(c.CloseChannel(stamp_ms=T0_MS, channel_uid=2, mode=None))
        if self._of(2):
            assert answer.reason == c.REASON_CHANNEL_NOT_EMPTY
            answer = self.world.do(c.CloseChannel(stamp_ms=T0_MS, channel_uid=2, mode=Closing.DISCARD))
        assert answer.channel.closing is Closing.DISCARD
        self.closing.add(2)

    @precondition(lambda self: self.closing)
    @rule(seqs=SEQS)
    def discard(self, seqs: list[int]) -> None:
        mine = [seq for seq in seqs if seq in self._of(2)]
        answer = self.world.do(c.Discard(stamp_ms=T0_MS, channel_uid=2, seqs=seqs))
        assert answer == c.Removed(removed=len(mine), stale=len(seqs) - len(mine))
        for seq in mine:
            self.pending.pop(seq, None)
            self.aside.pop(seq, None)

    @rule()
    def boundary(self) -> None:
        self.world.state.boundary()

    @rule()
    def freeze(self) -> None:
        self.world.state.freeze()

    @rule()
    def restart(self) -> None:
        self.world.reopen()

    def _of(self, uid: int) -> list[int]:
        waiting = [seq for seq, row in self.pending.items() if row[0] == uid]
        return sorted([*waiting, *(seq for seq, owner in self.aside.items() if owner == uid)])

    @invariant()
    def what_is_there_is_what_the_model_has(self) -> None:
        state = self.world.state
        found: dict[int, Any] = {
            seq: (row[rows.CHANNEL_UID], row[rows.DUE_MS], row[rows.PAYLOAD])
            for seq, row in enumerate(state.get(range(self.next_seq + 2)))
            if row is not None
        }
        assert found == self.pending
        for channel in state.channels():
            uid = channel.uid
            mine = {seq: row for seq, row in self.pending.items() if row[0] == uid}
            assert state.seqs(uid, 0, 1000) == self._of(uid)
            stats = state.stats(uid)
            assert (stats.pending, stats.pending_bytes) == (len(mine), sum(len(row[2]) for row in mine.values()))
            assert stats.quarantined == list(self.aside.values()).count(uid)
            slots = {row[1] >> rows.SLOT_BITS for row in mine.values()}
            for slot in slots:
                window = {seq for _, seqs in state.window(uid, slot) for seq in seqs.tolist()}
                assert window >= {seq for seq, row in mine.items() if row[1] >> rows.SLOT_BITS == slot}
                assert state.next_slot(uid, slot) == slot


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=40, stateful_step_count=30, deadline=None, print_blob=True)
