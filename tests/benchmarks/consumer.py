"""The consumer: acks what comes and keeps the responses as they are; they are read and checked when a measure is over.

Reading later keeps the consumer's own cost out of the figures, since it shares the cores with what is measured.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

import grpc
import numpy as np
from google.pubsub_v1.types import pubsub as types

from tests.benchmarks.figures import quantiles
from tests.benchmarks.wire import GRPC_OPTIONS, acknowledge_request, now_us, read_bodies
from tests.benchmarks.worker import Answer, serve

ACKS_IN_FLIGHT_MAX: Final = 4
CALL_S: Final = 60.0
WINDOW_MESSAGES: Final = 20_000
POLL_S: Final = 0.005


class Consumer:
    """Orders: `open` once per subscription; then for each measure `expect`, `arrived` (waits), `report`."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address, options=GRPC_OPTIONS)
        self._pull: Any = self._channel.stream_stream("/google.pubsub.v1.Subscriber/StreamingPull", None, None)
        self._ack: Any = self._channel.unary_unary("/google.pubsub.v1.Subscriber/Acknowledge", None, None)
        self._responses: list[tuple[int, int, bytes]] = []
        """(arrived_us, messages, response)"""
        self._changed = threading.Condition()
        self._count = 0
        self._error = ""
        self._first_seq = self._expected = 0

    def open(self, subscription: str) -> Answer:
        """Receive from here from now on."""
        threading.Thread(target=self._run, args=(subscription,), daemon=True).start()
        return {}

    def expect(self, first_seq: int, count: int) -> Answer:
        """Forget what has come; what comes now should be these."""
        with self._changed:
            self._responses.clear()
            self._count = 0
            self._first_seq, self._expected = first_seq, count
        return {}

    def arrived(self, patience_s: float) -> Answer:
        """Wait for as many messages as are expected."""
        with self._changed:
            complete = self._changed.wait_for(lambda: self._count >= self._expected or self._error, patience_s)
        if self._error:
            raise RuntimeError(self._error)
        return {"complete": bool(complete), "count": self._count}

    def report(self) -> Answer:
        """Everything that can be said about what has come since `expect`."""
        with self._changed:
            responses = self._responses[:]
        rows: list[tuple[int, int, int]] = []
        arrivals: list[int] = []
        for arrived_us, count, response in responses:
            rows += read_bodies(response)
            arrivals += [arrived_us] * count
        if not rows:
            return {"count": 0, "missing": self._expected}
        table = np.array(rows, dtype=np.int64)
        seqs, dues_us, publish_us = table[:, 0], table[:, 1] * 1000, table[:, 2]
        arrived = np.array(arrivals, dtype=np.int64)
        unique = np.unique(seqs)
        ours = unique[(unique >= self._first_seq) & (unique < self._first_seq + self._expected)]
        low, high = np.sort(arrived)[[len(arrived) // 10, len(arrived) * 9 // 10]]
        return {
            "count": len(seqs),
            "missing": self._expected - len(ours),
            "strays": len(unique) - len(ours),
            "repeats": len(seqs) - len(unique),
            "early": int((publish_us < dues_us).sum()),
            "first_us": int(arrived.min()),
            "last_us": int(arrived.max()),
            "first_publish_us": int(publish_us.min()),
            "last_publish_us": int(publish_us.max()),
            "sustained_per_s": 0.8 * len(arrived) / max(1e-6, float(high - low) / 1e6),
            "lateness_ms": quantiles((publish_us - dues_us) / 1000),
            "arrival_ms": quantiles((arrived - dues_us) / 1000),
        }

    def _run(self, subscription: str) -> None:
        try:
            self._receive(subscription)
        except grpc.RpcError as error:
            with self._changed:
                self._error = f"the stream of {subscription} ended: {error}"
                self._changed.notify_all()

    def _receive(self, subscription: str) -> None:
        def requests() -> Iterator[bytes]:
            first: bytes = types.StreamingPullRequest.pb()(
                subscription=subscription,
                stream_ack_deadline_seconds=60,
                max_outstanding_messages=WINDOW_MESSAGES,
                protocol_version=1,
            ).SerializeToString()
            yield first
            threading.Event().wait()

        acks: deque[Any] = deque()
        for response in self._pull(requests()):
            arrived_us = now_us()
            acknowledge, count = acknowledge_request(subscription, response)
            if not count:
                continue
            acks.append(self._ack.future(acknowledge, timeout=CALL_S))
            if len(acks) > ACKS_IN_FLIGHT_MAX:
                acks.popleft().result()
            with self._changed:
                self._responses.append((arrived_us, count, response))
                self._count += count
                if self._count >= self._expected:
                    self._changed.notify_all()


if __name__ == "__main__":
    consumer = Consumer(sys.argv[1])
    serve(
        {
            "open": consumer.open,
            "expect": consumer.expect,
            "arrived": consumer.arrived,
            "report": consumer.report,
        }
    )
