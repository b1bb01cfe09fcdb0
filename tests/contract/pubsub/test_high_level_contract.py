"""The unmodified high-level client: publisher, subscriber callbacks, nack, ordering, big messages."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import grpc
import pytest
from google.api_core.exceptions import AlreadyExists, NotFound
from google.cloud import pubsub_v1
from google.pubsub_v1.services.subscriber.transports.grpc import SubscriberGrpcTransport

from tests.contract.pubsub.client import DEADLINE_S
from tests.contract.pubsub.conftest import Service


@pytest.fixture
def publisher(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[pubsub_v1.PublisherClient]:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", service.address)
    publisher = pubsub_v1.PublisherClient(
        publisher_options=pubsub_v1.types.PublisherOptions(enable_message_ordering=True)
    )
    yield publisher
    publisher.stop()
    publisher.transport.close()


@pytest.fixture
def subscriber(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[pubsub_v1.SubscriberClient]:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", service.address)
    with pubsub_v1.SubscriberClient() as subscriber:
        yield subscriber


class Inbox:
    """Collects messages in a callback until there are enough."""

    def __init__(self, wanted: int, *, nack_first: bool = False) -> None:
        self.messages: list[pubsub_v1.subscriber.message.Message] = []
        self._wanted = wanted
        self._nack_next = nack_first
        self._done = threading.Event()

    def __call__(self, message: pubsub_v1.subscriber.message.Message) -> None:
        self.messages.append(message)
        if self._nack_next:
            self._nack_next = False
            message.nack()
        else:
            message.ack()
        if len(self.messages) >= self._wanted:
            self._done.set()

    def wait(self) -> list[pubsub_v1.subscriber.message.Message]:
        assert self._done.wait(DEADLINE_S), f"{len(self.messages)} of {self._wanted} messages came"
        return self.messages


def test_a_callback_receives_what_was_published(
    service: Service, publisher: pubsub_v1.PublisherClient, subscriber: pubsub_v1.SubscriberClient
) -> None:
    topic = service.topic()
    name = service.subscription(topic)
    inbox = Inbox(50)
    future = subscriber.subscribe(name, inbox)
    published = [publisher.publish(topic, b"%d" % number, kind="test") for number in range(50)]
    ids = {call.result(DEADLINE_S) for call in published}
    got = inbox.wait()
    future.cancel()
    future.result(DEADLINE_S)
    assert {message.message_id for message in got} == ids
    assert {message.attributes["kind"] for message in got} == {"test"}


def test_a_nack_in_the_callback_brings_the_message_again(
    service: Service, publisher: pubsub_v1.PublisherClient, subscriber: pubsub_v1.SubscriberClient
) -> None:
    topic = service.topic()
    name = service.subscription(topic)
    inbox = Inbox(2, nack_first=True)
    future = subscriber.subscribe(name, inbox)
    publisher.publish(topic, b"x").result(DEADLINE_S)
    first, second = inbox.wait()
    future.cancel()
    future.result(DEADLINE_S)
    assert first.message_id == second.message_id


def test_a_callback_sees_a_key_in_order(
    service: Service, publisher: pubsub_v1.PublisherClient, subscriber: pubsub_v1.SubscriberClient
) -> None:
    topic = service.topic()
    name = service.subscription(topic, enable_message_ordering=True)
    inbox = Inbox(20)
    for number in range(20):
        publisher.publish(topic, b"%d" % number, ordering_key="k")
    future = subscriber.subscribe(name, inbox)
    got = [int(message.data) for message in inbox.wait()]
    future.cancel()
    future.result(DEADLINE_S)
    assert got == list(range(20))


def test_a_big_message_passes_a_channel_with_raised_limits(
    service: Service, publisher: pubsub_v1.PublisherClient
) -> None:
    topic = service.topic()
    name = service.subscription(topic)
    publisher.publish(topic, bytes(9_000_000)).result(DEADLINE_S)
    channel = grpc.insecure_channel(service.address, options=[("grpc.max_receive_message_length", -1)])
    with pubsub_v1.SubscriberClient(transport=SubscriberGrpcTransport(channel=channel)) as subscriber:
        inbox = Inbox(1)
        future = subscriber.subscribe(name, inbox)
        got = inbox.wait()
        future.cancel()
        future.result(DEADLINE_S)
    assert len(got[0].data) == 9_000_000


def test_administration_raises_the_clients_own_exceptions(
    service: Service, publisher: pubsub_v1.PublisherClient, subscriber: pubsub_v1.SubscriberClient
) -> None:
    topic = service.topic()
    with pytest.raises(AlreadyExists):
        publisher.create_topic(name=topic)
    with pytest.raises(NotFound):
        subscriber.get_subscription(subscription=f"projects/{service.project}/subscriptions/unknown")
    assert [item.name for item in publisher.list_topics(project=f"projects/{service.project}")] == [topic]


def test_a_subscribe_to_nothing_fails_its_future(service: Service, subscriber: pubsub_v1.SubscriberClient) -> None:
    future = subscriber.subscribe(f"projects/{service.project}/subscriptions/unknown", Inbox(1))
    with pytest.raises(NotFound):
        future.result(DEADLINE_S)
