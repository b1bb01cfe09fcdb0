"""In at the source, out at the target: every byte, on the local Pub/Sub and on Google's emulator."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.blackbox.node import NodeProcess
from tests.blackbox.pubsub import Arrival, PublishRequest, PubSub, message, topic_path, with_attributes
from tests.integration.relay.conftest import MakeRelay
from tests.integration.relay.google import emulator_jar, google_emulator
from tests.integration.relay.site import ADDED, Relay, at, now_ms, numbered

COUNT = 1000
AHEAD_MS = 6000
REQUEST_BYTES_MAX = 10_000_000
ATTRIBUTES_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What was published and what must come out."""

    message: Any
    due_ms: int
    kept: dict[str, str]
    """Attributes that must arrive as they were."""


def mixed(count: int, seed: int) -> dict[str, Sent]:
    """Messages of every kind by the number that each carries in the attribute `n`."""
    chance = random.Random(seed)
    began_ms = now_ms()
    sent = {}
    for number in range(count):
        due_ms = began_ms + chance.choice([-86_400_000, -1, 0, *(chance.randint(1, AHEAD_MS) for _ in range(5))])
        kept = {"n": str(number)}
        data = chance.randbytes(chance.choice([1, 10, 300, 5000]))
        key = ""
        match number % 10:
            case 0:
                data = b""
            case 1:
                kept |= {f"a{i}": chance.choice(["", "x" * 1024, str(i)]) for i in range(ATTRIBUTES_MAX - 2)}
            case 2:
                kept |= {"имя": "значение", "名前": "値 🎈", "with space": "a\tb\nc\u0000d", 'q"uote': "\\"}
            case 3 | 4:
                # One due time per key, so that the order within the key is known.
                key = f"key-{number % 3}"
                due_ms = began_ms + 3000 + 1000 * (number % 3)
            case 5:
                data = bytes(range(256))
        sent[str(number)] = Sent(
            message=with_attributes({**kept, "available_at": at(due_ms)}, data, key), due_ms=due_ms, kept=kept
        )
    return sent


def publish_all(relay: Relay, sent: dict[str, Sent]) -> None:
    """Requests of at most 100, one ordering key each."""
    by_key: dict[str, list[Any]] = defaultdict(list)
    for item in sent.values():
        by_key[item.message.ordering_key].append(item.message)
    for messages in by_key.values():
        relay.publish(messages, per_request=100)


def check(sent: dict[str, Sent], arrivals: Sequence[Arrival]) -> None:
    """Each exactly once, none early, every byte."""
    assert len(arrivals) == len(sent)
    assert len({a.attributes["scheduler-message-id"] for a in arrivals}) == len(sent)
    for arrival in arrivals:
        item = sent[arrival.attributes["n"]]
        assert arrival.data == item.message.data
        assert arrival.ordering_key == item.message.ordering_key
        assert {k: v for k, v in arrival.attributes.items() if k not in ADDED} == item.kept
        assert arrival.publish_us >= item.due_ms * 1000
        added = arrival.attributes.keys() & ADDED
        assert len(added) == min(len(ADDED), ATTRIBUTES_MAX - len(item.kept))
        assert "scheduler-message-id" in added
    assert {a.attributes["n"] for a in arrivals} == sent.keys()


def check_order(sent: dict[str, Sent], arrivals: Sequence[Arrival]) -> None:
    """Messages of one ordering key and due time arrive as they were published."""
    order: dict[str, list[int]] = defaultdict(list)
    for arrival in arrivals:
        if arrival.ordering_key:
            order[arrival.ordering_key].append(int(arrival.attributes["n"]))
    assert len(order) == 3
    for numbers in order.values():
        assert numbers == sorted(numbers)


def test_a_thousand_mixed_messages_arrive_exactly_once_never_early_and_byte_for_byte(make_relay: MakeRelay) -> None:
    relay = make_relay(ordering=True)
    sent = mixed(COUNT, seed=1)
    publish_all(relay, sent)
    arrivals = relay.out.wait(COUNT, 30)
    relay.wait_stat("pending", 0)
    check(sent, arrivals)
    check_order(sent, arrivals)
    assert relay.stats()["released"] == COUNT


@pytest.mark.skipif(emulator_jar() is None, reason="Google's emulator needs gcloud's component and Java")
@pytest.mark.timeout(120)
def test_a_thousand_mixed_messages_pass_unharmed_through_googles_own_emulator(tmp_path: Path) -> None:
    with ExitStack() as stack:
        address = stack.enter_context(google_emulator(tmp_path / "google.log"))
        pubsub = PubSub(address)
        stack.callback(pubsub.close)
        node = NodeProcess(tmp_path / "node", address)
        stack.callback(node.close)
        node.start()
        relay = Relay(node, pubsub, ordering=True)
        stack.callback(relay.close)
        sent = mixed(COUNT, seed=2)
        publish_all(relay, sent)
        arrivals = relay.out.wait(COUNT, 45)
        relay.wait_stat("pending", 0)
        check(sent, arrivals)
        check_order(sent, arrivals)


def test_a_message_of_exactly_the_services_limit_passes(relay: Relay) -> None:
    empty = PublishRequest(topic=topic_path(relay.source), messages=[message(b"", available_at=at(now_ms()))])
    # Above 2 MiB each of the two lengths around the data takes four bytes instead of one, and the data has a tag.
    data = random.Random(3).randbytes(REQUEST_BYTES_MAX - empty.ByteSize() - 16)
    request = PublishRequest(topic=topic_path(relay.source), messages=[message(data, available_at=at(now_ms()))])
    data += b"x" * (REQUEST_BYTES_MAX - request.ByteSize())
    full = message(data, available_at=at(now_ms()))
    assert PublishRequest(topic=topic_path(relay.source), messages=[full]).ByteSize() == REQUEST_BYTES_MAX
    relay.publish([full])
    relay.send(b"behind it")
    arrivals = relay.out.wait_data([data, b"behind it"], 30)
    assert len(arrivals) == 2


def test_a_message_with_nothing_but_its_time_is_still_valid_when_it_leaves(relay: Relay) -> None:
    relay.publish([message(b"", available_at=at(now_ms()))])
    (arrival,) = relay.out.wait(1, 10)
    assert arrival.data == b""
    assert arrival.attributes.keys() == ADDED


def test_a_source_that_delivers_everything_twice_is_stored_once(relay: Relay) -> None:
    bodies = numbered("twice", 200)
    relay.send(*bodies[:100])
    relay.send(*bodies[100:], due_ms=now_ms() + 2000)
    relay.out.wait_data(bodies[:100], 10)
    relay.wait_stat("accepted", len(bodies))
    relay.pubsub.deliver_again(relay.source)
    relay.wait_stat("duplicates", len(bodies), timeout_s=15)
    relay.out.wait_data(bodies, 10)
    assert relay.stats()["accepted"] == len(bodies)
    assert len(relay.out) == len(bodies)


def test_the_due_time_is_met_to_the_millisecond_and_said_on_the_message(relay: Relay) -> None:
    due_ms = now_ms() + 1234
    relay.send(b"precise", due_ms=due_ms)
    (arrival,) = relay.out.wait(1, 10)
    assert 0 <= arrival.publish_us / 1000 - due_ms < 500
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(due_ms // 1000))
    assert arrival.attributes["scheduler-due"] == f"{seconds}.{due_ms % 1000:03d}Z"
    assert arrival.attributes["scheduler-channel"] == relay.id
