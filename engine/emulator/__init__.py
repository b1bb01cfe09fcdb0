"""The local Pub/Sub: a gRPC server of google.pubsub.v1 for development, tests and the demo.

Unmodified clients speak to it through `PUBSUB_EMULATOR_HOST`. It keeps everything in memory and imports nothing else
of the engine. Start in `server` (`Emulator`, `serve`); a message's way is

    publishing   a Publish request is checked against the service's limits
    wire         its messages are kept as the bytes they came in, with id and publish time appended
    broker       finds the topic; topic hands the messages to subscriptions, snapshots, retention
    subscription one subscription: filters, backlog (what waits), leases (what is out), ordering (per key)
    streams      StreamingPull; receiving: Pull, Acknowledge, ModifyAckDeadline
    timekeeper   lets deadlines, back-off, retention and expiration happen, by the clock

and around it: topic_calls, subscription_calls, snapshot_calls (administration and Seek), filters (the language),
deadletter, faults (what tests inject), control and control_client (the same from another process), clock, limits,
errors. DESIGN.md tells the mechanism, the decisions and the differences from the service.

For tests:

    with Emulator(clock=ManualClock()) as emulator:
        emulator.create_topic("demo", "orders")
        emulator.create_subscription("demo", "worker", "orders", ack_deadline_seconds=10)
        emulator.faults.fail("Publish", "UNAVAILABLE", times=2)
"""

from engine.emulator.clock import Clock, ManualClock, SystemClock
from engine.emulator.control_client import ControlClient
from engine.emulator.faults import Faults
from engine.emulator.server import Emulator, serve

__all__ = ["Clock", "ControlClient", "Emulator", "Faults", "ManualClock", "SystemClock", "serve"]
