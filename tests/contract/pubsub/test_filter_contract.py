"""Filters at work; the language itself is tested against our parser alone, for Google's emulator ignores filters."""

from __future__ import annotations

from tests.contract.pubsub.client import pb
from tests.contract.pubsub.conftest import Service


def test_a_subscription_gets_only_what_its_filter_matches(service: Service) -> None:
    topic = service.topic()
    without = service.subscription(topic, filter="NOT attributes:due")
    with_it = service.subscription(topic, filter="attributes:due")
    messages = [pb("PubsubMessage")(data=b"later", attributes={"due": "1"}), pb("PubsubMessage")(data=b"now")]
    service.client.Publish(topic=topic, messages=messages)
    assert [message.message.data for message in service.client.pull_until(with_it, 1)] == [b"later"]
    assert [message.message.data for message in service.client.pull_until(without, 1)] == [b"now"]
