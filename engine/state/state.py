"""The replica's state: what apply changes, what everyone reads, and how it gets to the file.

One lock guards the memory tables. Apply holds it for one entry at a time, readers for their look-ups in memory; the
file is read and written without it. Observers are called after it is released, so that they may take their own.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from engine.commands import Answer, decode
from engine.config import StateLimits
from engine.model import Channel, ChannelStats, Cluster, Node
from engine.state import reads
from engine.state.boundary import Boundary, drain
from engine.state.checksum import Integers
from engine.state.generation import Generation, Mark
from engine.state.layers import Layers
from engine.state.loading import load, load_mark
from engine.state.machine import Machine, Notice
from engine.state.rows import Row
from engine.state.seen import KeyHash, Seen, key_hashes
from engine.state.store import Store, translate
from engine.state.sums import Sums
from engine.state.upkeep import tidy
from engine.state.window import Window

_DRAIN_ROWS: Final = 2000


class Observer(Protocol):
    """Told by the apply thread what changed, once it has: it must be quick and not raise."""

    def on_pending(self, channel_uid: int, seqs: Sequence[int], dues_ms: Sequence[int]) -> None:
        """These messages were accepted."""
        ...

    def on_channel(self, channel_uid: int, channel: Channel | None) -> None:
        """A channel was created, changed or (None) dropped."""
        ...


class State:
    """One replica's state over its state.db."""

    def __init__(self, store: Store, limits: StateLimits, synced_index: Callable[[], int], key_hash: KeyHash) -> None:
        self.observer: Observer | None = None
        self.on_full: Callable[[], None] | None = None
        """Called once when the active table has grown to a boundary's worth."""
        self._store = store
        self._limits = limits
        self._synced_index = synced_index
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        mark, total = load_mark(store)
        self._layers = Layers(store, mark.next_seq)
        self._seen = Seen(store, key_hash)
        self._sums = Sums()
        self._machine = Machine(limits, self._layers, self._seen, mark)
        load(store, self._machine, self._seen, self._sums, total)
        self._window = Window(store, self._layers, self._lock, lambda: self.stored_index)
        self.applied_index, self.applied_term = mark.index, mark.term
        self.stored_index, self.stored_term = mark.index, mark.term
        self._freeze_wanted = False

    @classmethod
    def open(
        cls,
        path: Path,
        limits: StateLimits,
        *,
        synced_index: Callable[[], int] = lambda: 1 << 62,
        key_hash: KeyHash = key_hashes,
    ) -> State:
        """Open state.db, or create it where there is none.

        `synced_index` is the highest log index that the own journal has synced: no boundary goes beyond it. Raises
        DamagedError for a file that is damaged, torn or not ours, ConfigError for one of a newer format (which is left
        as it is), StorageError where the disk refuses.
        """
        store = Store(path, limits)
        try:
            return cls(store, limits, synced_index, key_hash)
        except sqlite3.Error as error:
            store.close()
            raise translate(path, error) from error
        except BaseException:
            store.close()
            raise

    # ---- apply -------------------------------------------------------------------------------------------------------

    def apply(self, first_index: int, term: int, entries: Sequence[bytes]) -> list[Answer]:
        """Carry out committed entries, the first of which has this index; one answer each.

        Total over commands: what is not legal is answered `Rejected`. Raises UnknownCommand for an entry that this
        version cannot read, DamagedError or StorageError if the own file fails; the node must then stop.
        """
        assert first_index == self.applied_index + 1, (first_index, self.applied_index)
        answers: list[Answer] = []
        for index, entry in enumerate(entries, first_index):
            command = decode(entry)
            with self._lock:
                answer, notice = self._machine.apply(index, command)
                self._advance(index, term)
            answers.append(answer)
            self._notify(notice)
        return answers

    def advance(self, index: int, term: int) -> None:
        """An entry without a command was committed."""
        assert index > self.applied_index, (index, self.applied_index)
        with self._lock:
            self._advance(index, term)

    def _advance(self, index: int, term: int) -> None:
        self.applied_index, self.applied_term = index, term
        if self._freeze_wanted:
            self._freeze()

    def _notify(self, notice: Notice) -> None:
        if self.observer is not None:
            if notice.pending is not None:
                self.observer.on_pending(*notice.pending)
            if notice.channel_uid is not None:
                self.observer.on_channel(notice.channel_uid, self.channel_by_uid(notice.channel_uid))
        if self.on_full is not None and self._layers.active.size_bytes >= self._limits.boundary_bytes:
            self.on_full()

    # ---- reads -------------------------------------------------------------------------------------------------------

    @property
    def last_stamp_ms(self) -> int:
        """The highest stamp applied."""
        return self._machine.last_stamp_ms

    def cluster(self) -> Cluster | None:
        """Who we are, once founded."""
        return self._machine.cluster

    def nodes(self) -> list[Node]:
        """The members' addresses, by name."""
        with self._lock:
            return [node for _, node in sorted(self._machine.nodes.items())]

    def channels(self) -> list[Channel]:
        """All channels, oldest first."""
        with self._lock:
            return [channel for _, channel in sorted(self._machine.channels.by_uid.items())]

    def channel(self, id: str) -> Channel | None:
        """The channel of this id."""
        with self._lock:
            return self._machine.channels.get(id)

    def channel_by_uid(self, uid: int) -> Channel | None:
        """The channel of this uid."""
        return self._machine.channels.by_uid.get(uid)

    def was_ever(self, id: str) -> bool:
        """Whether a channel of this id exists or existed."""
        return id in self._machine.channels.former_ids

    def stats(self, uid: int) -> ChannelStats:
        """Counters of a channel; zeros for one that is not here."""
        with self._lock:
            counters = self._machine.messages.counters.get(uid)
            return ChannelStats() if counters is None else counters.stats()

    def get(self, seqs: Sequence[int], bytes_max: int | None = None) -> list[Row | None]:
        """Pending rows by position, None for what is not pending; raises DamagedError for a damaged row.

        With `bytes_max` it may be the rows of the first seqs only: at least one, then as many as the payloads that have
        to be read from the file allow.
        """
        with self._lock:
            rows, stored = self._layers.in_memory(seqs)
        if not stored:
            return rows
        with self._store.reader() as connection:
            fitting = stored if bytes_max is None else reads.fitting(self._store, connection, stored, bytes_max)
            found = reads.messages(self._store, connection, fitting)
        if len(fitting) < len(stored):
            end = seqs.index(stored[len(fitting)])
            seqs, rows = seqs[:end], rows[:end]
        return [found.get(seq) if row is None else row for seq, row in zip(seqs, rows, strict=True)]

    def window(self, uid: int, slot: int) -> Iterator[tuple[Integers, Integers]]:
        """Chunks (dues, seqs) of all that is pending in this slot of the due index; may hold what has just gone.

        Nothing that is pending from the first `next()` to the end is missing, whatever boundaries come between.
        """
        return self._window.chunks(uid, slot)

    def next_slot(self, uid: int, from_slot: int) -> int | None:
        """The lowest slot from `from_slot` on with something pending, or with what went since the last boundary."""
        return self._window.next_slot(uid, from_slot)

    def next_due(self, uid: int) -> int | None:
        """The earliest due time of a channel, for people: it may name a message that went since the last boundary."""
        return self._window.next_due(uid)

    def seqs(self, uid: int, after_seq: int, limit: int) -> list[int]:
        """Pending and quarantined seqs of a channel behind `after_seq`, ascending, for deleting in slices."""
        return self._window.seqs(uid, after_seq, limit)

    def digest(self) -> dict[int, int]:
        """A checksum per channel uid, equal on all nodes at equal index: its definition, counters and rows."""
        with self._lock:
            channels = self._machine.channels.by_uid
            return {uid: counters.digest(channels[uid]) for uid, counters in self._machine.messages.counters.items()}

    # ---- boundaries --------------------------------------------------------------------------------------------------

    def freeze(self) -> bool:
        """Begin a boundary at the applied index; True if there is one to write.

        Not while one is being written, with nothing applied since the last, or beyond what the journal has synced: then
        apply freezes as soon as it passes an index that is synced, and a later call answers True.
        """
        with self._lock:
            if self._layers.frozen is None and self.applied_index > self.stored_index:
                self._freeze_wanted = True
                self._freeze()
            return self._layers.frozen is not None

    def _freeze(self) -> None:
        if self._layers.frozen is not None or self.applied_index > self._synced_index():
            return
        self._freeze_wanted = False
        machine, active = self._machine, self._layers.active
        active.mark = Mark(
            index=self.applied_index,
            term=self.applied_term,
            next_seq=machine.messages.next_seq,
            next_uid=machine.channels.next_uid,
            last_stamp_ms=machine.last_stamp_ms,
            cluster_id=machine.cluster.cluster_id if machine.cluster else "",
        )
        active.counters = {uid: machine.messages.counters[uid].row() for uid in active.touched}
        self._layers.frozen = active
        self._layers.active = Generation(first_seq=machine.messages.next_seq)

    def write_frozen(self) -> int:
        """Write what is frozen in one synced transaction; returns the stored index.

        Raises StorageError, with the frozen table kept for another attempt, or DamagedError.
        """
        for _ in self.write_steps():
            time.sleep(0)  # Between two statements the other threads go first.
        return self.stored_index

    def write_steps(self) -> Generator[None]:
        """The same, statement by statement; abandoned before its end it leaves the file as it was."""
        with self._writing:
            frozen = self._layers.frozen
            if frozen is None:
                return
            boundary = Boundary(self._store.writer, frozen, self._limits, self._sums, self._seen.next_part)
            try:
                yield from boundary.steps()
            except sqlite3.Error as error:
                boundary.undo()
                raise translate(self._store.path, error) from error
            except BaseException:
                boundary.undo()
                raise
            self._written(frozen, boundary.parts)

    def _written(self, frozen: Generation, parts: dict[tuple[int, int], int]) -> None:
        """Let the file take the frozen table's place in apply's view, then drop it piece by piece."""
        assert frozen.mark is not None
        self._seen.next_part.update(parts)
        addition = self._seen.prepare(frozen)
        seen_from = {uid: row.seen_from for uid, row in frozen.counters.items()}
        dropped = [uid for uid, channel in frozen.channels.items() if channel is None]
        with self._lock:
            self._seen.install(addition, seen_from, dropped)
            self._layers.frozen = None
            self.stored_index, self.stored_term = frozen.mark.index, frozen.mark.term
        large: list[dict[Any, Any]] = [frozen.messages, frozen.quarantine, frozen.results]
        large += [recent.keys for minutes in frozen.seen.values() for recent in minutes.values()]
        for table in large:
            for _ in drain(table, _DRAIN_ROWS):
                time.sleep(0)

    def tidy(self) -> None:
        """Empty the write-ahead file and give free pages back, in a slice; between two boundaries."""
        with self._writing:
            tidy(self._store)

    def boundary(self) -> int:
        """Freeze and write at once; returns the stored index. For tests, shutdown and a read that must be newest."""
        self.write_frozen()
        self.freeze()
        return self.write_frozen()

    def active_bytes(self) -> int:
        """Memory of what changed since the last freeze, estimated."""
        return self._layers.active.size_bytes

    def pressure(self) -> bool:
        """Whether ingest must wait for the boundary that is being written."""
        return self._layers.active.size_bytes > self._limits.active_bytes

    def close(self) -> None:
        """Close the file as it is; what was applied after the last boundary is replayed from the log next time."""
        with self._writing:
            self._store.close()
