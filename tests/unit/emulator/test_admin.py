"""Administration beyond the common contract: what is refused loudly, texts, snapshots and seeking by the clock."""

from __future__ import annotations

import pytest

from tests.contract.pubsub.client import bodies, pb, status_of
from tests.unit.emulator.conftest import PROJECT, Bench

SUBSCRIPTION, SNAPSHOT, TOPIC = pb("Subscription"), pb("Snapshot"), pb("Topic")

NOT_HERE = {
    "push": {"push_config": {"push_endpoint": "https://example.com/push"}},
    "bigquery": {"bigquery_config": {"table": "p.d.t"}},
    "cloud storage": {"cloud_storage_config": {"bucket": "b"}},
    "transforms": {"message_transforms": [{"javascript_udf": {"function_name": "f"}}]},
}


@pytest.mark.parametrize("case", NOT_HERE)
def test_a_subscription_that_asks_for_what_is_not_here_is_refused(bench: Bench, case: str) -> None:
    name = f"projects/{PROJECT}/subscriptions/special"
    code, text = status_of(lambda: bench.client.CreateSubscription(name=name, topic=bench.topic, **NOT_HERE[case]))
    assert code == "UNIMPLEMENTED"
    assert "does not implement" in text


@pytest.mark.parametrize(
    "fields",
    [
        {"schema_settings": {"schema": "projects/p/schemas/s"}},
        {"kms_key_name": "k"},
        {"ingestion_data_source_settings": {"aws_kinesis": {"stream_arn": "x"}}},
    ],
)
def test_a_topic_that_asks_for_what_is_not_here_is_refused(bench: Bench, fields: dict[str, object]) -> None:
    call = lambda: bench.client.CreateTopic(name=f"projects/{PROJECT}/topics/special", **fields)  # noqa: E731
    assert status_of(call)[0] == "UNIMPLEMENTED"


def test_services_that_are_not_here_say_so(bench: Bench) -> None:
    for method in ("/google.pubsub.v1.SchemaService/ListSchemas", "/google.iam.v1.IAMPolicy/GetIamPolicy"):
        code, text = status_of(lambda method=method: bench.client.channel.unary_unary(method)(b"", timeout=5))
        assert code == "UNIMPLEMENTED"
        assert "does not implement" in text


def test_push_can_be_left_off_but_not_set(bench: Bench) -> None:
    bench.client.ModifyPushConfig(subscription=bench.subscription)
    call = lambda: bench.client.ModifyPushConfig(  # noqa: E731
        subscription=bench.subscription, push_config={"push_endpoint": "https://example.com"}
    )
    assert status_of(call)[0] == "UNIMPLEMENTED"


def test_a_subscription_without_a_name_gets_one(bench: Bench) -> None:
    made = bench.client.CreateSubscription(topic=bench.topic)
    assert made.name.startswith(f"projects/{PROJECT}/subscriptions/")
    assert bench.client.GetSubscription(subscription=made.name).topic == bench.topic


def test_an_update_of_what_cannot_change_says_so_as_the_service_does(bench: Bench) -> None:
    def update(path: str) -> tuple[str, str]:
        return status_of(
            lambda: bench.client.UpdateSubscription(
                subscription=SUBSCRIPTION(name=bench.subscription), update_mask={"paths": [path]}
            )
        )

    prefix = "Invalid update_mask provided in the UpdateSubscriptionRequest:"
    assert update("filter") == (
        "INVALID_ARGUMENT",
        f"{prefix} the 'filter' field in the Subscription is not mutable.",
    )
    assert update("pushConfig") == (
        "INVALID_ARGUMENT",
        f"{prefix} pushConfig is not a known Subscription field. Note that field paths must be of the form "
        f"'push_config' rather than 'pushConfig'.",
    )
    assert update("dead_letter_policy.nonsense")[0] == "INVALID_ARGUMENT"
    assert update("labels.x.y")[0] == "INVALID_ARGUMENT"


def test_a_part_of_a_policy_can_be_updated(bench: Bench) -> None:
    dead = bench.emulator.create_topic(PROJECT, "dead")
    name = bench.emulator.create_subscription(
        PROJECT, "fragile", "orders", dead_letter_policy={"dead_letter_topic": dead, "max_delivery_attempts": 9}
    )
    bench.client.UpdateSubscription(
        subscription=SUBSCRIPTION(name=name, dead_letter_policy={"max_delivery_attempts": 6}),
        update_mask={"paths": ["dead_letter_policy.max_delivery_attempts"]},
    )
    policy = bench.client.GetSubscription(subscription=name).dead_letter_policy
    assert (policy.dead_letter_topic, policy.max_delivery_attempts) == (dead, 6)


