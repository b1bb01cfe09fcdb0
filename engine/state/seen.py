"""Which source messages a channel has accepted lately: exact, and 8 bytes each in memory.

What the generations hold is compared directly. Everything older is in memory as sorted hashes by listening minute
behind a Bloom filter; a hash that is found is then compared with the ids in the file, because a false duplicate would
be a lost message. Grouping by boundaries never shows in an answer: what is known depends on minutes alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.errors import DamagedError
from engine.state import seen_part
from engine.state.checksum import Hashes, Integers, fold, fold_column, text_hash, unsigned
from engine.state.filter import Filter
from engine.state.generation import Generation, SourceKey
from engine.state.store import Store

_SEED: Final = 0x736F75726365
_NONE: Final[Hashes] = np.empty(0, dtype=np.uint64)

KeyHash = Callable[[int, str, Hashes, Integers], Hashes]
"""(channel uid, subscription, hashes of the source ids, publish times) → key hashes."""


def key_hashes(uid: int, subscription: str, id_hashes: Hashes, publish_us: Integers) -> Hashes:
    """The hashes by which source messages are found again."""
    h = np.full(len(id_hashes), fold(fold(_SEED, uid), text_hash(subscription)), dtype=np.uint64)
    fold_column(h, id_hashes)
    fold_column(h, unsigned(publish_us))
    return h


@dataclass(slots=True)
class _Runs:
    """The older source messages of one channel."""

    filter: Filter = field(default_factory=lambda: Filter(0))
    minutes: dict[int, list[Hashes]] = field(default_factory=dict)
    """Sorted arrays of geometrically falling size by minute; one only once the minute is over."""


@dataclass(slots=True)
class _Part:
    """One row of `seen`."""

    number: int
    subscription: str
    blob: bytes
    count: int
    ids: seen_part.PartIds | None = None


@dataclass(slots=True)
class _Minute:
    """The rows of one minute, opened for comparing."""

    parts: list[_Part]
    starts: list[int]
    """Position of each part's first hash."""
    order: NDArray[np.intp]
    """Positions in the order of the hashes."""
    hashes: Hashes
    """Sorted."""
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Addition:
    """What a written generation adds in memory: prepared beside apply, installed under the lock."""

    runs: dict[int, dict[int, list[Hashes]]]
    filters: dict[int, Filter]


