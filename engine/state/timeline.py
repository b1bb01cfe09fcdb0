"""What is due next on one channel: the near future in memory, 8 bytes a message.

Keys lie in buckets of 64 ms. A bucket is sorted only when its time comes, a part at a time where keys keep coming in
for it. All dues of a bucket lie in one slot, so a key packs the due's offset in its slot (20 bits) above the seq (44).
Not thread-safe: the releaser's lock guards it.
"""

from __future__ import annotations

from array import array
from collections.abc import MutableMapping, Sequence
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sortedcontainers import SortedDict

from engine.state.checksum import Hashes, Integers
from engine.state.rows import SLOT_BITS

_BUCKET_BITS: Final = 6
_BUCKET_MS: Final = 1 << _BUCKET_BITS
_SEQ_BITS: Final = 44
_SEQ_MASK: Final = (1 << _SEQ_BITS) - 1
_OFFSET_MASK: Final = (1 << SLOT_BITS) - 1
_VECTOR_MIN: Final = 24
"""From this many keys on numpy's fixed cost pays."""
_GROUP_MIN: Final = 5000
"""Fewer keys go to their buckets one by one, unless all go to one."""
_SMALL: Final = 200
"""A bucket of at most this many keys is sorted without numpy."""
_COUNTED_MAX: Final = 64
"""Buckets that `overdue` looks at: four seconds."""
_LOAD_CHUNK: Final = 100_000
"""Keys of one load that are grouped at once."""

Keys = NDArray[np.uint64]


class _Bucket:
    """The keys of 64 ms: fresh ones as they came, and sorted runs of which the heads are taken."""

    __slots__ = ("fresh", "runs")

    def __init__(self) -> None:
        self.fresh = array("Q")
        self.runs: list[Keys] = []

    def settle(self) -> int:
        """Sort what is fresh into the runs; returns how many doubles fell away.

        Runs of geometrically falling size, so that late comers never sort a large rest again and again.
        """
        if not self.fresh:
            return 0
        before = len(self.fresh)
        self.runs.append(_sorted_once(np.frombuffer(self.fresh, dtype=np.uint64)))
        self.fresh = array("Q")
        dropped = before - len(self.runs[-1])
        self.runs.sort(key=len, reverse=True)
        while len(self.runs) > 1 and len(self.runs[-2]) <= 2 * len(self.runs[-1]):
            last = self.runs.pop()
            both = len(last) + len(self.runs[-1])
            self.runs[-1] = _sorted_once(np.concatenate((self.runs[-1], last)))
            dropped += both - len(self.runs[-1])
        return dropped

    def head(self) -> int:
        """The smallest key; a large bucket must be settled."""
        heads = [int(run[0]) for run in self.runs]
        if self.fresh:
            heads.append(min(self.fresh))
        return min(heads)

    def small(self, limit: int) -> bool:
        """Whether it is quicker, and enough, to sort all of it as a list."""
        return not self.runs and len(self.fresh) <= min(limit, _SMALL)

    def take(self, limit: int, below: int | None) -> tuple[Keys, int]:
        """The smallest keys, at most `limit` and less than `below`; and how many left the runs, doubles included."""
        heads = [run[:limit] for run in self.runs]
        if below is not None:
            heads = [head[: np.searchsorted(head, np.uint64(below))] for head in heads]
        taken = heads[0] if len(heads) == 1 else _sorted_once(np.concatenate(heads))
        taken = taken[:limit]
        if not len(taken):
            return taken, 0
        left = 0
        rest = []
        for run in self.runs:
            start = int(np.searchsorted(run, taken[-1], side="right"))
            left += start
            if start < len(run):
                rest.append(run[start:])
        self.runs = rest
        return taken, left


