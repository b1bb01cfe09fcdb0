"""Leases by the clock: deadlines, extension, redelivery, back-off, dead letters, retention, flow control."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.contract.pubsub.client import bodies, eventually
from tests.unit.emulator.conftest import PROJECT, Bench


def test_a_message_comes_back_when_its_deadline_has_passed_and_not_before(bench: Bench) -> None:
    bench.client.publish(bench.topic, b"one")
    first = bench.client.pull(bench.subscription)
    assert bodies(first) == [b"one"]
    bench.clock.advance(9.9)
    assert bench.client.pull(bench.subscription) == []
    bench.clock.advance(0.2)
    again = bench.client.pull(bench.subscription)
    assert bodies(again) == [b"one"]
    assert again[0].message.message_id == first[0].message.message_id
    assert again[0].ack_id != first[0].ack_id


def test_an_ack_of_an_expired_delivery_does_not_touch_the_next_one(bench: Bench) -> None:
    bench.client.publish(bench.topic, b"one")
    stale = bench.client.pull(bench.subscription)
    bench.clock.advance(11)
    assert len(bench.client.pull(bench.subscription)) == 1
    bench.client.ack(bench.subscription, stale)
    bench.client.nack(bench.subscription, stale)
    assert bench.emulator.counters()["outstanding"] == 1
    bench.clock.advance(11)
    assert len(bench.client.pull(bench.subscription)) == 1


def test_an_extended_lease_holds_from_the_time_of_the_extension(bench: Bench) -> None:
    bench.client.publish(bench.topic, b"one", b"two")
    held = bench.client.pull(bench.subscription)
    bench.clock.advance(8)
    bench.client.ModifyAckDeadline(subscription=bench.subscription, ack_ids=[held[0].ack_id], ack_deadline_seconds=30)
    bench.clock.advance(5)
    assert bodies(bench.client.pull(bench.subscription)) == [b"two"]
    bench.clock.advance(24.9)
    assert bodies(bench.client.pull(bench.subscription)) == [b"two"]
    bench.clock.advance(0.2)
    assert bodies(bench.client.pull(bench.subscription)) == [b"one"]


def test_an_extension_can_shorten_a_lease(bench: Bench) -> None:
    bench.emulator.create_subscription(PROJECT, "long", "orders", ack_deadline_seconds=600)
    name = f"projects/{PROJECT}/subscriptions/long"
    bench.client.publish(bench.topic, b"one")
    held = bench.client.pull(name)
    bench.client.ModifyAckDeadline(subscription=name, ack_ids=[held[0].ack_id], ack_deadline_seconds=1)
    bench.clock.advance(1.1)
    assert bodies(bench.client.pull(name)) == [b"one"]


def test_acked_messages_never_come_back(bench: Bench) -> None:
    bench.client.publish(bench.topic, b"one", b"two")
    bench.client.ack(bench.subscription, bench.client.pull(bench.subscription))
    bench.clock.advance(3_600)
    assert bench.client.pull(bench.subscription) == []
    assert bench.emulator.counters()["held_bytes"] == 0


def test_redelivered_messages_keep_their_order_and_come_first(bench: Bench) -> None:
    bench.client.publish(bench.topic, b"1", b"2", b"3")
    bench.client.pull(bench.subscription)
    bench.client.publish(bench.topic, b"4")
    bench.clock.advance(11)
    assert bodies(bench.client.pull(bench.subscription)) == [b"1", b"2", b"3", b"4"]


def test_the_retry_policy_holds_back_twice_as_long_each_time(bench: Bench) -> None:
    bench.emulator.create_subscription(
        PROJECT, "slow", "orders", retry_policy={"minimum_backoff": "2s", "maximum_backoff": "5s"}
    )
    name = f"projects/{PROJECT}/subscriptions/slow"
    bench.client.publish(bench.topic, b"one")
    for wait_s in (2, 4, 5, 5):
        bench.client.nack(name, bench.client.pull(name))
        bench.clock.advance(wait_s - 0.1)
        assert bench.client.pull(name) == []
        bench.clock.advance(0.2)
        assert bench.emulator.counters()["backlog"] == 2  # this one, and the other subscription's
    assert bodies(bench.client.pull(name)) == [b"one"]


def test_the_retry_policy_also_follows_an_expired_deadline(bench: Bench) -> None:
    bench.emulator.create_subscription(PROJECT, "slow", "orders", retry_policy={"minimum_backoff": "20s"})
    name = f"projects/{PROJECT}/subscriptions/slow"
    bench.client.publish(bench.topic, b"one")
    bench.client.pull(name)
    bench.clock.advance(10.1)
    bench.clock.advance(19)
    assert bench.client.pull(name) == []
    bench.clock.advance(1.1)
    assert bodies(bench.client.pull(name)) == [b"one"]


def test_a_message_goes_to_the_dead_letter_topic_after_its_last_attempt_fails(bench: Bench) -> None:
    dead = bench.emulator.create_topic(PROJECT, "dead")
    grave = bench.emulator.create_subscription(PROJECT, "grave", "dead")
    name = bench.emulator.create_subscription(
        PROJECT, "fragile", "orders", dead_letter_policy={"dead_letter_topic": dead, "max_delivery_attempts": 5}
    )
    bench.client.publish(bench.topic, b"one", color="red")
    attempts = []
    for number in range(5):
        delivered = bench.client.pull(name)
        attempts.append(delivered[0].delivery_attempt)
        published = delivered[0].message.publish_time
        if number % 2:
            bench.clock.advance(11)
        else:
            bench.client.nack(name, delivered)
    assert attempts == [1, 2, 3, 4, 5]
    assert bench.client.pull(name) == []
    buried = bench.client.pull(grave)
    assert bodies(buried) == [b"one"]
    assert buried[0].delivery_attempt == 0
    assert dict(buried[0].message.attributes) == {
        "color": "red",
        "CloudPubSubDeadLetterSourceDeliveryCount": "5",
        "CloudPubSubDeadLetterSourceSubscription": "fragile",
        "CloudPubSubDeadLetterSourceSubscriptionProject": PROJECT,
        "CloudPubSubDeadLetterSourceTopicPublishTime": published.ToDatetime().isoformat(timespec="microseconds") + "Z",
    }


def test_attempts_are_counted_per_subscription_and_only_with_a_dead_letter_policy(bench: Bench) -> None:
    dead = bench.emulator.create_topic(PROJECT, "dead")
    counted = bench.emulator.create_subscription(
        PROJECT, "counted", "orders", dead_letter_policy={"dead_letter_topic": dead}
    )
    other = bench.emulator.create_subscription(
        PROJECT, "other", "orders", dead_letter_policy={"dead_letter_topic": dead}
    )
    bench.client.publish(bench.topic, b"one")
    for name in (counted, bench.subscription):
        bench.client.nack(name, bench.client.pull(name))
    assert [bench.client.pull(name)[0].delivery_attempt for name in (counted, other, bench.subscription)] == [2, 1, 0]


def test_a_message_outlives_its_dead_letter_topic(bench: Bench) -> None:
    dead = bench.emulator.create_topic(PROJECT, "dead")
    name = bench.emulator.create_subscription(
        PROJECT, "fragile", "orders", dead_letter_policy={"dead_letter_topic": dead}
    )
    bench.client.DeleteTopic(topic=dead)
    bench.client.publish(bench.topic, b"one")
    for _ in range(7):
        bench.client.nack(name, bench.client.pull(name))
    assert bench.client.pull(name)[0].delivery_attempt == 8


def test_messages_are_dropped_when_retention_ends(bench: Bench) -> None:
    name = bench.emulator.create_subscription(PROJECT, "short", "orders", message_retention_duration="600s")
    bench.client.publish(bench.topic, b"old")
    bench.clock.advance(300)
    bench.client.publish(bench.topic, b"young")
    held = bench.client.pull(name, 1)
    bench.clock.advance(301)
    assert bodies(held) == [b"old"]
    assert bodies(bench.client.pull(name)) == [b"young"]


def test_publish_time_follows_the_clock(bench: Bench) -> None:
    bench.clock.advance(86_400)
    bench.client.publish(bench.topic, b"one")
    assert bench.client.pull(bench.subscription)[0].message.publish_time.ToNanoseconds() == bench.clock.now_ns()


def test_an_idle_subscription_expires_and_a_used_one_does_not(bench: Bench) -> None:
    idle = bench.emulator.create_subscription(PROJECT, "idle", "orders", expiration_policy={"ttl": "86400s"})
    used = bench.emulator.create_subscription(PROJECT, "used", "orders", expiration_policy={"ttl": "86400s"})
    never = bench.emulator.create_subscription(PROJECT, "never", "orders", expiration_policy={})
    bench.clock.advance(80_000)
    bench.client.pull(used)
    bench.clock.advance(80_000)
    known = [item.name for item in bench.client.ListSubscriptions(project=f"projects/{PROJECT}").subscriptions]
    assert idle not in known
    assert {used, never} <= set(known)


def test_a_stream_holds_no_more_messages_than_it_allows(bench: Bench) -> None:
    stream = bench.client.stream(bench.subscription, max_outstanding_messages=3)
    bench.client.publish(bench.topic, *[b"%d" % number for number in range(10)])
    held = stream.wait_for(3)
    bench.client.ack(bench.subscription, held[:1])
    held = stream.wait_for(4)
    bench.client.nack(bench.subscription, held[1:2])
    held = stream.wait_for(5)
    assert bench.emulator.counters()["outstanding"] == 3
    assert len(stream.messages) == 5
    bench.clock.advance(11)
    assert len(stream.wait_for(8)) == 8
    assert bench.emulator.counters()["outstanding"] == 3


def test_a_stream_holds_no_more_bytes_than_it_allows_but_for_the_last_message(bench: Bench) -> None:
    stream = bench.client.stream(bench.subscription, max_outstanding_bytes=2_500)
    for _ in range(5):
        bench.client.publish(bench.topic, bytes(1_000))
    held = stream.wait_for(2)
    assert len(held) in (2, 3)
    bench.client.ack(bench.subscription, held)
    assert len(stream.wait_for(4)) >= 4


def test_several_streams_share_a_backlog(bench: Bench) -> None:
    streams = [bench.client.stream(bench.subscription) for _ in range(2)]
    eventually(lambda: bench.emulator.counters()["streams_open"] == 2, "both streams open")
    bench.client.publish(bench.topic, *[b"x"] * 100)
    eventually(lambda: sum(len(stream.messages) for stream in streams) == 100, "all delivered")
    assert min(len(stream.messages) for stream in streams) > 0


def test_a_response_of_several_messages_stays_small_enough_for_default_channels(bench: Bench) -> None:
    for _ in range(6):
        bench.client.publish(bench.topic, bytes(1_500_000))
    stream = bench.client.stream(bench.subscription)
    stream.wait_for(6)
    assert max(response.ByteSize() for response in stream.responses) < 4_000_000


def test_what_a_closed_stream_held_comes_back_only_at_its_deadline(bench: Bench) -> None:
    stream = bench.client.stream(bench.subscription, stream_ack_deadline_seconds=20)
    bench.client.publish(bench.topic, b"one")
    stream.wait_for(1)
    stream.close()
    eventually(lambda: bench.emulator.counters()["streams_open"] == 0, "stream closed")
    bench.clock.advance(19)
    assert bench.client.pull(bench.subscription) == []
    bench.clock.advance(2)
    assert bodies(bench.client.pull(bench.subscription)) == [b"one"]


def test_the_stream_deadline_can_be_changed_and_acks_travel_on_the_stream(bench: Bench) -> None:
    stream = bench.client.stream(bench.subscription)
    bench.client.publish(bench.topic, b"probe")
    stream.send(stream_ack_deadline_seconds=60, ack_ids=[stream.wait_for(1)[0].ack_id])
    eventually(lambda: bench.emulator.counters()["acked"] == 1, "the ack on the stream")
    bench.client.publish(bench.topic, b"one", b"two", b"three")
    _, one, two, three = stream.wait_for(4)
    stream.send(ack_ids=[one.ack_id], modify_deadline_ack_ids=[two.ack_id], modify_deadline_seconds=[0])
    assert bodies(stream.wait_for(5))[-1] == b"two"
    assert bench.emulator.counters()["acked"] == 2
    stream.close()
    bench.clock.advance(59)
    assert bench.client.pull(bench.subscription) == []
    bench.clock.advance(2)
    assert sorted(bodies(bench.client.pull(bench.subscription))) == [b"three", b"two"]
    assert three.message.data == b"three"


def test_pull_waits_for_a_first_message(bench: Bench) -> None:
    held = bench.client.Pull(subscription=bench.subscription, max_messages=5)
    assert list(held.received_messages) == []
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(bench.client.Pull, subscription=bench.subscription, max_messages=5)
        eventually(lambda: bench.emulator.counters()["calls.Pull"] == 2, "the second Pull waits")
        bench.client.publish(bench.topic, b"one")
        assert bodies(waiting.result().received_messages) == [b"one"]
