"""When messages leave, by a clock that the test moves: never before their time, and then at once."""

from __future__ import annotations

import pytest

from tests.integration.flows.conftest import Stand, until

HOUR_S = 3600.0


def test_nothing_leaves_a_millisecond_before_its_time(stand: Stand) -> None:
    stand.publish_in(60.0, 60.001, 61.0)
    stand.accepted(3)

    stand.clock.advance(59.999)
    assert stand.bodies() == []
    stand.clock.advance(0.001)
    until(lambda: stand.bodies() == [b"0"], "the first has arrived")
    stand.at_rest()
    stand.clock.advance(0.001)
    until(lambda: stand.bodies() == [b"0", b"1"], "the second has arrived")
    stand.at_rest()
    assert stand.stats()["pending"] == 1


def test_an_earlier_message_goes_before_one_that_was_accepted_earlier(stand: Stand) -> None:
    stand.publish_in(6 * HOUR_S)
    stand.accepted(1)
    stand.publish_in(HOUR_S, HOUR_S / 2)
    stand.accepted(3)

    for _ in range(4):
        stand.clock.advance(HOUR_S / 4)
        until(lambda: stand.node.fatal is None and stand.stats()["in_flight"] == 0, "settled")

    until(lambda: stand.bodies() == [b"1", b"0"], "both have arrived in the order of their times")


def test_messages_far_beyond_the_loaded_window_leave_in_order_and_once(stand: Stand) -> None:
    hours = [5.0, 0.1, 2.5, 0.5, 30.0, 2.5]
    stand.publish_in(*(hour * HOUR_S for hour in hours))
    stand.accepted(len(hours))

    for _ in range(6 * 31):
        stand.clock.advance(HOUR_S / 6)
        now_hours = (stand.clock.now_ms() - 1_767_225_600_000) / 1000 / HOUR_S
        due = sum(hour <= now_hours for hour in hours)
        until(lambda due=due: len(stand.receive()) >= due, f"{due} have arrived after {now_hours:.1f} hours")

    assert stand.bodies() == [b"1", b"3", b"2", b"5", b"0", b"4"]
    assert stand.stats()["pending"] == 0


def test_a_wall_clock_set_back_delays_and_never_repeats(stand: Stand) -> None:
    stand.publish_in(10.0, 20.0)
    stand.accepted(2)
    stand.clock.advance(10.0)
    until(lambda: stand.bodies() == [b"0"], "the first has arrived")
    stand.at_rest()

    stand.clock.step(-60_000)
    stand.clock.advance(15.0)
    stand.clock.advance(15.0)
    assert stand.bodies() == [b"0"]
    stand.clock.advance(40.0)
    until(lambda: stand.bodies() == [b"0", b"1"], "the second has arrived")


def test_a_wall_clock_set_forward_is_an_alarm(stand: Stand) -> None:
    stand.publish_in(1800.0)
    stand.accepted(1)

    stand.clock.step(3_600_000)
    stand.clock.advance(1.0)
    until(lambda: stand.bodies() == [b"0"], "it is due by the clock as it is now")
    stand.clock.advance(1.0)

    until(lambda: stand.metric("clock_steps_total") == 1, "the step is counted")


def test_pending_messages_survive_a_restart_and_none_leaves_early(stand: Stand) -> None:
    stand.publish_in(*[float(n) for n in range(100, 200)])
    stand.accepted(100)

    stand.restart()
    assert stand.bodies() == []
    assert stand.stats()["pending"] == 100
    stand.clock.advance(150.0)
    until(lambda: len(stand.receive()) == 51, "those that are due have arrived")
    stand.restart()
    stand.clock.advance(150.0)
    until(lambda: len(stand.receive()) == 100, "the others too")
    stand.restart()

    assert sorted(int(body) for body in stand.bodies()) == list(range(100))


def test_a_message_due_while_the_node_was_down_leaves_at_once_after_the_start(stand: Stand) -> None:
    stand.publish_in(30.0)
    stand.accepted(1)
    stand.stop()

    stand.clock.advance(3 * HOUR_S)
    stand.node = stand._start()

    until(lambda: stand.bodies() == [b"0"], "it has arrived")
    lateness = until(lambda: stand.stats()["lateness"], "its lateness is known")
    assert lateness["max_ms"] == pytest.approx((3 * HOUR_S - 30) * 1000, abs=6000)


def test_messages_of_one_ordering_key_leave_in_order_of_time_then_arrival(stand: Stand) -> None:
    stand.publish_in(5.0, 3.0, 3.0, 4.0, 1.0, ordering_key="k")
    stand.accepted(5)

    stand.clock.advance(10.0)

    until(lambda: stand.bodies() == [b"4", b"1", b"2", b"3", b"0"], "all have arrived in order")
    assert {message.ordering_key for message in stand.receive()} == {"k"}


def test_the_next_due_time_is_shown_however_far_ahead_it_is(stand: Stand) -> None:
    stand.publish_in(30 * 24 * HOUR_S, 20 * 24 * HOUR_S, 20 * 24 * HOUR_S + 1)
    stand.accepted(3)
    assert until(lambda: stand.stats()["next_due"], "it is shown") == "2026-01-21T00:00:00.000Z"

    stand.restart()
    stand.clock.advance(3.0)

    assert stand.stats()["next_due"] == "2026-01-21T00:00:00.000Z"
