"""Topics, subscriptions and snapshots: create, get, update, list, delete."""

from __future__ import annotations

import pytest

from tests.contract.pubsub.client import pb, status_of
from tests.contract.pubsub.conftest import Service

TOPIC, SUBSCRIPTION = pb("Topic"), pb("Subscription")


def test_a_topic_lives_from_create_to_delete(service: Service) -> None:
    client, name = service.client, f"projects/{service.project}/topics/life"
    assert client.CreateTopic(name=name, labels={"a": "b"}).name == name
    assert dict(client.GetTopic(topic=name).labels) == {"a": "b"}
    assert status_of(lambda: client.CreateTopic(name=name))[0] == "ALREADY_EXISTS"
    client.DeleteTopic(topic=name)
    for call in (client.GetTopic, client.DeleteTopic, client.ListTopicSubscriptions):
        assert status_of(lambda call=call: call(topic=name))[0] == "NOT_FOUND"


@pytest.mark.parametrize("identity", ["ab", "1abc", "goog-abc", "a b c", "a/b/c", "x" * 256, "", "наши"])
def test_bad_ids_are_refused(service: Service, identity: str) -> None:
    name = f"projects/{service.project}/topics/{identity}"
    assert status_of(lambda: service.client.CreateTopic(name=name))[0] == "INVALID_ARGUMENT"


@pytest.mark.parametrize("identity", ["abc", "A-_.~+%9", "x" * 255])
def test_good_ids_are_taken(service: Service, identity: str) -> None:
    name = f"projects/{service.project}/topics/{identity}"
    assert service.client.CreateTopic(name=name).name == name


def test_lists_are_sorted_pages_of_one_project(service: Service) -> None:
    client = service.client
    names = sorted(service.topic() for _ in range(5))
    client.CreateTopic(name=f"projects/{service.project}2/topics/other")
    got, token = [], ""
    for _ in range(3):
        page = client.ListTopics(project=f"projects/{service.project}", page_size=2, page_token=token)
        assert len(page.topics) <= 2
        got += [topic.name for topic in page.topics]
        token = page.next_page_token
    assert (sorted(got), token) == (names, "")


def test_a_topic_lists_its_subscriptions(service: Service) -> None:
    topic = service.topic()
    names = sorted(service.subscription(topic) for _ in range(3))
    service.subscription(service.topic())
    assert sorted(service.client.ListTopicSubscriptions(topic=topic).subscriptions) == names
    listed = service.client.ListSubscriptions(project=f"projects/{service.project}").subscriptions
    assert len(listed) == 4


def test_a_subscription_has_the_services_defaults(service: Service) -> None:
    topic = service.topic()
    got = service.client.GetSubscription(subscription=service.subscription(topic))
    assert got.topic == topic
    assert got.ack_deadline_seconds == 10
    assert got.message_retention_duration.seconds == 604_800
    assert not got.enable_message_ordering
    assert not got.retain_acked_messages


def test_a_subscription_keeps_what_it_was_given(service: Service) -> None:
    topic, dead = service.topic(), service.topic()
    name = service.subscription(
        topic,
        ack_deadline_seconds=77,
        retain_acked_messages=True,
        enable_message_ordering=True,
        labels={"x": "y"},
        message_retention_duration={"seconds": 1200},
        dead_letter_policy={"dead_letter_topic": dead, "max_delivery_attempts": 7},
        retry_policy={"minimum_backoff": {"seconds": 1}, "maximum_backoff": {"seconds": 9}},
        filter="attributes:a",
    )
    got = service.client.GetSubscription(subscription=name)
    assert (got.ack_deadline_seconds, got.filter, dict(got.labels)) == (77, "attributes:a", {"x": "y"})
    assert got.message_retention_duration.seconds == 1200
    assert (got.dead_letter_policy.dead_letter_topic, got.dead_letter_policy.max_delivery_attempts) == (dead, 7)
    assert (got.retry_policy.minimum_backoff.seconds, got.retry_policy.maximum_backoff.seconds) == (1, 9)
    assert (got.enable_message_ordering, got.retain_acked_messages) == (True, True)


def test_creating_a_subscription_twice_or_on_nothing_is_refused(service: Service) -> None:
    topic = service.topic()
    name = service.subscription(topic)
    assert status_of(lambda: service.client.CreateSubscription(name=name, topic=topic))[0] == "ALREADY_EXISTS"
    unknown = f"projects/{service.project}/topics/unknown"
    code, _ = status_of(lambda: service.client.CreateSubscription(name=name + "-2", topic=unknown))
    assert code == "NOT_FOUND"


BAD_SETTINGS = {
    "deadline below 10 s": {"ack_deadline_seconds": 9},
    "deadline above 600 s": {"ack_deadline_seconds": 601},
    "negative deadline": {"ack_deadline_seconds": -1},
    "retention below 10 min": {"message_retention_duration": {"seconds": 599}},
    "retention above 31 d": {"message_retention_duration": {"seconds": 31 * 86_400 + 1}},
    "back-off above 600 s": {"retry_policy": {"minimum_backoff": {"seconds": 1}, "maximum_backoff": {"seconds": 601}}},
    "expiration below 1 d": {"expiration_policy": {"ttl": {"seconds": 3_600}}},
    "filter that is none": {"filter": "attributes:a AND"},
}


@pytest.mark.parametrize("case", BAD_SETTINGS)
def test_bad_settings_are_refused(service: Service, case: str) -> None:
    topic = service.topic()
    code, _ = status_of(lambda: service.subscription(topic, **BAD_SETTINGS[case]))
    assert code == "INVALID_ARGUMENT"