class Seen:
    """Known source messages of all channels. `known` and `install` run under the state's lock."""

    def __init__(self, store: Store, key_hash: KeyHash) -> None:
        self.key_hash = key_hash
        self.next_part: dict[tuple[int, int], int] = {}
        """By (channel uid, minute): number of the next row; only the thread that writes boundaries uses it."""
        self._store = store
        self._channels: dict[int, _Runs] = {}
        self._open: OrderedDict[tuple[int, int], _Minute] = OrderedDict()
        self._open_bytes = 0

    def known(
        self,
        uid: int,
        subscription: str,
        names: Sequence[SourceKey],
        hashes: Hashes,
        seen_from: int,
        generations: Iterable[Generation],
    ) -> set[SourceKey]:
        """Those of `names` that were accepted in a minute from `seen_from` on; `hashes` are theirs, in their order."""
        found: set[SourceKey] = set()
        for generation in generations:
            for minute, recent in generation.seen.get((uid, subscription), {}).items():
                if minute >= seen_from and not recent.keys.keys().isdisjoint(names):
                    found.update(recent.keys.keys() & names)
        runs = self._channels.get(uid)
        if runs is not None:
            candidates = runs.filter.maybe(hashes)
            if len(candidates):
                some = [names[i] for i in candidates.tolist()]
                for minute, arrays in runs.minutes.items():
                    if minute >= seen_from:
                        self._compare(uid, minute, subscription, arrays, some, hashes[candidates], found)
        return found

    def prepare(self, frozen: Generation) -> Addition:
        """Sort a written generation's hashes into the runs and enlarge filters: beside apply, without the lock."""
        added: dict[int, dict[int, list[Hashes]]] = {}
        for (uid, _), minutes in frozen.seen.items():
            for minute, recent in minutes.items():
                added.setdefault(uid, {}).setdefault(minute, []).append(np.sort(np.concatenate(recent.hashes)))
        filters: dict[int, Filter] = {}
        for uid, fresh in added.items():
            runs = self._channels.get(uid) or _Runs()
            for minute, arrays in fresh.items():
                fresh[minute] = _merge([*runs.minutes.get(minute, ()), *arrays], whole=False)
            for minute, arrays in runs.minutes.items():
                if len(arrays) > 1 and minute not in fresh:
                    fresh[minute] = _merge(arrays, whole=True)
            filters[uid] = self._filter(runs, frozen, uid, fresh)
        return Addition(added, filters)

    def install(self, addition: Addition, seen_from: Mapping[int, int], dropped: Iterable[int]) -> None:
        """Take over what was prepared, and let go of minutes that are over and of channels that are gone."""
        for uid, minutes in addition.runs.items():
            runs = self._channels.setdefault(uid, _Runs())
            runs.minutes.update(minutes)
            runs.filter = addition.filters[uid]
            for minute in minutes:
                self._forget_open(uid, minute)
        for uid, first in seen_from.items():
            for minute in [m for m in self._minutes(uid) if m < first]:
                self._forget(uid, minute)
        for uid in dropped:
            for minute in list(self._minutes(uid)):
                self._forget(uid, minute)
            self._channels.pop(uid, None)

    def load(self, uid: int, minute: int, part: int, hashes: Hashes) -> None:
        """One stored row, while opening; `finish_loading` follows."""
        self._channels.setdefault(uid, _Runs()).minutes.setdefault(minute, []).append(hashes)
        self.next_part[uid, minute] = max(self.next_part.get((uid, minute), 0), part + 1)

    def finish_loading(self) -> None:
        """Sort what was loaded."""
        for runs in self._channels.values():
            for minute, arrays in runs.minutes.items():
                runs.minutes[minute] = [np.sort(np.concatenate(arrays))]
            runs.filter = _new_filter(runs.minutes.values())

    def _minutes(self, uid: int) -> Iterable[int]:
        runs = self._channels.get(uid)
        return () if runs is None else runs.minutes

    def _forget(self, uid: int, minute: int) -> None:
        del self._channels[uid].minutes[minute]
        self.next_part.pop((uid, minute), None)
        self._forget_open(uid, minute)

    def _filter(self, runs: _Runs, frozen: Generation, uid: int, fresh: Mapping[int, list[Hashes]]) -> Filter:
        pieces = [
            piece
            for key, minutes in frozen.seen.items()
            if key[0] == uid
            for recent in minutes.values()
            for piece in recent.hashes
        ]
        if runs.filter.count + sum(map(len, pieces)) > runs.filter.capacity:
            return _new_filter((runs.minutes | dict(fresh)).values())
        for piece in pieces:
            runs.filter.add(piece)
        return runs.filter

    def _compare(
        self,
        uid: int,
        minute: int,
        subscription: str,
        arrays: Iterable[Hashes],
        names: Sequence[SourceKey],
        hashes: Hashes,
        found: set[SourceKey],
    ) -> None:
        hits: set[int] = set()
        for array in arrays:
            at = np.searchsorted(array, hashes)
            at[at == len(array)] = 0
            hits.update(np.flatnonzero(array[at] == hashes).tolist())
        if not hits:
            return
        at_hits = sorted(hits)
        opened = self._opened(uid, minute)
        first = np.searchsorted(opened.hashes, hashes[at_hits], side="left").tolist()
        last = np.searchsorted(opened.hashes, hashes[at_hits], side="right").tolist()
        for i, start, end in zip(at_hits, first, last, strict=True):
            if names[i] not in found and self._holds(uid, minute, subscription, opened, names[i], start, end):
                found.add(names[i])

    def _holds(
        self, uid: int, minute: int, subscription: str, opened: _Minute, name: SourceKey, start: int, end: int
    ) -> bool:
        """Whether one of the ids with the same hash is this one."""
        for position in opened.order[start:end].tolist():
            at = bisect_right(opened.starts, position) - 1
            part = opened.parts[at]
            if part.subscription == subscription:
                ids = part.ids or self._open_ids(uid, minute, opened, part)
                if ids.key(position - opened.starts[at]) == name:
                    return True
        return False

    def _open_ids(self, uid: int, minute: int, opened: _Minute, part: _Part) -> seen_part.PartIds:
        (ids,) = self._store.one(
            self._store.apply_reader,
            "SELECT ids FROM seen WHERE channel_uid = ? AND minute = ? AND part = ?",
            (uid, minute, part.number),
        )
        if not seen_part.ids_match(part.blob, ids):
            raise damaged(self._store, uid, minute, part.number)
        part.ids = seen_part.PartIds.open(ids, part.count)
        opened.size_bytes += len(ids)
        self._open_bytes += len(ids)
        return part.ids

    def _opened(self, uid: int, minute: int) -> _Minute:
        opened = self._open.get((uid, minute))
        if opened is not None:
            self._open.move_to_end((uid, minute))
            return opened
        rows = self._store.all(
            self._store.apply_reader,
            "SELECT part, subscription, count, crc, hashes FROM seen WHERE channel_uid = ? AND minute = ?",
            (uid, minute),
        )
        for number, subscription, count, crc, blob in rows:
            if seen_part.part_crc(uid, minute, number, subscription, count, blob) != crc:
                raise damaged(self._store, uid, minute, number)
        parts = [_Part(number, subscription, blob, count) for number, subscription, count, _, blob in rows]
        starts = list(accumulate((part.count for part in parts), initial=0))
        hashes = np.concatenate([_NONE, *(seen_part.unpack_hashes(part.blob) for part in parts)])
        order = np.argsort(hashes)
        opened = _Minute(parts, starts[:-1], order, hashes[order], size_bytes=24 * len(hashes))
        self._open[uid, minute] = opened
        self._open_bytes += opened.size_bytes
        while self._open_bytes > self._store.limits.seen_cache_bytes and len(self._open) > 1:
            self._forget_open(*next(iter(self._open)))
        return opened

    def _forget_open(self, uid: int, minute: int) -> None:
        opened = self._open.pop((uid, minute), None)
        if opened is not None:
            self._open_bytes -= opened.size_bytes


def damaged(store: Store, uid: int, minute: int, part: int) -> DamagedError:
    """The sentence for a row of `seen` whose checksum does not match."""
    return DamagedError(
        f"{store.path}: part {part} of minute {minute} of channel uid {uid} in seen does not match its checksum; the"
        " file is kept: this node must rebuild its state from the other nodes, or from a back-up"
    )


def _merge(arrays: list[Hashes], *, whole: bool) -> list[Hashes]:
    """Fewer sorted arrays of the same hashes: one, or some in which each is more than twice as long as the next."""
    arrays = sorted(arrays, key=len, reverse=True)
    while len(arrays) > 1 and (whole or len(arrays[-2]) <= 2 * len(arrays[-1])):
        last = arrays.pop()
        arrays[-1] = np.sort(np.concatenate((arrays[-1], last)))
    return arrays


def _new_filter(minutes: Iterable[list[Hashes]]) -> Filter:
    arrays = [array for minute in minutes for array in minute]
    filter_ = Filter(sum(map(len, arrays)))
    for array in arrays:
        filter_.add(array)
    return filter_
