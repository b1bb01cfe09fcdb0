"""What was published, what arrived, and whether that is right: it knows the relay only by its promises."""

from __future__ import annotations

import itertools
import random
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

import grpc

from tests.blackbox.pubsub import Arrival, PubSub, with_attributes

AHEAD_MS_MAX: Final = 4000
BATCH: Final = (5, 60)
PAUSE_S: Final = (0.005, 0.03)
SOCKET_US: Final = 100_000
"""A request that left before the kill may be stamped by the broker this much after it."""

ADDED: Final = {
    "scheduler-message-id",
    "scheduler-due",
    "scheduler-released",
    "scheduler-source-message-id",
    "scheduler-channel",
}


class Load:
    """A producer in a thread: random bodies and dues, until it is stopped."""

    def __init__(self, pubsub: PubSub, topic: str, seed: int) -> None:
        self._pubsub, self._topic = pubsub, topic
        self._chance = random.Random(seed)
        self._stopping = threading.Event()
        self.published: dict[bytes, tuple[dict[str, str], int, str]] = {}
        """data → attributes, due_ms, source message id; only what the broker took."""
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """No more messages; raises what went wrong, if anything did."""
        self.close()
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        """No more messages, whatever happened."""
        self._stopping.set()
        self._thread.join(30)

    def _run(self) -> None:
        try:
            while not self._stopping.wait(self._chance.uniform(*PAUSE_S)):
                self._publish()
        except grpc.RpcError as error:
            self.error = error

    def _publish(self) -> None:
        batch = []
        for _ in range(self._chance.randint(*BATCH)):
            now_ms = time.time_ns() // 1_000_000
            # Half of them due at once, so that every kill meets releases as well as accepts.
            due_ms = now_ms - 1000 if self._chance.random() < 0.5 else now_ms + self._chance.randint(1, AHEAD_MS_MAX)
            data = self._chance.randbytes(16 + self._chance.randrange(600))
            attributes = {
                "n": str(len(self.published) + len(batch)),
                "söme": self._chance.choice(["", "ключ", "x" * 50]),
            }
            batch.append((data, attributes, due_ms))
        ids = self._pubsub.publish(
            self._topic,
            [
                with_attributes({**attributes, "available_at": f"{due_ms // 1000}.{due_ms % 1000:03d}"}, data)
                for data, attributes, due_ms in batch
            ],
        )
        for (data, attributes, due_ms), source_id in zip(batch, ids, strict=True):
            self.published[data] = (attributes, due_ms, source_id)


def faults_in(load: Load, arrivals: Sequence[Arrival], kills_us: Sequence[int], in_flight_s: float) -> list[str]:
    """Every promise that was broken, in words; empty = all is well."""
    copies: dict[bytes, list[Arrival]] = defaultdict(list)
    faults: list[str] = []
    for arrival in arrivals:
        copies[arrival.data].append(arrival)
    faults += [f"lost: {data[:8].hex()}, {load.published[data]}" for data in load.published.keys() - copies.keys()]
    faults += [f"altered or not ours: {data[:8].hex()}" for data in copies.keys() - load.published.keys()]
    owners: dict[str, bytes] = {}
    for data, (attributes, due_ms, source_id) in load.published.items():
        for arrival in copies[data]:
            faults += _wrong(arrival, attributes, due_ms, source_id)
            message_id = arrival.attributes.get("scheduler-message-id", "")
            if owners.setdefault(message_id, data) != data:
                faults.append(f"two messages carry the id {message_id}")
        identities = {a.attributes.get("scheduler-message-id") for a in copies[data]}
        if len(identities) > 1:
            faults.append(f"stored twice: {data[:8].hex()} came as {identities}")
        faults += _unexcused(data, sorted(a.publish_us for a in copies[data]), kills_us, in_flight_s)
    return faults


def repeats(arrivals: Sequence[Arrival]) -> int:
    """How many arrivals were further copies."""
    return len(arrivals) - len({a.data for a in arrivals})


def _wrong(arrival: Arrival, attributes: dict[str, str], due_ms: int, source_id: str) -> list[str]:
    """What is wrong with one copy."""
    faults = []
    name = arrival.data[:8].hex()
    if arrival.publish_us < due_ms * 1000:
        faults.append(f"early by {due_ms - arrival.publish_us / 1000} ms: {name}")
    kept: dict[str, Any] = {k: v for k, v in arrival.attributes.items() if k not in ADDED}
    if kept != attributes:
        faults.append(f"attributes of {name} changed: {attributes} → {kept}")
    if not arrival.attributes.keys() >= ADDED:
        faults.append(f"{name} lacks {sorted(ADDED - arrival.attributes.keys())}")
    if arrival.attributes.get("scheduler-source-message-id") != source_id:
        faults.append(f"{name} names another source message than {source_id}")
    return faults


def _unexcused(data: bytes, published_us: list[int], kills_us: Sequence[int], in_flight_s: float) -> list[str]:
    """A copy is excused only when a kill came after the copy before it, and soon: it was in flight then."""
    faults = []
    for earlier_us, later_us in itertools.pairwise(published_us):
        position = bisect_left(kills_us, earlier_us - SOCKET_US)
        killed_us = kills_us[position] if position < len(kills_us) else later_us + 1
        if killed_us > later_us:
            faults.append(f"repeated without a kill between: {data[:8].hex()}")
        elif killed_us - earlier_us > in_flight_s * 1e6:
            faults.append(f"repeated {(killed_us - earlier_us) / 1e6:.2f} s after its release: {data[:8].hex()}")
    return faults