def test_an_updated_deadline_applies_to_the_next_delivery(bench: Bench) -> None:
    bench.client.UpdateSubscription(
        subscription=SUBSCRIPTION(name=bench.subscription, ack_deadline_seconds=100),
        update_mask={"paths": ["ack_deadline_seconds"]},
    )
    bench.client.publish(bench.topic, b"x")
    bench.client.pull(bench.subscription)
    bench.clock.advance(99)
    assert bench.client.pull(bench.subscription) == []
    bench.clock.advance(2)
    assert len(bench.client.pull(bench.subscription)) == 1


def test_an_expiration_policy_without_a_time_means_never(bench: Bench) -> None:
    bench.client.UpdateSubscription(
        subscription=SUBSCRIPTION(name=bench.subscription, expiration_policy={}),
        update_mask={"paths": ["expiration_policy"]},
    )
    got = bench.client.GetSubscription(subscription=bench.subscription)
    assert got.HasField("expiration_policy")
    assert not got.expiration_policy.HasField("ttl")


def test_page_tokens_and_sizes_that_make_no_sense_are_refused(bench: Bench) -> None:
    project = f"projects/{PROJECT}"
    for fields in ({"page_token": "€"}, {"page_size": -1}, {"project": "demo"}):
        call = lambda fields=fields: bench.client.ListTopics(**{"project": project, **fields})  # noqa: E731
        assert status_of(call)[0] == "INVALID_ARGUMENT"


def test_bad_labels_are_refused(bench: Bench) -> None:
    for labels in ({"Upper": "x"}, {"ok": "Upper"}, {"": "x"}, {"k": "v" * 64}):
        call = lambda labels=labels: bench.client.CreateTopic(name=f"projects/{PROJECT}/topics/l", labels=labels)  # noqa: E731
        assert status_of(call)[0] == "INVALID_ARGUMENT"


# Snapshots and Seek


def test_a_snapshot_lives_seven_days_less_the_age_of_its_oldest_message(bench: Bench) -> None:
    name = f"projects/{PROJECT}/snapshots/snap"
    bench.client.publish(bench.topic, b"old")
    bench.clock.advance(86_400)
    made = bench.client.CreateSnapshot(name=name, subscription=bench.subscription)
    assert made.expire_time.ToNanoseconds() - bench.clock.now_ns() == 6 * 86_400 * 10**9
    bench.clock.advance(6 * 86_400 - 1)
    assert bench.client.GetSnapshot(snapshot=name).name == name
    bench.clock.advance(2)
    assert status_of(lambda: bench.client.GetSnapshot(snapshot=name))[0] == "NOT_FOUND"
    assert bench.emulator.counters()["held_bytes"] == 0


def test_a_snapshot_that_would_live_less_than_an_hour_is_refused(bench: Bench) -> None:
    bench.client.publish(bench.topic, b"old")
    bench.clock.advance(7 * 86_400 - 3_000)
    name = f"projects/{PROJECT}/snapshots/snap"
    call = lambda: bench.client.CreateSnapshot(name=name, subscription=bench.subscription)  # noqa: E731
    assert status_of(call)[0] == "FAILED_PRECONDITION"


def test_a_snapshot_can_be_relabelled_and_its_messages_are_freed_with_it(bench: Bench) -> None:
    name = f"projects/{PROJECT}/snapshots/snap"
    bench.client.publish(bench.topic, b"1")
    bench.client.CreateSnapshot(name=name, subscription=bench.subscription)
    bench.client.publish(bench.topic, b"2")
    changed = bench.client.UpdateSnapshot(
        snapshot=SNAPSHOT(name=name, labels={"a": "b"}), update_mask={"paths": ["labels"]}
    )
    assert dict(changed.labels) == {"a": "b"}
    bench.client.ack(bench.subscription, bench.client.pull(bench.subscription))
    assert bench.emulator.counters()["held_bytes"] > 0
    bench.client.DeleteSnapshot(snapshot=name)
    assert bench.emulator.counters()["held_bytes"] == 0


