"""Seek: back to a snapshot or a time, and forward past everything."""

from __future__ import annotations

import time

from tests.contract.pubsub.client import bodies
from tests.contract.pubsub.conftest import Service

AHEAD_S = 3_600


def test_seeking_ahead_acks_everything(service: Service) -> None:
    topic = service.topic()
    name = service.subscription(topic)
    service.client.publish(topic, b"1", b"2")
    service.client.Seek(subscription=name, time={"seconds": int(time.time()) + AHEAD_S})
    assert service.client.pull(name) == []


def test_seeking_back_brings_acked_messages_again_where_they_are_kept(service: Service) -> None:
    topic = service.topic()
    name = service.subscription(topic, retain_acked_messages=True)
    started = int(time.time()) - 1
    service.client.publish(topic, b"1", b"2")
    service.client.ack(name, service.client.pull_until(name, 2))
    service.client.Seek(subscription=name, time={"seconds": started})
    assert sorted(bodies(service.client.pull_until(name, 2))) == [b"1", b"2"]


def test_seeking_to_a_snapshot_brings_back_what_was_unacked_then_and_what_came_after(service: Service) -> None:
    topic = service.topic()
    name = service.subscription(topic)
    service.client.publish(topic, b"acked")
    service.client.ack(name, service.client.pull_until(name, 1))
    service.client.publish(topic, b"unacked")
    snapshot = f"projects/{service.project}/snapshots/snap"
    service.client.CreateSnapshot(name=snapshot, subscription=name)
    service.client.publish(topic, b"later")
    service.client.ack(name, service.client.pull_until(name, 2))
    service.client.Seek(subscription=name, snapshot=snapshot)
    assert sorted(bodies(service.client.pull_until(name, 2))) == [b"later", b"unacked"]
