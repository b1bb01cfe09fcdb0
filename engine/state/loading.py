"""Reading the small tables when a state is opened; the large ones stay where they are.

Every row is checked against its checksum, all of them together against `meta`, and the highest seq of the large tables
against the counter: a file copied while it was written is found out here as far as it can be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from engine.errors import DamagedError
from engine.model import Channel, Cluster, Node
from engine.state import reads, seen_part
from engine.state.boundary import meta_values
from engine.state.checksum import record_crc
from engine.state.counters import CountersRow, restore
from engine.state.generation import Mark, Outcome
from engine.state.machine import Machine
from engine.state.schema import FORMAT
from engine.state.seen import Seen, damaged
from engine.state.store import Store
from engine.state.sums import Sums

_CHANNEL: Final = msgspec.msgpack.Decoder(Channel)
_CLUSTER: Final = msgspec.msgpack.Decoder(Cluster)
_REST: Final = msgspec.msgpack.Decoder(tuple[int, int, int, int])


def load_mark(store: Store) -> tuple[Mark, int]:
    """Where the file is in the log, and the total over its small tables; both fresh for an empty file."""
    values = dict(store.all(store.writer, "SELECT name, value FROM meta"))
    if not values:
        for table in ("messages", "quarantine", "channels", "results", "seen"):
            if store.all(store.writer, f"SELECT 1 FROM {table} LIMIT 1"):  # noqa: S608
                raise _torn(store, "meta is empty, but there are rows")
        return Mark(), 0
    try:
        mark = Mark(
            index=values["applied_index"],
            term=values["applied_term"],
            next_seq=values["next_seq"],
            next_uid=values["next_uid"],
            last_stamp_ms=values["last_stamp_ms"],
            cluster_id=values["cluster_id"],
        )
        total: int = values["tables"]
    except KeyError as error:
        raise _torn(store, f"meta lacks {error}") from error
    if meta_values(mark, total) != values or values["format"] != FORMAT:
        raise _torn(store, "meta does not match its checksum")
    if reads.highest_seq(store, store.writer) >= mark.next_seq:
        raise _torn(store, "there are messages newer than meta")
    return mark, total


def load(store: Store, machine: Machine, seen: Seen, sums: Sums, total: int) -> None:
    """Fill an empty machine with what is stored."""
    for uid, *rest in _checked(store, sums, "channels", "uid"):
        channel = _decoded(store, "channels", uid, _CHANNEL.decode, rest[-1])
        machine.channels.load(channel)
    for uid, *rest in _checked(store, sums, "channel_stats", "channel_uid"):
        body = _decoded(store, "channel_stats", uid, _REST.decode, rest[-1])
        machine.messages.counters[uid] = restore(CountersRow(*rest[:-1], *body))
    if machine.messages.counters.keys() != machine.channels.by_uid.keys():
        raise _torn(store, "channels and channel_stats do not belong together")
    machine.channels.former_ids.update(channel_id for (channel_id,) in _checked(store, sums, "former_ids", "id"))
    for name, addr, api_addr, version in _checked(store, sums, "nodes", "name"):
        machine.nodes[name] = Node(name=name, addr=addr, api_addr=api_addr, version=version)
    for _, body in _checked(store, sums, "cluster", "one"):
        machine.cluster = _decoded(store, "cluster", 1, _CLUSTER.decode, body)
    for request_id, ordinal, fingerprint, expires_ms, answer in _checked(store, sums, "results", "ordinal"):
        outcome = Outcome(ordinal=ordinal, fingerprint=fingerprint, expires_ms=expires_ms, answer=answer)
        machine.results.load(request_id, outcome)
    if sums.total != total:
        raise _torn(store, "the small tables are not all of the same boundary")
    _load_seen(store, seen)


def _load_seen(store: Store, seen: Seen) -> None:
    rows = store.writer.execute(
        "SELECT channel_uid, minute, part, subscription, count, crc, hashes FROM seen ORDER BY 1, 2, 3"
    )
    for uid, minute, part, subscription, count, crc, blob in rows:
        if seen_part.part_crc(uid, minute, part, subscription, count, blob) != crc:
            raise damaged(store, uid, minute, part)
        seen.load(uid, minute, part, seen_part.unpack_hashes(blob))
    seen.finish_loading()


def _checked(store: Store, sums: Sums, table: str, order: str) -> Iterator[list[Any]]:
    """Rows of a small table without their checksums, each compared with it."""
    for *columns, crc in store.all(store.writer, f"SELECT * FROM {table} ORDER BY {order}"):  # noqa: S608
        if record_crc(table, *columns) != crc:
            raise DamagedError(
                f"{store.path}: the row {columns[0]!r} of {table} does not match its checksum; the file is kept:"
                " move it away to let this node rebuild its state from the other nodes, or restore a back-up"
            )
        sums.put(table, columns[0], crc)
        yield columns


def _decoded(store: Store, table: str, key: object, decode: Callable[[bytes], Any], body: bytes) -> Any:
    try:
        return decode(body)
    except msgspec.MsgspecError as error:
        raise DamagedError(f"{store.path}: the row {key!r} of {table} cannot be read ({error})") from error


def _torn(store: Store, why: str) -> DamagedError:
    return DamagedError(
        f"{store.path} is not of one piece ({why}), as after a copy of a running node's files; the file is kept: move"
        " it away to let this node rebuild its state from the other nodes, or restore a back-up"
    )