def test_another_subscription_of_the_topic_can_seek_to_a_snapshot_and_its_filter_still_applies(bench: Bench) -> None:
    name = f"projects/{PROJECT}/snapshots/snap"
    bench.client.publish(bench.topic, b"red", color="red")
    bench.client.publish(bench.topic, b"blue", color="blue")
    bench.client.CreateSnapshot(name=name, subscription=bench.subscription)
    picky = bench.emulator.create_subscription(PROJECT, "picky", "orders", filter='attributes.color = "red"')
    bench.client.Seek(subscription=picky, snapshot=name)
    assert bodies(bench.client.pull(picky)) == [b"red"]


def test_a_snapshot_of_another_topic_is_refused(bench: Bench) -> None:
    bench.emulator.create_topic(PROJECT, "other")
    other = bench.emulator.create_subscription(PROJECT, "elsewhere", "other")
    name = f"projects/{PROJECT}/snapshots/snap"
    bench.client.CreateSnapshot(name=name, subscription=bench.subscription)
    assert status_of(lambda: bench.client.Seek(subscription=other, snapshot=name))[0] == "FAILED_PRECONDITION"
    assert status_of(lambda: bench.client.Seek(subscription=other))[0] == "INVALID_ARGUMENT"


def test_seeking_to_a_time_divides_at_that_time(bench: Bench) -> None:
    name = bench.emulator.create_subscription(PROJECT, "keeper", "orders", retain_acked_messages=True)
    for number in range(4):
        bench.client.publish(bench.topic, b"%d" % number)
        bench.clock.advance(60)
    bench.client.ack(name, bench.client.pull(name))
    middle_ns = bench.clock.now_ns() - 130 * 10**9
    time = {"seconds": middle_ns // 10**9, "nanos": middle_ns % 10**9}
    bench.client.Seek(subscription=name, time=time)
    again = bench.client.pull(name)
    assert bodies(again) == [b"2", b"3"]
    bench.client.nack(name, again[:1])
    bench.client.Seek(subscription=name, time={"seconds": 1})
    assert bodies(bench.client.pull(name)) == [b"0", b"1", b"2", b"3"]


def test_a_seek_ends_what_is_out_and_old_ids_mean_nothing(bench: Bench) -> None:
    name = bench.emulator.create_subscription(PROJECT, "keeper", "orders", retain_acked_messages=True)
    bench.client.publish(bench.topic, b"x")
    held = bench.client.pull(name)
    bench.client.Seek(subscription=name, time={"seconds": 1})
    again = bench.client.pull(name)
    bench.client.ack(name, held)
    bench.clock.advance(11)
    assert bodies(again) == bodies(bench.client.pull(name)) == [b"x"]


def test_a_topics_retention_lets_a_later_subscription_go_back(bench: Bench) -> None:
    bench.client.UpdateTopic(
        topic=TOPIC(name=bench.topic, message_retention_duration={"seconds": 3_600}),
        update_mask={"paths": ["message_retention_duration"]},
    )
    bench.client.publish(bench.topic, b"before")
    late = bench.emulator.create_subscription(PROJECT, "late", "orders")
    got = bench.client.GetSubscription(subscription=late)
    assert got.topic_message_retention_duration.seconds == 3_600
    bench.client.Seek(subscription=late, time={"seconds": 1})
    assert bodies(bench.client.pull(late)) == [b"before"]
    bench.clock.advance(3_601)
    later = bench.emulator.create_subscription(PROJECT, "later", "orders")
    bench.client.Seek(subscription=later, time={"seconds": 1})
    assert bench.client.pull(later) == []


def test_acked_messages_are_kept_no_longer_than_retention(bench: Bench) -> None:
    name = bench.emulator.create_subscription(
        PROJECT, "keeper", "orders", retain_acked_messages=True, message_retention_duration="600s"
    )
    bench.client.publish(bench.topic, b"x")
    bench.client.ack(name, bench.client.pull(name))
    bench.client.ack(bench.subscription, bench.client.pull(bench.subscription))
    assert bench.emulator.counters()["held_bytes"] > 0
    bench.clock.advance(601)
    assert bench.emulator.counters()["held_bytes"] == 0
    bench.client.Seek(subscription=name, time={"seconds": 1})
    assert bench.client.pull(name) == []
