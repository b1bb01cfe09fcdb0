"""Reading a log's directory at start: what counts, what a power cut left behind, and what is damage.

Nothing is written here. The rule, with A the index up to which the state's file holds everything:

* at or below A a bad record costs nothing: the log then begins behind it;
* above A, what was confirmed (up to the mark, and all of every segment but the last) must be readable: else
  `DamagedError`, and the files stay as they are;
* above A and not confirmed, the first bad record of the last segment is a torn tail: it is cut there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from engine.errors import DamagedError
from engine.raft.files import Files
from engine.raft.mark import Mark
from engine.raft.meta import MetaStore
from engine.raft.segment import SUFFIX, Flaw, Segment, check_records, find_record, read_segment
from engine.raft.terms import Terms

ADVICE = (
    "The files were left as they are. If other members hold the data, empty this node's storage and let it join again; "
    "otherwise restore state and log from one back-up."
)


@dataclass(slots=True, kw_only=True)
class Survey:
    """What was found, and what opening has to do about it."""

    store: MetaStore
    mark: Mark
    segments: list[Segment] = field(default_factory=list)
    """The segments that count, oldest first; the last one goes on being written."""
    terms: Terms
    dropped: list[Path] = field(default_factory=list)
    """Segments at or below A that are of no use any more, oldest first."""
    torn: Flaw | None = None
    """The last segment is cut here."""
    torn_bytes: int = 0
    restart: bool = False
    """Nothing above A is in the log: it begins anew behind A."""
    prefix_flaw: Flaw | None = None
    """The bad record at or below A because of which the log begins later."""


def survey(files: Files, directory: Path, applied_index: int, applied_term: int) -> Survey | None:
    """Read everything; None when there is no log yet. Raises DamagedError, or ConfigError for a newer format."""
    store = MetaStore.read(files, directory)
    found = [_read(files, directory, name) for name in files.names(directory) if name.endswith(SUFFIX)]
    if store is None:
        _check_unmade(directory, found, applied_index)
        return None
    if not found:
        raise DamagedError(f"{directory} has lost all segments of the log. {ADVICE}")
    journal_id = bytes.fromhex(store.meta.journal_id)
    for segment in found:
        if isinstance(segment, Segment) and segment.journal_id != journal_id:
            raise DamagedError(f"{segment.path} belongs to another log than {directory / 'meta.a'}. {ADVICE}")
    walk = _Walk(files, found, Mark(files, directory, journal_id), applied_index, applied_term)
    result = walk.run(store)
    _check_ends(directory, result, applied_index, applied_term)
    return result


def _read(files: Files, directory: Path, name: str) -> Segment | Flaw:
    digits = name.removesuffix(SUFFIX)
    if not digits.isdecimal() or len(digits) != 20:
        raise DamagedError(f"{directory / name} is no file of the log. Move it elsewhere, then start again.")
    return read_segment(files, directory / name, int(digits))


def _check_unmade(directory: Path, found: list[Segment | Flaw], applied_index: int) -> None:
    """Without meta files there is no log yet: at most the empty segment of a first start that was cut short."""
    for segment in found:
        if isinstance(segment, Flaw) or segment.path.stat().st_size > segment.end:
            raise DamagedError(
                f"{directory} holds segments of a log, but meta.a and meta.b are missing, so this node's vote is "
                f"unknown. {ADVICE}"
            )
    if applied_index > 0:
        raise DamagedError(
            f"There is no log in {directory}, but the state has applied entries up to {applied_index}: accepted "
            f"messages may be missing. {ADVICE}"
        )


def _check_ends(directory: Path, result: Survey, applied_index: int, applied_term: int) -> None:
    """The log must reach from A + 1 on, hold at A what the state applied, and hold all that was confirmed."""
    terms, mark = result.terms, result.mark
    if terms.base_index > applied_index:
        raise DamagedError(
            f"The log in {directory} begins with entry {terms.base_index + 1}, but the state has applied only up to "
            f"{applied_index}: the entries between are missing. {ADVICE}"
        )
    if not result.restart and max(mark.index, applied_index) > terms.last_index:
        raise DamagedError(
            f"The log in {directory} ends with entry {terms.last_index}, but it had been synced up to {mark.index} and "
            f"the state has applied up to {applied_index}: a part of it is missing. {ADVICE}"
        )
    term = terms.at(applied_index)
    if term != applied_term:
        raise DamagedError(
            f"Entry {applied_index} in the log in {directory} has term {term}, but the state has applied it with term "
            f"{applied_term}: state and log are not of one node and time. {ADVICE}"
        )


class _Walk:
    """One pass over the segments, oldest first, keeping the run that reaches to the end."""

    def __init__(
        self, files: Files, found: list[Segment | Flaw], mark: Mark, applied_index: int, applied_term: int
    ) -> None:
        self._files = files
        self._found = found
        self._mark = mark
        self._applied_index = applied_index
        self._applied_term = applied_term
        self._run: list[Segment] = []
        self._terms: Terms | None = None
        self._dropped: list[Path] = []
        self._prefix_flaw: Flaw | None = None

    def run(self, store: MetaStore) -> Survey:
        """Check every record once."""
        flaw: Flaw | None = None
        for position, segment in enumerate(self._found):
            flaw = self._add(segment)
            if position + 1 < len(self._found):
                following = _first_index(self._found[position + 1])
                flaw = flaw or self._seam(segment, following)
                if flaw is not None:
                    self._leave_behind(position, flaw, following)
        last = self._found[-1]
        if flaw is not None and flaw.index <= self._applied_index:
            self._prefix_flaw = flaw
            flaw = self._go_on_behind_applied(last)
            if flaw is not None and flaw.index == self._applied_index + 1 and not self._run:
                return self._restart(store, flaw)
        if flaw is not None and (flaw.index <= self._mark.index or flaw.offset == 0):
            _damaged(flaw)  # At offset 0 it is the header, which is synced before the file gets its name.
        assert self._terms is not None, "the run reaches to the last segment"
        torn_bytes = 0 if flaw is None else flaw.path.stat().st_size - flaw.offset
        return Survey(
            store=store,
            mark=self._mark,
            segments=self._run,
            terms=self._terms,
            dropped=self._dropped,
            torn=flaw,
            torn_bytes=torn_bytes,
            prefix_flaw=self._prefix_flaw,
        )

    def _add(self, segment: Segment | Flaw) -> Flaw | None:
        """Append a segment to the run and check its records."""
        if isinstance(segment, Flaw):
            return segment
        if self._terms is None:
            self._terms = Terms(segment.first_index - 1, segment.previous_term)
        elif segment.previous_term != self._terms.last_term:
            what = f"its header names term {segment.previous_term} before it"
            return Flaw(path=segment.path, offset=0, index=segment.first_index, what=what)
        self._run.append(segment)
        return self._check(segment, self._terms)

    def _check(self, segment: Segment, terms: Terms) -> Flaw | None:
        changes: list[tuple[int, int]] = []
        flaw = check_records(self._files, segment, terms.last_term, changes)
        for index, term in changes:
            terms.extend_to(index - 1)
            terms.append(index, term)
        terms.extend_to(segment.last_index)
        return flaw

    def _seam(self, segment: Segment | Flaw, following: int) -> Flaw | None:
        """A segment must end right where the next one begins."""
        assert isinstance(segment, Segment), "a segment without a header is a flaw already"
        if segment.last_index + 1 == following:
            return None
        index = min(segment.last_index + 1, following)
        what = f"the segment ends with entry {segment.last_index}"
        return Flaw(path=segment.path, offset=segment.end, index=index, what=what)

    def _leave_behind(self, position: int, flaw: Flaw, following: int) -> None:
        """A flaw before the last segment: everything up to it is dropped when A covers it, or it is damage."""
        if following <= self._applied_index + 1:
            self._dropped = [segment.path for segment in self._found[: position + 1]]
            self._run, self._terms = [], None
            self._prefix_flaw = flaw
            return
        segment = self._found[position]
        if flaw.index > self._applied_index:
            _damaged(flaw)
        self._prefix_flaw = flaw
        worse = self._go_on_behind_applied(segment)
        if worse is None:
            worse = self._seam(segment, following)
        if worse is not None:
            _damaged(worse)

    def _go_on_behind_applied(self, segment: Segment | Flaw) -> Flaw | None:
        """Find entry A + 1 in the segment and begin the run with it; the flaw is where that, too, stops."""
        wanted = self._applied_index + 1
        earlier = [part for part in self._run if part is not segment]
        self._dropped += [part.path for part in earlier]
        self._run, self._terms = [], None
        if isinstance(segment, Flaw):
            return Flaw(path=segment.path, offset=0, index=wanted, what=segment.what)
        offset = find_record(self._files, segment, wanted)
        if offset is None:
            return Flaw(path=segment.path, offset=segment.end, index=wanted, what="it cannot be found")
        segment.end, segment.last_index, segment.points = offset, self._applied_index, []
        self._terms = Terms(self._applied_index, self._applied_term)
        self._run = [segment]
        return self._check(segment, self._terms)

    def _restart(self, store: MetaStore, flaw: Flaw) -> Survey:
        """Nothing above A can be found in the last segment: fine unless something there had been confirmed."""
        if self._mark.index > self._applied_index:
            _damaged(flaw)
        return Survey(
            store=store,
            mark=self._mark,
            terms=Terms(self._applied_index, self._applied_term),
            dropped=[segment.path for segment in self._found],
            restart=True,
            prefix_flaw=self._prefix_flaw,
        )


def _first_index(segment: Segment | Flaw) -> int:
    return segment.index if isinstance(segment, Flaw) else segment.first_index


def _damaged(flaw: Flaw) -> NoReturn:
    raise DamagedError(
        f"{flaw.path} is damaged at byte {flaw.offset}, where entry {flaw.index} should be: {flaw.what}. That entry "
        f"had been confirmed as stored and is not in the state yet. {ADVICE}"
    )
