"""The table of leases: what it remembers, and for how long."""

from __future__ import annotations

from engine.emulator.leases import Consumer, LeaseTable
from engine.emulator.message import Message
from engine.emulator.wire import ack_ids, batch_of

FAR_NS = 1 << 60


def message(seq: int) -> Message:
    return Message(b"x" * 10, seq, b"000", batch_of(seq, 0, ""))


def test_deadlines_of_ended_leases_do_not_pile_up() -> None:
    table, consumer = LeaseTable(), Consumer()
    for group in range(20_000):
        ids = ack_ids(b"01234567", group, 1)
        table.grant(consumer, [message(group)], ids, FAR_NS)
        table.end_many(ids)
    assert len(table._deadlines) < 5_000
    assert (len(table), consumer.held, consumer.held_bytes) == (0, 0, 0)


def test_ends_across_groups_and_receivers_are_booked_to_each() -> None:
    table, first, second = LeaseTable(), Consumer(), Consumer(messages_max=1)
    one, two = ack_ids(b"01234567", 1, 3), ack_ids(b"01234567", 2, 2)
    table.grant(first, [message(seq) for seq in range(3)], one, FAR_NS)
    table.grant(second, [message(seq) for seq in range(3, 5)], two, FAR_NS)
    second.starved = True
    ended, missing, relieved = table.end_many([one[0], two[1], b"unknown", one[0]])
    assert [item.seq for item in ended] == [0, 4]
    assert missing == [b"unknown", one[0]]
    assert relieved
    assert (first.held, first.held_bytes, second.held, second.held_bytes) == (2, 20, 1, 10)


def test_an_id_extended_twice_in_one_call_counts_once() -> None:
    table, consumer = LeaseTable(), Consumer()
    ids = ack_ids(b"01234567", 1, 2)
    table.grant(consumer, [message(0), message(1)], ids, 10)
    assert table.extend([ids[0], ids[0], b"unknown"], 50) == [b"unknown"]
    assert table.expired(10) == [ids[1]]
    table.end(ids[1])
    assert table.next_deadline_ns() == 50
    assert table.expired(49) == []
    assert table.expired(50) == [ids[0]]
