"""Ordering keys: in publish order, to one receiver at a time, and everything later again when one comes back."""

from __future__ import annotations

from tests.contract.pubsub.client import bodies
from tests.contract.pubsub.conftest import Service


def test_messages_of_a_key_arrive_in_publish_order(service: Service) -> None:
    topic = service.topic()
    name = service.subscription(topic, enable_message_ordering=True)
    stream = service.client.stream(name)
    for number in range(30):
        service.client.publish(topic, b"%d" % number, ordering_key=f"k{number % 3}")
    seen: dict[str, list[int]] = {}
    acked = 0
    while acked < 30:
        messages = stream.wait_for(acked + 1)[acked:]
        for message in messages:
            seen.setdefault(message.message.ordering_key, []).append(int(message.message.data))
        service.client.ack(name, messages)
        acked += len(messages)
    assert seen == {f"k{key}": list(range(key, 30, 3)) for key in range(3)}


def test_a_nack_brings_back_the_message_and_all_later_ones_of_its_key_in_order(service: Service) -> None:
    topic = service.topic()
    name = service.subscription(topic, enable_message_ordering=True)
    service.client.publish(topic, b"1", b"2", b"3", ordering_key="k")
    first = service.client.pull_until(name, 1)
    service.client.nack(name, first)
    seen: list[bytes] = []
    while len(seen) < 3:
        messages = service.client.pull_until(name, 1)
        seen += bodies(messages)
        service.client.ack(name, messages)
    assert seen == [b"1", b"2", b"3"]


def test_a_key_waits_while_a_message_of_it_is_out_and_other_keys_do_not(service: Service) -> None:
    topic = service.topic()
    name = service.subscription(topic, enable_message_ordering=True)
    service.client.publish(topic, b"a1", ordering_key="a")
    held = service.client.pull_until(name, 1)
    service.client.publish(topic, b"a2", ordering_key="a")
    service.client.publish(topic, b"b1", ordering_key="b")
    assert bodies(service.client.pull_until(name, 1)) == [b"b1"]
    assert service.client.pull(name) == []
    service.client.ack(name, held)
    assert bodies(service.client.pull_until(name, 1)) == [b"a2"]


def test_without_ordering_a_key_blocks_nothing(service: Service) -> None:
    topic = service.topic()
    name = service.subscription(topic)
    service.client.publish(topic, b"1", ordering_key="k")
    service.client.pull_until(name, 1)
    service.client.publish(topic, b"2", ordering_key="k")
    assert bodies(service.client.pull_until(name, 1)) == [b"2"]
