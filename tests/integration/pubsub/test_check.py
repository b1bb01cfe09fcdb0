"""A test of source and destination says in words what works and what does not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from google.iam.v1 import iam_policy_pb2
from google.pubsub_v1.types import DeleteTopicRequest, Subscription

from engine.model import DestinationConfig, SourceConfig
from engine.pubsub.check import check_destination, check_source
from tests.integration.pubsub.conftest import PROJECT, QUICK, Bench


def source(bench, subscription, **config):
    found = SourceConfig(project_id=PROJECT, subscription_id=subscription, **config)
    return check_source(found, bench.connections, QUICK)


def destination(bench, topic):
    return check_destination(DestinationConfig(project_id=PROJECT, topic_id=topic), bench.connections, QUICK)


def test_a_subscription_and_a_topic_that_are_there(emulator, bench):
    found = source(bench, "worker")
    assert found.ok
    assert "reads from projects/demo/topics/orders" in found.detail
    assert any("no filter" in hint for hint in found.hints)
    assert destination(bench, "orders").ok
    assert emulator.counters().get("delivered", 0) == 0


def test_a_subscription_with_a_filter_has_nothing_to_remark(emulator, bench):
    emulator.create_subscription(PROJECT, "narrow", "orders", filter="attributes:available_at")
    assert source(bench, "narrow").hints == ()


def test_what_is_missing_is_named(bench):
    found = source(bench, "missing")
    assert not found.ok
    assert found.detail.startswith("projects/demo/subscriptions/missing does not exist")
    assert destination(bench, "missing").detail.startswith("projects/demo/topics/missing does not exist")


def test_a_subscription_whose_topic_was_deleted_is_of_no_use(emulator, bench):
    emulator.create_topic(PROJECT, "short-lived")
    emulator.create_subscription(PROJECT, "orphan", "short-lived")
    channel = bench.connections.publisher(DestinationConfig(project_id=PROJECT, topic_id="short-lived"))
    request = DeleteTopicRequest.serialize(DeleteTopicRequest(topic="projects/demo/topics/short-lived"))
    channel.unary("Publisher/DeleteTopic")(request, timeout=10)
    channel.close()
    found = source(bench, "orphan")
    assert not found.ok
    assert "topic" in found.detail
    assert "deleted" in found.detail


class Service:
    """Answers two questions as the real service does and the local Pub/Sub does not."""

    def __init__(self) -> None:
        self.subscription: Subscription | None = None
        self.granted: list[str] = []
        self._server = grpc.server(ThreadPoolExecutor(2))
        for service, method, answer in (
            ("google.pubsub.v1.Subscriber", "GetSubscription", self._get),
            ("google.iam.v1.IAMPolicy", "TestIamPermissions", self._test),
        ):
            methods = {method: grpc.unary_unary_rpc_method_handler(answer)}
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def _get(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        if self.subscription is None:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "User not authorized.")
        return Subscription.serialize(self.subscription)

    def _test(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        asked = iam_policy_pb2.TestIamPermissionsRequest.FromString(request).permissions
        granted = [permission for permission in asked if permission in self.granted]
        return iam_policy_pb2.TestIamPermissionsResponse(permissions=granted).SerializeToString()

    def close(self) -> None:
        self._server.stop(0).wait()


@pytest.fixture
def service():
    running = Service()
    yield running
    running.close()


def ask(service):
    bench = Bench(service.address)
    try:
        return source(bench, "worker")
    finally:
        bench.close()


def test_a_push_subscription_cannot_be_pulled_from(service):
    service.subscription = Subscription(name="s", topic="t", push_config={"push_endpoint": "https://example.com/push"})
    found = ask(service)
    assert not found.ok
    assert "not a pull subscription" in found.detail


def test_a_detached_subscription_is_of_no_use(service):
    service.subscription = Subscription(name="s", topic="t", detached=True)
    assert "detached" in ask(service).detail


def test_a_dead_letter_topic_is_worth_a_hint(service):
    service.subscription = Subscription(name="s", topic="t", dead_letter_policy={"dead_letter_topic": "d"})
    assert any("dead-letter" in hint for hint in ask(service).hints)


def test_an_account_that_may_pull_but_not_look_is_good_enough(service):
    assert not ask(service).ok
    service.granted = ["pubsub.subscriptions.consume"]
    found = ask(service)
    assert found.ok
    assert "may not be read" in found.hints[0]


def test_a_denied_permission_is_explained(emulator, bench):
    emulator.faults.fail("GetTopic", "PERMISSION_DENIED", "User not authorized.")
    found = destination(bench, "orders")
    assert not found.ok
    assert "roles/pubsub.publisher" in found.detail


def test_a_wrong_key_file_is_explained(bench, tmp_path):
    found = source(bench, "worker", key_file=str(tmp_path / "none.json"))
    assert not found.ok
    assert "is missing" in found.detail


def test_a_service_that_does_not_answer_is_given_up_in_time(emulator, bench):
    emulator.faults.fail("GetSubscription", "UNAVAILABLE", "away")
    found = source(bench, "worker")
    assert not found.ok
    assert "cannot be reached" in found.detail
