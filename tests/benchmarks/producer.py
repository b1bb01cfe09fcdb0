"""The producer: builds all requests beforehand, so that publishing itself costs next to nothing."""

from __future__ import annotations

import random
import sys
import time
from collections import deque
from typing import Any, Final

import grpc

from tests.benchmarks.wire import GRPC_OPTIONS, REQUEST_MESSAGES, now_us, publish_request
from tests.benchmarks.worker import Answer, serve

IN_FLIGHT_MAX: Final = 4
CALL_S: Final = 60.0
PACED_IN_FLIGHT_MAX: Final = 1000
PACED_PERIOD_S: Final = 0.01
"""A request every so often, as Google's client does by default; the dues in it are still single moments."""


class Producer:
    """Orders: `build` then `burst`; or `paced`."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address, options=GRPC_OPTIONS)
        self._publish: Any = self._channel.unary_unary("/google.pubsub.v1.Publisher/Publish", None, None)
        self._requests: list[bytes] = []

    def build(self, topic: str, first_seq: int, count: int, due_ms: int, spread_ms: int = 0, seed: int = 1) -> Answer:
        """Prepare `count` messages due at `due_ms`, or at random in the `spread_ms` after it."""
        chance = random.Random(seed)
        self._requests = []
        for start in range(first_seq, first_seq + count, REQUEST_MESSAGES):
            seqs = range(start, min(start + REQUEST_MESSAGES, first_seq + count))
            dues = [due_ms + (chance.randrange(spread_ms) if spread_ms else 0) for _ in seqs]
            self._requests.append(publish_request(topic, seqs, dues))
        return {"requests": len(self._requests)}

    def burst(self) -> Answer:
        """Publish what was built, as fast as the broker takes it."""
        began_us = now_us()
        pending: deque[Any] = deque()
        for request in self._requests:
            if len(pending) >= IN_FLIGHT_MAX:
                pending.popleft().result()
            pending.append(self._publish.future(request, timeout=CALL_S, wait_for_ready=True))
        for call in pending:
            call.result()
        self._requests = []
        return {"began_us": began_us, "ended_us": now_us()}

    def paced(
        self, topic: str, first_seq: int, count: int, per_second: float, ahead_ms: list[int], seed: int = 1
    ) -> Answer:
        """Publish at a steady rate, each message due between `ahead_ms[0]` and `ahead_ms[1]` after its publishing."""
        chance = random.Random(seed)
        began_us = now_us()
        began_s = time.monotonic()
        pending: deque[Any] = deque()
        step = max(1, round(per_second * PACED_PERIOD_S))
        for number in range(0, count, step):
            time.sleep(max(0.0, began_s + number / per_second - time.monotonic()))
            seqs = range(first_seq + number, first_seq + min(number + step, count))
            now_ms = now_us() // 1000
            if len(pending) >= PACED_IN_FLIGHT_MAX or (pending and pending[0].done()):
                pending.popleft().result()
            request = publish_request(topic, seqs, [now_ms + chance.randint(*ahead_ms) for _ in seqs])
            pending.append(self._publish.future(request, timeout=CALL_S, wait_for_ready=True))
        for call in pending:
            call.result()
        return {"began_us": began_us, "ended_us": now_us()}


if __name__ == "__main__":
    producer = Producer(sys.argv[1])
    serve({"build": producer.build, "burst": producer.burst, "paced": producer.paced})
