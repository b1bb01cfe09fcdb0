"""What a stop and a start change: nothing but the lateness of what was due in between."""

from __future__ import annotations

import pytest

from tests.blackbox.processes import wait_for
from tests.blackbox.pubsub import message
from tests.integration.relay.site import Relay, at, now_ms, numbered

BURST = 20_000


def test_pending_messages_survive_a_restart_overdue_ones_come_once_and_no_other_comes_early(relay: Relay) -> None:
    downtime = numbered("due while down", 100)
    future = numbered("due later", 300)
    overdue_ms = now_ms() + 1000
    relay.send(*downtime, due_ms=overdue_ms)
    future_ms = now_ms() + 7000
    relay.send(*future, due_ms=future_ms)
    relay.wait_stat("pending", len(downtime) + len(future))
    assert relay.node.stop() == 0
    wait_for(lambda: now_ms() > overdue_ms, 5, "the first ones are due")
    relay.node.start()
    ready_ms = now_ms()
    relay.out.wait_data(downtime, 5)
    assert all(a.publish_us / 1000 < ready_ms + 3000 for a in relay.out.arrivals)
    relay.out.wait_data(future, 20)
    arrivals = relay.out.arrivals
    assert len(arrivals) == len(downtime) + len(future)
    late = [a for a in arrivals if a.data in set(future)]
    assert all(a.publish_us >= future_ms * 1000 for a in late)
    assert relay.stats()["released"] == len(arrivals)


@pytest.mark.timeout(90)
def test_a_stop_in_the_middle_of_a_burst_repeats_nothing(relay: Relay) -> None:
    bodies = numbered("burst", BURST)
    due_ms = now_ms() + 3000
    relay.publish([message(body, available_at=at(due_ms)) for body in bodies], per_request=1000)
    relay.wait_stat("pending", BURST)
    wait_for(lambda: len(relay.out) > 0, 15, "the burst has begun")
    assert relay.node.stop() == 0
    stopped = len(relay.out)
    relay.node.start()
    arrivals = relay.out.wait_data(bodies, 30)
    relay.wait_stat("pending", 0)
    assert len(arrivals) == BURST, f"{len(arrivals) - BURST} repeats; {stopped} had come before the stop"
    assert relay.stats()["released"] == BURST


def test_a_restart_brings_nothing_back_that_was_released(relay: Relay) -> None:
    bodies = numbered("once", 1000)
    relay.send(*bodies)
    relay.out.wait_data(bodies, 10)
    relay.wait_stat("pending", 0)
    assert relay.node.stop() == 0
    relay.node.start()
    relay.wait_state("active")
    relay.send(b"marker")
    relay.out.wait_data([b"marker"], 10)
    assert len(relay.out) == len(bodies) + 1
