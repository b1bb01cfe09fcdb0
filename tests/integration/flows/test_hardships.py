"""What must not stop the flows, lose a message or send it early: large messages, a clock set back, unreadable rows."""

from __future__ import annotations

import sqlite3

from engine.client import Client
from engine.config import FlowLimits, JournalLimits, Limits
from tests.integration.flows.conftest import PROJECT, Stand, until

OUT = "projects/demo/topics/out-topic"


def stored(stand: Stand) -> None:
    """Bring everything to state.db, so that it is no longer held in memory."""
    client = Client(stand.directory)

    def ask() -> None:
        client.fresh(strong=True)
        client.close()

    stand.while_time_passes(ask)


def alter(stand: Stand, statement: str) -> None:
    connection = sqlite3.connect(stand.directory / "state" / "state.db")
    connection.execute(statement)
    connection.close()


def test_a_response_larger_than_an_entry_of_the_log_is_accepted_in_parts(stand: Stand) -> None:
    stand.restart(Limits(journal=JournalLimits(entry_bytes=1_000_000)))
    stand.client.pause_channel("default", side="listen", actor="test")
    now_s = stand.clock.now_ms() // 1000
    stand.publish(*[(b"x" * 200_000, {"available_at": str(now_s + 60)})] * 15)

    stand.client.resume_channel("default", side="listen", actor="test")

    stand.accepted(15)
    assert stand.node.fatal is None


def test_a_clock_set_back_does_not_send_what_was_due_by_the_old_time(stand: Stand) -> None:
    stand.client.pause_channel("default", side="release", actor="test")
    stand.publish_in(-5.0, -4.0)
    stand.publish_in(-3.0, -2.0, ordering_key="k")
    stand.accepted(4)

    stand.clock.step(-3_600_000)
    stand.client.resume_channel("default", side="release", actor="test")
    stand.clock.advance(1.0)
    stand.at_rest()
    assert stand.bodies() == []

    stand.clock.advance(3599.0)
    until(lambda: len(stand.receive()) == 4, "all have arrived at their time")
    assert stand.metric("early_releases_total") == 0


def test_what_cannot_be_read_stops_its_channel_only_as_long_as_that_lasts(stand: Stand) -> None:
    stand.publish_in(10.0)
    stand.accepted(1)
    stored(stand)
    alter(stand, "ALTER TABLE messages RENAME TO elsewhere")

    stand.clock.advance(10.0)
    until(lambda: stand.client.channel("default")["reason"], "the reason is shown")
    alter(stand, "ALTER TABLE elsewhere RENAME TO messages")

    until(lambda: stand.clock.advance(1.0) or stand.bodies() == [b"0"], "it has arrived")
    assert stand.node.fatal is None


def test_large_messages_are_read_a_few_at_a_time_and_leave_in_order(stand: Stand) -> None:
    stand.restart(Limits(flow=FlowLimits(pickup_bytes=200_000)))
    now_s = stand.clock.now_ms() // 1000
    plain = [(b"%d" % i + b"." * 90_000, {"available_at": str(now_s + 60)}) for i in range(7)]
    stand.publish(*plain)
    stand.publish(*plain, ordering_key="k")
    stand.accepted(14)
    stored(stand)

    stand.clock.advance(60.0)

    until(lambda: len(stand.receive()) == 14, "all have arrived")
    assert [m.data[:1] for m in stand.receive() if m.ordering_key == "k"] == [b"%d" % i for i in range(7)]


def test_confirmed_messages_make_room_for_further_ones(stand: Stand) -> None:
    stand.restart(Limits(flow=FlowLimits(unconfirmed_messages_max=2, publish_batch_messages=1)))
    stand.publish_in(*([1.0] * 30))
    stand.accepted(30)

    stand.clock.advance(1.0)

    until(lambda: len(stand.receive()) == 30, "all have arrived")
    until(lambda: stand.stats()["pending"] == 0, "all are confirmed")


def test_a_changed_destination_waits_for_the_calls_to_the_former_one(stand: Stand) -> None:
    stand.emulator.create_topic(PROJECT, "new-topic")
    slow = stand.emulator.faults.delay("Publish", 1.0, resource=OUT)
    stand.publish_in(1.0)
    stand.accepted(1)
    stand.clock.advance(1.0)
    until(lambda: stand.emulator.faults.hits(slow) == 1, "a call is under way")

    stand.client.update_channel(
        "default", {"destination": {"config": {"project_id": PROJECT, "topic_id": "new-topic"}}}, actor="test"
    )

    until(lambda: stand.stats()["pending"] == 0, "it is confirmed")
    assert stand.bodies() == [b"0"]
    assert not stand.client.channel("default")["reason"]


def test_a_draining_channel_backs_off_like_any_other(stand: Stand) -> None:
    fault = stand.emulator.faults.fail("Publish", "PERMISSION_DENIED", resource=OUT, times=None)
    stand.publish_in(1.0)
    stand.accepted(1)
    stand.client.delete_channel("default", pending="drain", actor="test")
    until(lambda: stand.clock.advance(1.0) or stand.emulator.faults.hits(fault), "a call was refused")

    for _ in range(600):
        stand.clock.advance(0.1)
        stand.stats()

    assert 1 <= stand.emulator.faults.hits(fault) <= 20


def test_a_file_that_cannot_be_written_while_stopping_costs_only_the_replay(stand: Stand) -> None:
    stand.publish_in(10.0)
    stand.accepted(1)
    other = sqlite3.connect(stand.directory / "state" / "state.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    stand.stop()

    other.execute("ROLLBACK")
    other.close()
    stand.node = stand._start()
    stand.clock.advance(10.0)
    until(lambda: stand.bodies() == [b"0"], "it has arrived")
