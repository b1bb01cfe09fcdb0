"""Many publishers and receivers at once, with nacks and faults: nothing is lost, and the books balance at the end."""

from __future__ import annotations

import random
import threading

import pytest

from engine.emulator import Emulator, ManualClock
from tests.contract.pubsub.client import Client, Pb, eventually
from tests.unit.emulator.conftest import PROJECT

PUBLISHERS, REQUESTS, BATCH, RECEIVERS = 3, 40, 25, 3


class Receiver:
    """Acks most of what its stream brings, nacks the rest, and opens a new stream when one ends."""

    def __init__(self, address: str, subscription: str, seed: int, acked: set[str], done: threading.Event) -> None:
        self._client = Client(address)
        self._subscription = subscription
        self._chance = random.Random(seed)
        self._acked = acked
        self._done = done
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self._done.is_set():
            stream = self._client.stream(self._subscription, max_outstanding_messages=40)
            handled = 0
            while stream.error is None and not self._done.wait(0.002):
                fresh = stream.messages[handled:]
                handled += len(fresh)
                self._settle(fresh)
            stream.close()
        self._client.close()

    def _settle(self, messages: list[Pb]) -> None:
        good = [message for message in messages if self._chance.random() < 0.8]
        bad = [message for message in messages if message not in good]
        if good:
            self._client.ack(self._subscription, good)
            self._acked.update(message.message.message_id for message in good)
        if bad:
            self._client.nack(self._subscription, bad)


@pytest.mark.parametrize("ordering", [False, True])
def test_nothing_is_lost_and_the_books_balance(ordering: bool) -> None:
    clock = ManualClock()
    with Emulator(clock=clock) as emulator:
        topic = emulator.create_topic(PROJECT, "orders")
        name = emulator.create_subscription(PROJECT, "worker", "orders", enable_message_ordering=ordering)
        acked: set[str] = set()
        published: list[str] = []
        done = threading.Event()

        def publish(number: int) -> None:
            client = Client(emulator.address)
            for request in range(REQUESTS):
                key = f"{number}-{request % 5}" if ordering else ""
                published.extend(client.publish(topic, *[b"x"] * BATCH, ordering_key=key))
            client.close()

        publishers = [threading.Thread(target=publish, args=(number,)) for number in range(PUBLISHERS)]
        receivers = [Receiver(emulator.address, name, seed, acked, done) for seed in range(RECEIVERS)]
        for thread in publishers:
            thread.start()
        for thread in publishers:
            thread.join()
        eventually(lambda: emulator.faults.end_streams(), "a stream to end")

        def all_acked() -> bool:
            clock.advance(1)  # What was on its way on the ended streams comes back at its deadline.
            return emulator.counters()["held_bytes"] == 0

        eventually(all_acked, "all acked", deadline_s=40)
        done.set()
        for receiver in receivers:
            receiver.thread.join()
        assert len(published) == len(set(published)) == PUBLISHERS * REQUESTS * BATCH
        assert acked == set(published)
        counters = emulator.counters()
        assert (counters["backlog"], counters["outstanding"]) == (0, 0)
        if not ordering:
            assert counters["acked"] == len(published)
