"""Pages over the messages of state.db: by (due, seq) for pending ones, by seq for the quarantine; never an OFFSET.

Pending messages are indexed by (channel, slot, seq), a slot being 2^20 ms: within a slot the index is not in due
order, so a page takes whole slots from one walk over the index and sorts only what it needs of the last one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Generic, TypeVar

from django.db.models import F, Q, QuerySet

from channels_app.models import HeldMessage, Message, QuarantinedMessage
from scheduler_project.limits import LIMITS
from scheduler_project.pages import Cursor, Key

M = TypeVar("M", bound=HeldMessage)
SLOT_BITS: Final = 20
_CHUNK: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Which messages; None or empty means any."""

    channel_uids: tuple[int, ...]
    due_from_ms: int | None = None
    """First due time."""
    due_to_ms: int | None = None
    """End of the due times, itself not among them."""
    key: str | None = None
    source_id: str | None = None
    ordering_key: str | None = None
    seqs: frozenset[int] | None = None
    """Only these."""

    @property
    def exact(self) -> bool:
        """Whether something that no index knows must be equal."""
        return any(wanted is not None for wanted in (self.key, self.source_id, self.ordering_key, self.seqs))


@dataclass(frozen=True, slots=True)
class Page(Generic[M]):
    """Messages in order, and the keys to go on from where there is more."""

    messages: list[M]
    following: Key | None
    preceding: Key | None


def pending_page(filters: Filters, limit: int, cursor: Cursor | None) -> Page[Message]:
    """Pending messages, soonest first."""
    backwards = cursor is not None and cursor.backwards
    if filters.exact:
        return _page(Message.objects.all(), _search(filters, limit + 1, cursor, backwards), limit, cursor)
    keys: list[Key] = []
    for channel_uid in filters.channel_uids:
        keys += islice(_walk(filters, channel_uid, limit + 1, cursor, backwards), limit + 1)
    keys.sort(reverse=backwards)
    return _page(Message.objects.all(), keys[: limit + 1], limit, cursor)


def quarantined_page(filters: Filters, limit: int, cursor: Cursor | None) -> Page[QuarantinedMessage]:
    """Quarantined messages, longest held first."""
    backwards = cursor is not None and cursor.backwards
    found = QuarantinedMessage.objects.filter(_conditions(filters), channel_uid__in=filters.channel_uids)
    if filters.due_from_ms is not None:
        found = found.filter(due_ms__gte=filters.due_from_ms)
    if filters.due_to_ms is not None:
        found = found.filter(due_ms__lt=filters.due_to_ms)
    if cursor is not None:
        found = found.filter(seq__lt=cursor.key[-1]) if backwards else found.filter(seq__gt=cursor.key[-1])
    seqs = found.order_by("-seq" if backwards else "seq").values_list("seq")[: limit + 1]
    return _page(QuarantinedMessage.objects.all(), list(seqs), limit, cursor)


def _search(filters: Filters, need: int, cursor: Cursor | None, backwards: bool) -> list[Key]:
    """Keys (due, seq) of what equals the filters, by one scan of the table.

    The scan is six times as fast as looking up every row that the index names (0.4 s against 2.5 s for a million), so
    the channel is written as a sum, which keeps SQLite from using the index.
    """
    found: QuerySet[Message] = Message.objects.alias(uid=F("channel_uid") + 0).filter(uid__in=filters.channel_uids)
    found = _behind(found.filter(_conditions(filters)), filters, cursor, backwards)
    order = ("-due_ms", "-seq") if backwards else ("due_ms", "seq")
    return list(found.order_by(*order).values_list("due_ms", "seq")[:need])


