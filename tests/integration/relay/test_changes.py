"""Changes of a channel at run time: they act on the running listener and releaser."""

from __future__ import annotations

import time

from tests.blackbox.processes import wait_for
from tests.integration.relay.conftest import MakeRelay
from tests.integration.relay.site import Relay, now_ms, numbered

EFFECT_S = 2.0


def test_a_new_destination_takes_effect_within_two_seconds(relay: Relay) -> None:
    target = f"{relay.id}-new"
    relay.pubsub.create_topic(target)
    relay.pubsub.create_subscription(target, target)
    relay.send(b"before")
    relay.out.wait_data([b"before"], 10)
    relay.send(b"held", due_ms=now_ms() + 4000)
    with relay.pubsub.collect(target) as out:
        changed = relay.node.rest.patch(relay.path, {"destination": {"config": {"topic_id": target}}}).ok(200)
        effective_us = time.time_ns() // 1000 + round(EFFECT_S * 1e6)
        assert changed["destination"]["config"] == {**relay.document_now()["destination"]["config"], "topic_id": target}
        sent = []
        while time.time_ns() // 1000 < effective_us + 500_000:
            sent.append(f"after {len(sent)}".encode())
            relay.send(sent[-1])
            time.sleep(0.05)
        wait_for(
            lambda: len(out) + len(relay.out) == len(sent) + 2,
            10,
            lambda: f"{len(out)} + {len(relay.out)} of {len(sent) + 2}",
        )
        assert all(a.publish_us < effective_us for a in relay.out.arrivals)
        assert b"held" in {a.data for a in out.arrivals}
        assert {a.data for a in out.arrivals} | {a.data for a in relay.out.arrivals} == {*sent, b"before", b"held"}


def test_a_new_source_takes_effect_within_two_seconds(relay: Relay) -> None:
    source = f"{relay.id}-other"
    relay.pubsub.create_topic(source)
    relay.pubsub.create_subscription(source, source)
    began_s = time.monotonic()
    relay.node.rest.patch(relay.path, {"source": {"config": {"subscription_id": source}}}).ok(200)
    relay.source = source
    relay.send(b"from the other side")
    relay.out.wait_data([b"from the other side"], EFFECT_S)
    assert time.monotonic() - began_s < EFFECT_S + 1


def test_a_paused_release_holds_what_is_due_until_it_is_resumed(relay: Relay, make_relay: MakeRelay) -> None:
    marker = make_relay()
    paused = relay.node.rest.post(f"{relay.path}/pause", {"side": "release", "reason": "maintenance"}).ok(200)
    assert paused["paused"]["release"]["reason"] == "maintenance"
    assert paused["paused"]["listen"] is None
    relay.send(b"held")
    relay.wait_stat("pending", 1)
    marker.send(b"marker", due_ms=now_ms() + 500)
    marker.out.wait_data([b"marker"], 10)
    assert len(relay.out) == 0
    relay.node.rest.post(f"{relay.path}/resume").ok(200)
    relay.out.wait_data([b"held"], 5)
    relay.wait_state("active")


def test_a_paused_listener_leaves_messages_at_the_source_until_it_is_resumed(
    relay: Relay, make_relay: MakeRelay
) -> None:
    marker = make_relay()
    relay.node.rest.post(f"{relay.path}/pause", {"side": "listen"}).ok(200)
    relay.wait_state("paused")
    relay.send(b"left")
    marker.send(b"marker", due_ms=now_ms() + 500)
    marker.out.wait_data([b"marker"], 10)
    assert relay.stats()["accepted"] == 0
    relay.node.rest.post(f"{relay.path}/resume").ok(200)
    # What a closing stream had been given comes back when its lease of 10 s ends.
    relay.out.wait_data([b"left"], 15)


def test_a_pause_survives_a_restart(relay: Relay) -> None:
    relay.node.rest.post(f"{relay.path}/pause", {"reason": "over night"}).ok(200)
    assert relay.node.stop() == 0
    relay.node.start()
    document = relay.document_now()
    assert document["state"] == "paused"
    assert document["paused"]["listen"]["reason"] == document["paused"]["release"]["reason"] == "over night"
    relay.send(b"morning")
    relay.node.rest.post(f"{relay.path}/resume").ok(200)
    relay.out.wait_data([b"morning"], 10)


def test_a_channel_with_messages_is_deleted_only_when_told_what_becomes_of_them(relay: Relay) -> None:
    relay.send(*numbered("kept", 7), due_ms=now_ms() + 3_600_000)
    relay.wait_stat("pending", 7)
    refused = relay.node.rest.delete(relay.path)
    assert refused.status == 409
    assert "7" in refused.body["detail"]
    assert relay.document_now()["stats"]["pending"] == 7
    assert relay.node.rest.delete(f"{relay.path}?pending=discard").status == 204
    wait_for(lambda: relay.node.rest.get(relay.path).status == 404, 10, "the channel is gone")
    assert len(relay.out) == 0


def test_a_drained_channel_releases_what_it_holds_and_goes(relay: Relay) -> None:
    bodies = numbered("drained", 50)
    due_ms = now_ms() + 1500
    relay.send(*bodies, due_ms=due_ms)
    relay.wait_stat("pending", len(bodies))
    assert relay.node.rest.delete(f"{relay.path}?pending=drain").status in (202, 204)
    assert relay.document_now()["state"] == "closing"
    arrivals = relay.out.wait_data(bodies, 10)
    assert all(a.publish_us >= due_ms * 1000 for a in arrivals)
    wait_for(lambda: relay.node.rest.get(relay.path).status == 404, 10, "the channel is gone")
    assert len(relay.out) == len(bodies)


def test_a_channel_of_a_deleted_name_begins_anew(relay: Relay) -> None:
    relay.send(b"old", due_ms=now_ms() + 3_600_000)
    relay.wait_stat("pending", 1)
    assert relay.node.rest.delete(f"{relay.path}?pending=discard").status == 204
    wait_for(lambda: relay.node.rest.get(relay.path).status == 404, 10, "the channel is gone")
    relay.create()
    relay.wait_state("active")
    assert relay.stats()["accepted"] == 0
    relay.send(b"new")
    relay.out.wait_data([b"new"], 15)
    assert len(relay.out) == 1
