"""The measures: each is a function on the stand that returns its figures, in units that end the names."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.benchmarks.figures import quantiles
from tests.benchmarks.stand import RAW, SOURCE, Cpu, Stand
from tests.benchmarks.wire import now_us
from tests.blackbox.processes import wait_for

Figures = dict[str, Any]

HOUR_MS: Final = 3_600_000
PACED_PER_S: Final = 500
RATE_MIN_PER_S: Final = 2_000
"""Slower than this a measure counts as stuck."""
ACCEPT_PERIOD_S: Final = 0.01
ACCEPT_POLL_S: Final = 0.0005
ACCEPT_PATIENCE_S: Final = 10.0


class Wrong(RuntimeError):
    """Messages were lost, early, altered or strange: the figures would be worth nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured."""

    throughput: int
    drain: int
    pending: int
    paced_s: int
    accepts: int


QUICK: Final = Plan(throughput=100_000, drain=100_000, pending=200_000, paced_s=4, accepts=100)
FULL: Final = Plan(throughput=300_000, drain=1_000_000, pending=1_000_000, paced_s=30, accepts=500)


def baseline(stand: Stand, plan: Plan) -> Figures:
    """Publish, receive and ack through the broker alone."""
    return _throughput(stand, RAW, plan.throughput)


def throughput(stand: Stand, plan: Plan) -> Figures:
    """Publish, accept, release and receive messages that are already due."""
    return _throughput(stand, SOURCE, plan.throughput)


def lateness(stand: Stand, plan: Plan) -> Figures:
    """How late each message is at a steady 500 messages a second.

    Three views: publish time set by the broker, arrival at the consumer, and what the node says of its recent releases.
    """
    count = PACED_PER_S * plan.paced_s
    first = stand.take_seqs(count)
    stand.consumer.ask("expect", first_seq=first, count=count)
    topic = stand.topic(SOURCE)
    before = stand.cpu()
    stand.producer.ask(
        "paced",
        timeout_s=plan.paced_s + 60,
        topic=topic,
        first_seq=first,
        count=count,
        per_second=PACED_PER_S,
        ahead_ms=[500, 1500],
    )
    _wait_arrived(stand, count)
    after = stand.cpu()
    report = _finish(stand, count)
    return {
        "messages": count,
        "lateness_ms": report["lateness_ms"],
        "arrival_ms": report["arrival_ms"],
        "by_the_node_ms": stand.stats()["lateness"] or {},
        "repeats": report["repeats"],
        "cpu_us_per_message": _cost(before, after, count),
    }


def accept(stand: Stand, plan: Plan) -> Figures:
    """From the publishing of a single message to its ack at the source, by the broker's own count of acks.

    The count is polled, so each figure is up to about a millisecond too long, never too short.
    """
    latencies_ms = []
    for _ in range(plan.accepts):
        seq = stand.take_seqs(1)
        due_ms = now_us() // 1000 + 48 * HOUR_MS
        stand.producer.ask("build", topic=stand.topic(SOURCE), first_seq=seq, count=1, due_ms=due_ms)
        acked = stand.control.counters()["acked"]
        began_us = stand.producer.ask("burst")["began_us"]
        deadline_s = time.monotonic() + ACCEPT_PATIENCE_S
        while stand.control.counters()["acked"] <= acked:
            if time.monotonic() > deadline_s:
                raise Wrong(f"a single message was not acked within {ACCEPT_PATIENCE_S:.0f} s")
            time.sleep(ACCEPT_POLL_S)
        latencies_ms.append((now_us() - began_us) / 1000)
        time.sleep(ACCEPT_PERIOD_S)
    return {"messages": plan.accepts, "accept_ms": quantiles(latencies_ms)}


def fill(stand: Stand, plan: Plan) -> Figures:
    """Make messages pending: their dues are spread over a day that begins in an hour."""
    count = plan.pending
    before = stand.stats()["pending"]
    first = stand.take_seqs(count)
    due_ms = now_us() // 1000 + HOUR_MS
    _build(stand, SOURCE, first, count, due_ms, spread_ms=24 * HOUR_MS)
    began = stand.producer.ask("burst", timeout_s=_patience_s(count))["began_us"]
    stand.wait_pending(before + count, _patience_s(count))
    return {"messages": count, "accepted_per_s": count / ((now_us() - began) / 1e6)}


def drain(stand: Stand, plan: Plan) -> Figures:
    """Everything due in one and the same second: how soon it begins and how long it takes."""
    count = plan.drain
    before = stand.stats()["pending"]
    first = stand.take_seqs(count)
    # Time to accept them all before they are due, at a modest rate.
    due_ms = (now_us() // 1_000_000 + 5 + count // 20_000) * 1000
    _build(stand, SOURCE, first, count, due_ms)
    stand.consumer.ask("expect", first_seq=first, count=count)
    stand.producer.ask("burst", timeout_s=_patience_s(count))
    stand.wait_pending(before + count, _patience_s(count))
    margin_s = due_ms / 1000 - time.time()
    if margin_s < 0:
        raise Wrong(f"accepting {count} messages took {-margin_s:.1f} s longer than planned: they were due before")
    time.sleep(margin_s)
    report = _finish(stand, count)
    taken_s = report["last_us"] / 1e6 - due_ms / 1000
    return {
        "messages": count,
        "pending_beside": before,
        "first_release_ms": report["first_publish_us"] / 1000 - due_ms,
        "first_arrival_ms": report["first_us"] / 1000 - due_ms,
        "last_arrival_s": taken_s,
        "drained_per_s": count / taken_s,
        "sustained_per_s": report["sustained_per_s"],
        "repeats": report["repeats"],
    }


def memory(stand: Stand, plan: Plan) -> Figures:
    """Resident memory of the node's processes with what is pending now."""
    return {
        "pending": stand.stats()["pending"],
        **{
            f"{role}_{kind}_mib": value
            for role, held in stand.memory().items()
            for kind, value in (("rss", held.now_mib), ("peak", held.peak_mib))
        },
    }


