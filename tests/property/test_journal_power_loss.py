"""Random histories of one journal with power cuts and kills: what was confirmed is there afterwards, always.

The seed of a failing history is in the test's name and replays it exactly.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from engine.raft.journal import Journal
from engine.raft.log import Entry
from tests.unit.raft.disk import Crash, FragileFiles, contents, restore
from tests.unit.raft.journals import open_at, read_all


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
        self.vote: tuple[int, str | None] = (0, None)
        self.votes = {self.vote}
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
        vote = (self.term, f"node-{self.term}")
        self.votes.add(vote)
        self.journal.save_meta(term=vote[0], vote=vote[1])
        self.vote = vote
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
        self.vote = (self.journal.meta.term, self.journal.meta.vote)
        self.votes = {self.vote}
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
