"""Every method of the server by its full name, and who answers it."""

from __future__ import annotations

from engine.emulator.broker import Broker
from engine.emulator.dispatch import PUBSUB, AnyHandler, stream_handler, unary_handler
from engine.emulator.faults import Faults
from engine.emulator.receiving import Receiving
from engine.emulator.snapshot_calls import SnapshotCalls
from engine.emulator.streams import Streams
from engine.emulator.subscription_calls import SubscriptionCalls
from engine.emulator.topic_calls import TopicCalls


def pubsub_handlers(broker: Broker, streams: Streams, pull_wait_s: float, faults: Faults) -> dict[str, AnyHandler]:
    """Every Pub/Sub method by full name."""
    topics, subscriptions, snapshots = TopicCalls(broker), SubscriptionCalls(broker), SnapshotCalls(broker)
    receiving = Receiving(broker, pull_wait_s)
    publisher = {
        "CreateTopic": topics.create,
        "UpdateTopic": topics.update,
        "Publish": lambda request, context: broker.publish(request),
        "GetTopic": topics.get,
        "ListTopics": topics.list_all,
        "ListTopicSubscriptions": topics.list_subscriptions,
        "ListTopicSnapshots": topics.list_snapshots,
        "DeleteTopic": topics.delete,
        "DetachSubscription": topics.detach,
    }
    subscriber = {
        "CreateSubscription": subscriptions.create,
        "GetSubscription": subscriptions.get,
        "UpdateSubscription": subscriptions.update,
        "ListSubscriptions": subscriptions.list_all,
        "DeleteSubscription": subscriptions.delete,
        "ModifyAckDeadline": receiving.modify_ack_deadline,
        "Acknowledge": receiving.acknowledge,
        "Pull": receiving.pull,
        "ModifyPushConfig": subscriptions.modify_push_config,
        "GetSnapshot": snapshots.get,
        "ListSnapshots": snapshots.list_all,
        "CreateSnapshot": snapshots.create,
        "UpdateSnapshot": snapshots.update,
        "DeleteSnapshot": snapshots.delete,
        "Seek": snapshots.seek,
    }
    handlers = {
        f"/{PUBSUB}.{service}/{method}": unary_handler(method, answer, faults, broker.runtime)
        for service, methods in (("Publisher", publisher), ("Subscriber", subscriber))
        for method, answer in methods.items()
    }
    handlers[f"/{PUBSUB}.Subscriber/StreamingPull"] = stream_handler(
        "StreamingPull", streams.streaming_pull, faults, broker.runtime
    )
    return handlers