class Timeline:
    """Pending messages of one channel with a due time in the slots below `bound`."""

    def __init__(self, bound: int = 0) -> None:
        self.bound = bound
        """Slots below it are in memory; who adds compares with it, see `covers`."""
        self._buckets: MutableMapping[int, _Bucket] = SortedDict()  # type: ignore[no-untyped-call]
        self._count = 0
        self._head_ms: int | None = None

    def __len__(self) -> int:
        """Keys held; doubles that nobody has come across yet are counted twice."""
        return self._count

    def advance(self, bound: int) -> None:
        """Slots below `bound` are added from now on; call it before they are loaded."""
        assert bound >= self.bound, (bound, self.bound)
        self.bound = bound

    def covers(self, due_ms: int) -> bool:
        """Whether a message with this due time belongs in here."""
        return due_ms >> SLOT_BITS < self.bound

    def add(self, dues_ms: Sequence[int], seqs: Sequence[int]) -> None:
        """Add messages below the bound (the caller decides), in any order, seen before or not."""
        if len(dues_ms) >= _VECTOR_MIN:
            self.load(np.array(dues_ms, dtype=np.int64), np.array(seqs, dtype=np.int64))
            return
        for due_ms, seq in zip(dues_ms, seqs, strict=True):
            self._bucket(due_ms >> _BUCKET_BITS).fresh.append((due_ms & _OFFSET_MASK) << _SEQ_BITS | seq)
            if self._head_ms is None or due_ms < self._head_ms:
                self._head_ms = due_ms
        self._count += len(dues_ms)

    def load(self, dues_ms: Integers, seqs: Integers) -> None:
        """The same for columns."""
        for start in range(0, len(dues_ms), _LOAD_CHUNK):
            self._load(dues_ms[start : start + _LOAD_CHUNK], seqs[start : start + _LOAD_CHUNK])

    def _load(self, dues_ms: Integers, seqs: Integers) -> None:
        places = dues_ms >> _BUCKET_BITS
        keys = ((dues_ms & _OFFSET_MASK) << _SEQ_BITS | seqs).view(np.uint64)
        first = int(places[0])
        if (places == first).all():
            self._bucket(first).fresh.frombytes(keys.tobytes())
        elif len(keys) < _GROUP_MIN:
            for place, key in zip(places.tolist(), keys.tolist(), strict=True):
                self._bucket(place).fresh.append(key)
        else:
            order = np.argsort(places, kind="stable")
            places, keys = places[order], keys[order]
            starts = np.flatnonzero(places[1:] != places[:-1]) + 1
            ends = [*starts.tolist(), len(keys)]
            start = 0
            for place, end in zip(places[[0, *ends[:-1]]].tolist(), ends, strict=True):
                self._bucket(place).fresh.frombytes(keys[start:end].tobytes())
                start = end
        earliest = int(dues_ms.min())
        if self._head_ms is None or earliest < self._head_ms:
            self._head_ms = earliest
        self._count += len(keys)

    def head_ms(self) -> int | None:
        """The earliest due time, None when empty."""
        return self._head_ms

    def take(self, now_ms: int, limit: int) -> tuple[list[int], list[int]]:
        """Up to `limit` messages due at `now_ms`, as dues and seqs in (due, seq) order; they are no longer held."""
        dues: list[int] = []
        seqs: list[int] = []
        while len(dues) < limit and self._head_ms is not None and self._head_ms <= now_ms:
            place, bucket = self._first()
            base_ms = place << _BUCKET_BITS & ~_OFFSET_MASK
            whole = now_ms >= (place + 1) * _BUCKET_MS - 1
            if whole and bucket.small(limit - len(dues)):
                few = sorted(set(bucket.fresh))
                self._count -= len(bucket.fresh)
                dues += [base_ms + (key >> _SEQ_BITS) for key in few]
                seqs += [key & _SEQ_MASK for key in few]
            else:
                self._count -= bucket.settle()
                below = None if whole else ((now_ms & _OFFSET_MASK) + 1) << _SEQ_BITS
                keys, left = bucket.take(limit - len(dues), below)
                self._count -= left
                dues += ((keys >> np.uint64(_SEQ_BITS)).astype(np.int64) + base_ms).tolist()
                seqs += (keys & np.uint64(_SEQ_MASK)).tolist()
            if not bucket.runs:
                del self._buckets[place]
            self._find_head()
        return dues, seqs

    def overdue(self, now_ms: int, limit: int) -> int:
        """How many are due, as far as it is cheap to tell: counting ends at `limit` or after a few buckets."""
        count = 0
        last = now_ms >> _BUCKET_BITS
        for place in islice(self._buckets, _COUNTED_MAX):
            if place > last or count >= limit:
                break
            bucket = self._buckets[place]
            count += len(bucket.fresh) + sum(map(len, bucket.runs))
        return count

    def _find_head(self) -> None:
        if not self._buckets:
            self._head_ms = None
            return
        place, bucket = self._first()
        if len(bucket.fresh) > _SMALL:
            self._count -= bucket.settle()
        self._head_ms = (bucket.head() >> _SEQ_BITS) + (place << _BUCKET_BITS & ~_OFFSET_MASK)

    def _first(self) -> tuple[int, _Bucket]:
        """The earliest bucket; a SortedDict iterates in order, so this is O(1)."""
        place = next(iter(self._buckets))
        return place, self._buckets[place]

    def _bucket(self, place: int) -> _Bucket:
        bucket = self._buckets.get(place)
        if bucket is None:
            bucket = self._buckets[place] = _Bucket()
        return bucket


def _sorted_once(keys: Hashes) -> Keys:
    """Sorted, without doubles. (np.unique hashes first: 25 times slower on a million keys.)"""
    ordered = np.sort(keys)
    if len(ordered) < 2:
        return ordered
    keep = np.empty(len(ordered), dtype=np.bool_)
    keep[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=keep[1:])
    return ordered if keep.all() else ordered[keep]