def restart(stand: Stand, plan: Plan) -> Figures:
    """A graceful stop, and a start until `/readyz` answers 200, with what is pending now."""
    # What has just arrived may still be waiting for its Confirm; the stop would finish it.
    wait_for(lambda: stand.stats()["in_flight"] == 0, _patience_s(0), "nothing is in flight")
    pending = stand.stats()["pending"]
    began_s = time.monotonic()
    code = stand.node.stop()
    stopped_s = time.monotonic() - began_s
    if code != 0:
        raise Wrong(f"the node ended with {code} after SIGTERM")
    ready_s = stand.node.start()
    after = stand.stats()["pending"]
    if after != pending:
        raise Wrong(f"{pending} messages were pending before the restart, {after} after it")
    return {"pending": pending, "stop_s": stopped_s, "ready_s": ready_s}


def _throughput(stand: Stand, topic: str, count: int) -> Figures:
    first = stand.take_seqs(count)
    _build(stand, topic, first, count, (now_us() // 1_000_000 - 1) * 1000)
    stand.consumer.ask("expect", first_seq=first, count=count)
    before = stand.cpu()
    stand.producer.order("burst")
    _wait_arrived(stand, count)
    after = stand.cpu()
    began_us = stand.producer.answer(_patience_s(count))["began_us"]
    report = _finish(stand, count)
    return {
        "messages": count,
        "per_s": count / ((report["last_us"] - began_us) / 1e6),
        "sustained_per_s": report["sustained_per_s"],
        "repeats": report["repeats"],
        "cpu_us_per_message": _cost(before, after, count),
    }


def _cost(before: Cpu, after: Cpu, count: int) -> dict[str, float]:
    return {role: (after[role] - before[role]) * 1e6 / count for role in after}


def _build(stand: Stand, topic: str, first: int, count: int, due_ms: int, spread_ms: int = 0) -> None:
    stand.producer.ask(
        "build",
        timeout_s=30 + count / 20_000,
        topic=stand.topic(topic),
        first_seq=first,
        count=count,
        due_ms=due_ms,
        spread_ms=spread_ms,
    )


def _finish(stand: Stand, count: int) -> dict[str, Any]:
    """Wait for the arrivals and check them: none lost, none early, none strange."""
    deadline_s = time.monotonic() + _patience_s(count)
    while True:
        complete = _wait_arrived(stand, count)
        report = stand.consumer.ask("report", timeout_s=30 + count / 20_000)
        # Repeats can make the count complete while single messages are still on their way.
        if not report["missing"] or not complete or time.monotonic() > deadline_s:
            break
        time.sleep(0.1)
    if report["missing"]:
        raise Wrong(f"{report['missing']} of {count} messages did not arrive in time")
    if report["strays"]:
        raise Wrong(f"{report['strays']} messages arrived that do not belong to this measure")
    if report["early"]:
        raise Wrong(f"{report['early']} messages were released before they were due: {report['lateness_ms']}")
    return report


def _wait_arrived(stand: Stand, count: int) -> bool:
    patience_s = _patience_s(count)
    answer = stand.consumer.ask("arrived", timeout_s=patience_s + 5, patience_s=patience_s)
    return bool(answer["complete"])


def _patience_s(count: int) -> float:
    return 30 + count / RATE_MIN_PER_S


Measure = Callable[[Stand, Plan], Figures]