def _walk(filters: Filters, channel_uid: int, need: int, cursor: Cursor | None, backwards: bool) -> Iterable[Key]:
    """Keys (due, seq) of one channel in order, at least `need` of them if there are as many."""
    entries = _behind(Message.objects.filter(channel_uid=channel_uid), filters, cursor, backwards)
    sign = "-" if backwards else ""
    slot: int | None = None
    given = 0
    # Each round but the last gives at least one key, so there are at most `need` rounds.
    for _ in range(need):
        ahead = entries if slot is None else entries.filter(**{f"slot__{'lt' if backwards else 'gt'}": slot})
        run = list(ahead.order_by(f"{sign}slot", f"{sign}seq").values_list("slot", "due_ms", "seq")[:need])
        complete = len(run) < need
        last = run[-1][0] if run else 0
        whole = [(due, seq) for at, due, seq in run if complete or at != last]
        yield from sorted(whole, reverse=backwards)
        given += len(whole)
        if complete or given >= need:
            return
        tail = entries.filter(slot=last).order_by(f"{sign}due_ms", f"{sign}seq")
        part = list(tail.values_list("due_ms", "seq")[: need - given])
        yield from part
        given += len(part)
        if given >= need:
            return
        slot = last


def _behind(found: QuerySet[Message], filters: Filters, cursor: Cursor | None, backwards: bool) -> QuerySet[Message]:
    """What is due within the filters' times and stands behind (or before) the cursor."""
    if filters.due_from_ms is not None:
        found = found.filter(slot__gte=filters.due_from_ms >> SLOT_BITS, due_ms__gte=filters.due_from_ms)
    if filters.due_to_ms is not None:
        found = found.filter(slot__lte=filters.due_to_ms >> SLOT_BITS, due_ms__lt=filters.due_to_ms)
    if cursor is not None:
        due_ms, seq = cursor.key
        slot = due_ms >> SLOT_BITS
        if backwards:
            found = found.filter(Q(due_ms__lt=due_ms) | Q(due_ms=due_ms, seq__lt=seq), slot__lte=slot)
        else:
            found = found.filter(Q(due_ms__gt=due_ms) | Q(due_ms=due_ms, seq__gt=seq), slot__gte=slot)
    return found


def _conditions(filters: Filters) -> Q:
    conditions = Q()
    if filters.key is not None:
        conditions &= Q(key=filters.key)
    if filters.source_id is not None:
        conditions &= Q(source_id=filters.source_id)
    if filters.ordering_key is not None:
        conditions &= Q(ordering_key=filters.ordering_key)
    if filters.seqs is not None:
        conditions &= Q(seq__in=sorted(filters.seqs))
    return conditions


def _page(rows: QuerySet[M, M], keys: Sequence[Key], limit: int, cursor: Cursor | None) -> Page[M]:
    """The rows of these keys (one more than wanted, when there is more), ended early before it gets too large."""
    backwards = cursor is not None and cursor.backwards
    wanted = list(keys[:limit])
    sizes: dict[int, int] = {}
    for chunk in _chunks([key[-1] for key in wanted]):
        sizes.update(rows.filter(seq__in=chunk).values_list("seq", "size"))
    kept: list[Key] = []
    total_bytes = 0
    for key in wanted:
        total_bytes += sizes.get(key[-1], 0)
        if kept and total_bytes > LIMITS.page_bytes_max:
            break
        kept.append(key)
    found: dict[Any, M] = {}
    for chunk in _chunks([key[-1] for key in kept]):
        found.update(rows.in_bulk(chunk))
    more = len(keys) > len(kept)
    if backwards:
        kept.reverse()
    edges = (kept[0], kept[-1]) if kept else (None, None)
    # Between the two readings a message may have left: its key still marks the place.
    messages = [found[key[-1]] for key in kept if key[-1] in found]
    behind = more if backwards else cursor is not None
    ahead = cursor is not None if backwards else more
    return Page(messages, edges[1] if ahead else None, edges[0] if behind else None)


def _chunks(seqs: Sequence[int]) -> Iterable[Sequence[int]]:
    return (seqs[start : start + _CHUNK] for start in range(0, len(seqs), _CHUNK))
