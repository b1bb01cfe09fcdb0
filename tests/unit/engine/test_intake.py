"""What becomes of received messages, by the policy of their channel."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from engine.commands import Accept
from engine.intake import merge_accepts, plan_accept
from engine.model import (
    DAY_MS,
    Channel,
    Destination,
    DestinationConfig,
    Disposition,
    Policy,
    Source,
    SourceConfig,
    TimeUnit,
)

NOW_MS = 1_767_225_600_000
SUBSCRIPTION = "projects/p/subscriptions/s"


def a_channel(**policy: Any) -> Channel:
    return Channel(
        uid=7,
        id="orders",
        name="orders",
        source=Source(config=SourceConfig(project_id="p", subscription_id="sub")),
        destination=Destination(config=DestinationConfig(project_id="p", topic_id="top")),
        policy=Policy(**policy),
    )


def plan(channel: Channel, *messages: dict[str, Any]) -> Accept:
    return plan_accept(
        channel,
        stamp_ms=NOW_MS,
        subscription=SUBSCRIPTION,
        message_ids=[str(i) for i in range(len(messages))],
        publish_us=[m.get("publish_us", NOW_MS * 1000) for m in messages],
        ordering_keys=[m.get("ordering_key", "") for m in messages],
        available_at=[m.get("at") for m in messages],
        inputs=[m.get("inputs") for m in messages],
        payloads=[b"x"] * len(messages),
        unreadable={i: m["unreadable"] for i, m in enumerate(messages) if "unreadable" in m},
    )


def test_messages_with_good_times_become_pending_at_those_times() -> None:
    accept = plan(
        a_channel(), {"at": "1767225601"}, {"at": "1767225601.5"}, {"at": "2026-01-01T00:00:03Z"}, {"at": "-5"}
    )

    assert accept.dues_ms == [NOW_MS + 1000, NOW_MS + 1500, NOW_MS + 3000, -5000]
    assert (accept.faults, accept.discards) == ({}, {})


def test_a_delay_counts_from_the_publish_time_at_the_source() -> None:
    accept = plan(a_channel(), {"inputs": {"scheduler-delay": "1m"}, "publish_us": (NOW_MS - 5000) * 1000 + 1})

    assert accept.dues_ms == [NOW_MS - 5000 + 1 + 60_000]


@pytest.mark.parametrize(
    ("message", "code", "says"),
    [
        ({}, "MISSING_TIME", "neither available_at nor scheduler-delay"),
        ({"at": ""}, "BAD_TIME", "empty"),
        ({"at": "1767225600000"}, "BAD_TIME", "looks like milliseconds"),
        ({"at": "5000000000"}, "TOO_FAR", "max_delay of 3650d"),
        ({"at": "99999999999"}, "TOO_FAR", "max_delay"),
        ({"inputs": {"scheduler-delay": "4000d"}}, "TOO_FAR", "4000d is further ahead"),
        ({"inputs": {"scheduler-delay": "soon"}}, "BAD_TIME", "scheduler-delay: 'soon'"),
        ({"at": "1", "inputs": {"scheduler-delay": "1"}}, "BOTH_TIMES", "only one"),
        ({"at": "1767225601", "inputs": {"scheduler-op": "cancel"}}, "UNSUPPORTED_INPUT", "scheduler-op"),
        ({"at": "1767225601", "inputs": {"scheduler-expires-at": "1"}}, "UNSUPPORTED_INPUT", "scheduler-expires-at"),
        ({"at": "1767225601", "inputs": {"scheduler-key": ""}}, "BAD_KEY", "0 bytes"),
        ({"at": "1767225601", "inputs": {"scheduler-key": "é" * 129}}, "BAD_KEY", "258 bytes"),
        ({"at": "1767225601", "unreadable": "cut off"}, "UNREADABLE", "cut off"),
        ({"unreadable": "cut off"}, "UNREADABLE", "cut off"),
    ],
)
def test_what_cannot_be_honoured_is_quarantined_with_the_reason(message: dict[str, Any], code: str, says: str) -> None:
    accept = plan(a_channel(), message, {"at": "1767225601"})

    assert set(accept.faults) == {0}
    assert accept.faults[0].code == code
    assert says in accept.faults[0].reason
    assert accept.dues_ms == [0, NOW_MS + 1000]


def test_the_channel_decides_what_becomes_of_missing_and_bad_times() -> None:
    messages = [{}, {"at": "soon"}]

    released = plan(a_channel(missing_time=Disposition.RELEASE, bad_time=Disposition.RELEASE), *messages)
    dropped = plan(a_channel(missing_time=Disposition.DISCARD, bad_time=Disposition.DISCARD), *messages)

    assert (released.dues_ms, released.faults, released.discards) == ([NOW_MS, NOW_MS], {}, {})
    assert (dropped.faults, dropped.discards) == ({}, {0: "MISSING_TIME", 1: "BAD_TIME"})


def test_a_message_that_came_round_in_a_loop_is_discarded_whatever_the_policy() -> None:
    ours, others = {"inputs": {"scheduler-channel": "orders"}}, {"inputs": {"scheduler-channel": "another"}}

    accept = plan(a_channel(missing_time=Disposition.RELEASE), ours, others)

    assert accept.discards == {0: "LOOP"}
    assert accept.dues_ms[1] == NOW_MS


def test_unit_auto_reads_numbers_by_magnitude() -> None:
    accept = plan(a_channel(time_unit=TimeUnit.AUTO), {"at": "1767225601000"}, {"at": "1767225601"})

    assert accept.dues_ms == [NOW_MS + 1000, NOW_MS + 1000]


def test_max_delay_is_the_channels_own() -> None:
    accept = plan(a_channel(max_delay_ms=DAY_MS), {"at": "1767312000"}, {"at": "1767312001"})

    assert accept.dues_ms[0] == NOW_MS + DAY_MS
    assert accept.faults[1].code == "TOO_FAR"


def test_keys_are_kept_by_position() -> None:
    accept = plan(
        a_channel(), {"at": "1"}, {"at": "1", "inputs": {"scheduler-key": "a"}}, {"at": "1", "ordering_key": "k"}
    )

    assert (accept.keys, accept.ordering_keys) == ({1: "a"}, {2: "k"})


def test_merging_keeps_every_message_and_shifts_what_is_given_by_position() -> None:
    messages = [
        {"at": "1767225601", "ordering_key": "k"},
        {"at": "soon"},
        {"inputs": {"scheduler-channel": "orders"}},
        {"at": "1767225602", "inputs": {"scheduler-key": "a"}},
    ]
    whole = plan(a_channel(), *messages)
    parts = [plan(a_channel(), *messages[:1]), plan(a_channel(), *messages[1:3]), plan(a_channel(), *messages[3:])]

    merged = merge_accepts(parts)

    assert msgspec.structs.replace(merged, source_ids=whole.source_ids) == whole