@pytest.mark.parametrize("attempts", [4, 101])
def test_delivery_attempts_out_of_range_are_refused(service: Service, attempts: int) -> None:
    topic = service.topic()
    policy = {"dead_letter_topic": topic, "max_delivery_attempts": attempts}
    code, _ = status_of(lambda: service.subscription(topic, dead_letter_policy=policy))
    assert code == "INVALID_ARGUMENT"


def test_a_dead_letter_topic_must_exist(service: Service) -> None:
    topic = service.topic()
    policy = {"dead_letter_topic": f"projects/{service.project}/topics/unknown", "max_delivery_attempts": 5}
    assert status_of(lambda: service.subscription(topic, dead_letter_policy=policy))[0] == "NOT_FOUND"


def test_an_update_changes_what_its_mask_names_and_nothing_else(service: Service) -> None:
    name = service.subscription(service.topic(), ack_deadline_seconds=20, labels={"a": "b"})
    service.client.UpdateSubscription(
        subscription=SUBSCRIPTION(name=name, ack_deadline_seconds=33), update_mask={"paths": ["ack_deadline_seconds"]}
    )
    got = service.client.GetSubscription(subscription=name)
    assert (got.ack_deadline_seconds, dict(got.labels)) == (33, {"a": "b"})


def test_an_update_without_a_value_clears_the_field(service: Service) -> None:
    name = service.subscription(service.topic(), retry_policy={"minimum_backoff": {"seconds": 1}})
    service.client.UpdateSubscription(subscription=SUBSCRIPTION(name=name), update_mask={"paths": ["retry_policy"]})
    assert not service.client.GetSubscription(subscription=name).HasField("retry_policy")


@pytest.mark.parametrize("paths", [[], ["nonsense"], ["filter"], ["topic"], ["name"]])
def test_a_mask_that_names_nothing_or_what_cannot_change_is_refused(service: Service, paths: list[str]) -> None:
    name = service.subscription(service.topic())
    code, _ = status_of(
        lambda: service.client.UpdateSubscription(
            subscription=SUBSCRIPTION(name=name, filter="attributes:x"), update_mask={"paths": paths}
        )
    )
    assert code == "INVALID_ARGUMENT"


def test_a_topic_can_be_updated(service: Service) -> None:
    topic = service.topic(labels={"a": "b"})
    service.client.UpdateTopic(topic=TOPIC(name=topic, labels={"c": "d"}), update_mask={"paths": ["labels"]})
    assert dict(service.client.GetTopic(topic=topic).labels) == {"c": "d"}


def test_subscriptions_outlive_their_topic_and_do_not_return_to_it(service: Service) -> None:
    topic = service.topic()
    name = service.subscription(topic)
    service.client.publish(topic, b"kept")
    service.client.DeleteTopic(topic=topic)
    assert service.client.GetSubscription(subscription=name).topic == "_deleted-topic_"
    service.client.CreateTopic(name=topic)
    service.client.publish(topic, b"unseen")
    assert list(service.client.ListTopicSubscriptions(topic=topic).subscriptions) == []
    assert [message.message.data for message in service.client.pull_until(name, 1)] == [b"kept"]


def test_a_deleted_subscription_is_not_found_by_any_call(service: Service) -> None:
    client, name = service.client, service.subscription(service.topic())
    client.DeleteSubscription(subscription=name)
    calls = [
        lambda: client.GetSubscription(subscription=name),
        lambda: client.DeleteSubscription(subscription=name),
        lambda: client.pull(name),
        lambda: client.Acknowledge(subscription=name, ack_ids=["x"]),
        lambda: client.ModifyAckDeadline(subscription=name, ack_ids=["x"], ack_deadline_seconds=10),
        lambda: client.Seek(subscription=name, time={"seconds": 1}),
        lambda: client.UpdateSubscription(
            subscription=SUBSCRIPTION(name=name), update_mask={"paths": ["ack_deadline_seconds"]}
        ),
    ]
    assert [status_of(call)[0] for call in calls] == ["NOT_FOUND"] * len(calls)


def test_a_detached_subscription_stays_and_delivers_nothing(service: Service) -> None:
    topic = service.topic()
    name = service.subscription(topic)
    service.client.publish(topic, b"dropped")
    service.client.DetachSubscription(subscription=name)
    assert service.client.GetSubscription(subscription=name).detached
    assert status_of(lambda: service.client.pull(name))[0] == "FAILED_PRECONDITION"


def test_snapshots_live_from_create_to_delete(service: Service) -> None:
    client, topic = service.client, service.topic()
    name = f"projects/{service.project}/snapshots/snap"
    subscription = service.subscription(topic)
    made = client.CreateSnapshot(name=name, subscription=subscription)
    assert (made.name, made.topic) == (name, topic)
    assert made.expire_time.seconds > 0
    assert status_of(lambda: client.CreateSnapshot(name=name, subscription=subscription))[0] == "ALREADY_EXISTS"
    assert client.GetSnapshot(snapshot=name).topic == topic
    assert [item.name for item in client.ListSnapshots(project=f"projects/{service.project}").snapshots] == [name]
    assert list(client.ListTopicSnapshots(topic=topic).snapshots) == [name]
    client.DeleteSnapshot(snapshot=name)
    assert status_of(lambda: client.GetSnapshot(snapshot=name))[0] == "NOT_FOUND"


def test_a_snapshot_of_nothing_is_refused(service: Service) -> None:
    unknown = f"projects/{service.project}/subscriptions/unknown"
    name = f"projects/{service.project}/snapshots/snap"
    assert status_of(lambda: service.client.CreateSnapshot(name=name, subscription=unknown))[0] == "NOT_FOUND"
