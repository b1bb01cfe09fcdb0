"""Ordering keys in detail: affinity, out-of-order acks, redelivery, back-off, dead letters, and a fuzz."""

from __future__ import annotations

import random

import pytest

from tests.contract.pubsub.client import bodies, eventually
from tests.unit.emulator.conftest import PROJECT, Bench


@pytest.fixture
def ordered(bench: Bench) -> str:
    return bench.emulator.create_subscription(PROJECT, "ordered", "orders", enable_message_ordering=True)


def test_a_key_stays_with_the_stream_that_holds_it(bench: Bench, ordered: str) -> None:
    first = bench.client.stream(ordered)
    bench.client.publish(bench.topic, b"1", ordering_key="k")
    held = first.wait_for(1)
    second = bench.client.stream(ordered)
    eventually(lambda: bench.emulator.counters()["streams_open"] == 2, "both streams open")
    for number in range(2, 30):
        bench.client.publish(bench.topic, b"%d" % number, ordering_key="k")
    assert bodies(first.wait_for(29)) == [b"%d" % number for number in range(1, 30)]
    bench.client.ack(ordered, first.messages)
    first.close()
    bench.client.publish(bench.topic, b"30", ordering_key="k")
    assert bodies(second.wait_for(1)) == [b"30"]
    assert len(held) == 1


def test_an_ack_before_an_earlier_one_waits_for_it(bench: Bench, ordered: str) -> None:
    bench.client.publish(bench.topic, b"1", b"2", b"3", ordering_key="k")
    one, two, three = bench.client.pull(ordered)
    bench.client.ack(ordered, [two])
    bench.client.nack(ordered, [one])
    assert bodies(bench.client.pull(ordered)) == [b"1", b"2", b"3"]
    assert three.message.data == b"3"


def test_an_ack_of_the_first_frees_those_acked_behind_it(bench: Bench, ordered: str) -> None:
    bench.client.publish(bench.topic, b"1", b"2", b"3", ordering_key="k")
    one, two, three = bench.client.pull(ordered)
    bench.client.ack(ordered, [two])
    bench.client.ack(ordered, [one])
    bench.client.nack(ordered, [three])
    assert bodies(bench.client.pull(ordered)) == [b"3"]


def test_a_nack_in_the_middle_keeps_the_earlier_ones_out(bench: Bench, ordered: str) -> None:
    stream = bench.client.stream(ordered)
    bench.client.publish(bench.topic, b"1", b"2", b"3", ordering_key="k")
    one, two, _ = stream.wait_for(3)
    bench.client.nack(ordered, [two])
    assert bodies(stream.wait_for(5)) == [b"1", b"2", b"3", b"2", b"3"]
    bench.client.ack(ordered, [one])
    assert bench.emulator.counters()["acked"] == 1


def test_an_expired_lease_brings_back_the_key_in_order(bench: Bench, ordered: str) -> None:
    bench.client.publish(bench.topic, b"1", b"2", ordering_key="k")
    bench.client.publish(bench.topic, b"plain")
    assert len(bench.client.pull(ordered)) == 3
    bench.clock.advance(11)
    back = bodies(bench.client.pull(ordered))
    assert [body for body in back if body != b"plain"] == [b"1", b"2"]
    assert len(back) == 3


def test_the_retry_policy_holds_back_the_whole_key_and_no_other(bench: Bench) -> None:
    name = bench.emulator.create_subscription(
        PROJECT, "slow", "orders", enable_message_ordering=True, retry_policy={"minimum_backoff": "5s"}
    )
    bench.client.publish(bench.topic, b"1", b"2", ordering_key="k")
    bench.client.nack(name, bench.client.pull(name, 1))
    bench.client.publish(bench.topic, b"3", ordering_key="k")
    bench.client.publish(bench.topic, b"other", ordering_key="o")
    assert bodies(bench.client.pull(name)) == [b"other"]
    bench.clock.advance(5.1)
    assert bodies(bench.client.pull(name)) == [b"1", b"2", b"3"]


def test_a_dead_lettered_message_lets_its_key_go_on(bench: Bench) -> None:
    dead = bench.emulator.create_topic(PROJECT, "dead")
    grave = bench.emulator.create_subscription(PROJECT, "grave", "dead", enable_message_ordering=True)
    name = bench.emulator.create_subscription(
        PROJECT, "fragile", "orders", enable_message_ordering=True, dead_letter_policy={"dead_letter_topic": dead}
    )
    bench.client.publish(bench.topic, b"bad", b"good", ordering_key="k")
    for _ in range(5):
        bench.client.nack(name, bench.client.pull(name, 1))
    rest = bench.client.pull(name)
    assert bodies(rest) == [b"good"]
    buried = bench.client.pull(grave)
    assert [(item.message.data, item.message.ordering_key) for item in buried] == [(b"bad", "k")]


def test_retention_takes_from_the_front_of_a_key(bench: Bench) -> None:
    name = bench.emulator.create_subscription(
        PROJECT, "short", "orders", enable_message_ordering=True, message_retention_duration="600s"
    )
    bench.client.publish(bench.topic, b"old", ordering_key="k")
    bench.clock.advance(400)
    bench.client.publish(bench.topic, b"young", ordering_key="k")
    bench.clock.advance(201)
    assert bodies(bench.client.pull(name)) == [b"young"]


@pytest.mark.parametrize("seed", range(5))
def test_under_random_nacks_and_expiries_each_key_is_acked_in_order_and_nothing_is_lost(
    bench: Bench, ordered: str, seed: int
) -> None:
    chance = random.Random(seed)
    keys = ["a", "b", "c"]
    published = {key: [b"%s%d" % (key.encode(), number) for number in range(20)] for key in keys}
    for number in range(20):
        for key in keys:
            bench.client.publish(bench.topic, published[key][number], ordering_key=key)
    delivered: dict[str, list[bytes]] = {key: [] for key in keys}
    acked: set[bytes] = set()
    for _ in range(2_000):
        for item in bench.client.pull(ordered, chance.randint(1, 9)):
            key, body = item.message.ordering_key, item.message.data
            place = published[key].index(body)
            assert set(published[key][:place]) <= set(delivered[key]), "a message came before an earlier one"
            delivered[key].append(body)
            fate = chance.random()
            if fate < 0.6:
                bench.client.ack(ordered, [item])
                acked.add(body)
            elif fate < 0.8:
                bench.client.nack(ordered, [item])
        if chance.random() < 0.1:
            bench.clock.advance(11)
        if bench.emulator.counters()["backlog"] == 60 and not bench.emulator.counters()["outstanding"]:
            break  # What is left is the plain subscription's copy.
    assert acked == {body for some in published.values() for body in some}
