"""Random histories of one journal with power cuts and kills: what was confirmed is there afterwards, always.

The seed of a failing history is in the test's name and replays it exactly.
"""

from __future__ import annotations

import random
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from engine.errors import NoLeader, OutcomeUnknown, QueueFull
from engine.raft.journal import Journal
from engine.raft.log import Entry
from engine.raft.single import SingleMemberLog
from tests.contract.log.harness import SMALL, Recorder
from tests.unit.raft.disk import Crash, FragileFiles, contents, restore
from tests.unit.raft.journals import open_at, read_all
from tests.unit.raft.logs import open_log


class History:
    """A journal beside a plain list of what it should hold."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.rng = random.Random(seed)
        self.directory = directory
        self.lives = 0
        self.term = 1
        self.entries: list[Entry] = []
        self.earlier: list[Entry] = []
        """What the log held before the cut that was going on when it died."""
        self.confirmed = 0
        self.applied = 0
        self.votes: set[tuple[int, str | None]] = {(0, None)}
        """The stored vote, and the one that was being stored when the machine died."""
        self.files = FragileFiles()
        self.journal = self.open(directory / "life0")

    def open(self, directory: Path) -> Journal:
        applied_term = self.entries[self.applied - 1].term if self.applied else 0
        return open_at(directory, self.applied, applied_term, files=self.files)

    def live(self) -> None:
        """Random steps until the machine dies within one of them."""
        self.files.die_at = self.files.operations + self.rng.randrange(1, 120)
        try:
            while True:
                step = self.rng.choices(
                    [self.append, self.sync, self.take_back, self.compact, self.save_vote, self.reopen],
                    [8, 8, 1, 1, 1, 1],
                )[0]
                step()
        except Crash:
            self.journal.close()

    def append(self) -> None:
        for _ in range(self.rng.randrange(1, 8)):
            index = len(self.entries) + 1
            entry = Entry(index, self.term, self.rng.randbytes(self.rng.choice([1, 20, 60, 700, 1500])))
            self.entries.append(entry)
            self.journal.append(entry)

    def sync(self) -> None:
        if self.journal.last_index > self.journal.synced_index:
            self.confirmed = self.journal.sync(self.rng.choice([1, 500, 5000]))
            self.applied = self.rng.randint(self.applied, self.confirmed)

    def take_back(self) -> None:
        index = self.rng.randint(max(self.applied + 1, self.journal.first_index), len(self.entries) + 1)
        self.earlier, self.entries = self.entries, self.entries[: index - 1]
        self.confirmed = min(self.confirmed, index - 1)
        self.term += 1
        self.journal.truncate_from(index)
        self.earlier = []

    def compact(self) -> None:
        self.journal.compact(self.applied)

    def save_vote(self) -> None:
        self.term += 1
        vote: tuple[int, str | None] = (self.term, f"node-{self.term}")
        self.votes.add(vote)
        self.journal.save_meta(term=vote[0], vote=vote[1])
        self.votes = {vote}

    def reopen(self) -> None:
        """A clean stop forgets what was not synced only if the disk does; a kill keeps what was written."""
        self.journal.close()
        self.journal = self.open(self.directory / f"life{self.lives}")
        self.settle()

    def die(self) -> None:
        """What is left after the machine died, in the next directory."""
        old = self.directory / f"life{self.lives}"
        self.lives += 1
        new = self.directory / f"life{self.lives}"
        if self.rng.random() < 0.6:
            self.files.power_cut(new, self.rng)
        else:
            restore(new, contents(old))
        self.files = FragileFiles()
        self.files.adopt_all(new)
        self.journal = self.open(new)
        self.settle()

    def settle(self) -> None:
        """Check the journal against the list, and go on with what it holds."""
        found = read_all(self.journal)
        last = self.journal.last_index
        assert self.journal.first_index <= self.applied + 1, "everything behind the state's index is there"
        assert last >= self.confirmed, "everything that was confirmed is there"
        histories = [history[:last] for history in (self.entries, self.earlier) if len(history) >= last]
        matching = [history for history in histories if history[self.journal.first_index - 1 :] == found]
        assert matching, "the log holds what was written, in order, and nothing else"
        assert (self.journal.meta.term, self.journal.meta.vote) in self.votes, "the vote is one that was cast"
        self.votes = {(self.journal.meta.term, self.journal.meta.vote)}
        self.entries, self.earlier = matching[0], []
        self.confirmed = last
        assert self.journal.synced_index == last


@pytest.mark.parametrize("seed", range(60))
def test_what_was_confirmed_survives_any_number_of_deaths(tmp_path: Path, seed: int) -> None:
    history = History(seed, tmp_path)
    for _ in range(6):
        history.live()
        history.die()
    history.journal.close()


@pytest.mark.parametrize("seed", range(15))
def test_what_a_caller_was_told_is_applied_survives_power_cuts(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    told: dict[int, bytes] = {}
    files = FragileFiles()
    for life in range(4):
        directory = tmp_path / f"life{life}"
        state = Recorder()
        log = open_log(directory, state, files=files, limits=replace(SMALL, queue_bytes=1000))
        files.die_at = files.operations + rng.randrange(1, 150)
        submit_until_death(log, state, told, rng)
        files.power_cut(tmp_path / f"life{life + 1}", rng)
        files = FragileFiles()
        files.adopt_all(tmp_path / f"life{life + 1}")
    state = Recorder()
    log = open_log(tmp_path / "life4", state, files=files, limits=SMALL)
    log.start()
    log.barrier().result(10)
    log.close(10)
    found = {index: payload for index, _term, payload in state.applied}
    assert {index: found.get(index) for index in told} == told


def submit_until_death(log: SingleMemberLog, state: Recorder, told: dict[int, bytes], rng: random.Random) -> None:
    """Note under its index each command whose future resolved; how far the state came says the index."""
    futures: list[tuple[bytes, Future[bytes]]] = []
    try:
        log.start()
        for _ in range(5000):
            command = rng.randbytes(rng.randrange(1, 900))
            future = log.submit(command)
            futures.append((command, future))
            if rng.random() < 0.3:
                future.result(20)
    except (Crash, NoLeader, OutcomeUnknown):
        pass
    except QueueFull:
        wait([future for _command, future in futures], 20)
    with suppress(Crash):
        log.close(20)
    indexes = {payload: index for index, _term, payload in state.applied}
    for command, future in futures:
        if future.exception() is None:
            told[indexes[command]] = command
