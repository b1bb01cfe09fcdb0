"""Forms of a message that are legal and rare, the service's limits, and what happens to damaged bytes."""

from __future__ import annotations

import pytest
from google.pubsub_v1.types import PublishResponse, PubsubMessage, ReceivedMessage, StreamingPullResponse

from engine.config import PubSubLimits
from engine.pubsub import wire
from tests.property.wire_oracle import expect, read, stripped, varint

LIMITS = PubSubLimits()


def piece(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def attribute(key, value):
    return piece(2, piece(1, key.encode()) + piece(2, value.encode()))


ID_AND_TIME = piece(3, b"42") + piece(4, b"\x08\x05")
TIME = attribute("available_at", "5")
OTHER = attribute("a", "b")

ODD = {
    "the time twice, the last one counts": TIME + OTHER + attribute("available_at", "6"),
    "value before name": piece(2, piece(2, b"6") + piece(1, b"available_at")),
    "usual, then value before name": TIME + piece(2, piece(2, b"6") + piece(1, b"available_at")),
    "value before name, then usual": piece(2, piece(2, b"6") + piece(1, b"available_at")) + TIME,
    "a second name in the entry wins": piece(2, piece(1, b"available_at") + piece(2, b"5") + piece(1, b"note")),
    "a second name makes it the time": piece(2, piece(1, b"note") + piece(2, b"5") + piece(1, b"available_at")),
    "a second value wins": piece(2, piece(1, b"available_at") + piece(2, b"5") + piece(2, b"66")),
    "an unknown field in the entry": piece(2, piece(1, b"available_at") + piece(2, b"5") + b"\x18\x01"),
    "two names, two values": piece(2, piece(1, b"x") + piece(1, b"available_at"))
    + piece(2, piece(2, b"y") + piece(2, b"z")),
    "no value": piece(2, piece(1, b"available_at")),
    "no name": piece(2, piece(2, b"5")) + TIME,
    "an empty entry": piece(2, b"") + TIME,
    "a length longer than need be": b"\x12\x95\x00" + piece(1, b"available_at") + piece(2, b"123") + b"\x18\x01",
    "a tag longer than need be": b"\x92\x00" + TIME[1:],
    "a long value before": attribute("long", "v" * 200) + TIME,
    "a long time": attribute("available_at", "9" * 200),
    "the same bytes inside a value": attribute("note", TIME.decode()) + TIME,
    "the same bytes inside a value only": attribute("note", TIME.decode()),
    "the name inside a value": attribute("note", "available_at"),
    "data behind the attributes": TIME + piece(1, b"data"),
    "data twice": piece(1, b"a") + piece(1, b"b") + TIME,
    "data that looks like attributes": piece(1, TIME) + OTHER,
    "attributes around an unknown field": OTHER + piece(9, b"new") + TIME,
    "the time behind the ordering key": piece(5, b"key") + TIME,
    "a group": b"\x3b\x08\x01\x3c" + TIME,
    "umlauts": attribute("ä", "ö") + TIME,
    "every name that is cut": b"".join(attribute(name, "x") for name in sorted(wire.CUT)) + OTHER,
    "names that are kept": attribute("scheduler-key", "k") + attribute("scheduler-expires-at", "9") + TIME,
    "nothing": b"",
}


@pytest.mark.parametrize(
    "body", [b for name, b in ODD.items() if name != "a group"], ids=[n for n in ODD if n != "a group"]
)
def test_rare_forms_are_cut_by_the_specification(body):
    assert wire.strip_inputs(body) == stripped(body)
    assert wire.strip_inputs(piece(1, b"data" * 60) + body) == stripped(piece(1, b"data" * 60) + body)


@pytest.mark.parametrize("place", ["in order", "id first", "time last", "between"])
@pytest.mark.parametrize(
    "body", [b for name, b in ODD.items() if name != "a group"], ids=[n for n in ODD if n != "a group"]
)
def test_rare_forms_are_received_by_the_specification(body, place):
    head, tail = piece(3, b"42"), piece(4, b"\x08\x05\x10\x80\xa4\xe8\x03")
    message = {
        "in order": body + head + tail,
        "id first": head + body + tail,
        "time last": head + tail + body,
        "between": head + tail + piece(3, b"43") + body,
    }[place]
    received = wire.parse_response(response(message, TIME + ID_AND_TIME))
    expected = expect(message)
    assert received.payloads[0] == expected.payload
    assert received.message_ids[0] == expected.message_id
    assert received.publish_us[0] == expected.publish_us
    assert received.available_at == [expected.attributes.get("available_at"), "5"]
    assert received.ordering_keys[0] == expected.ordering_key
    inputs = {k: v for k, v in expected.attributes.items() if k.startswith("scheduler-")}
    assert received.inputs == [inputs or None, None]
    assert not received.faults


def test_a_group_is_kept_whole():
    message = ODD["a group"]
    assert wire.strip_inputs(message) == b"\x3b\x08\x01\x3c"
    received = wire.parse_response(response(message + ID_AND_TIME))
    assert received.payloads == [message]
    assert received.available_at == ["5"]


def test_values_do_not_slide_between_neighbours():
    """Two ids in one message and none in the next add up to one each, but are not."""
    first = TIME + piece(3, b"1") + piece(3, b"2") + piece(4, b"\x08\x05")
    second = TIME + piece(4, b"\x08\x05") + piece(4, b"\x08\x06")
    received = wire.parse_response(response(first, second))
    assert received.message_ids[0] == "2"
    assert received.message_ids[1].startswith("unreadable-")
    assert "no message id" in received.faults[1]
    assert received.publish_us == [5_000_000, 6_000_000]


def test_ack_ids_do_not_slide_between_neighbours():
    message = TIME + ID_AND_TIME
    doubled = piece(1, piece(1, b"one") + piece(1, b"two") + piece(2, message))
    without = piece(1, piece(2, message))
    received = wire.parse_response(doubled + without)
    assert received.ack_ids == ["two", ""]


def test_google_s_own_messages_are_read():
    messages = [
        PubsubMessage(data=b"x", attributes={"available_at": "7", "k": "v", "scheduler-key": "a"}, message_id="m1"),
        PubsubMessage(attributes={"scheduler-delay": "1h"}, message_id="m2", ordering_key="schlüssel"),
    ]
    for message in messages:
        message.publish_time = "2026-01-02T03:04:05.678901Z"
    data = StreamingPullResponse.serialize(
        StreamingPullResponse(
            received_messages=[
                ReceivedMessage(ack_id=f"ack{n}", message=message, delivery_attempt=n)
                for n, message in enumerate(messages)
            ]
        )
    )
    received = wire.parse_response(data)
    assert received.ack_ids == ["ack0", "ack1"]
    assert received.message_ids == ["m1", "m2"]
    assert received.publish_us == [1767323045678901] * 2
    assert received.ordering_keys == ["", "schlüssel"]
    assert received.available_at == ["7", None]
    assert received.inputs == [{"scheduler-key": "a"}, {"scheduler-delay": "1h"}]
    assert received.delivery_attempts == [0, 1]
    for payload, message in zip(received.payloads, messages, strict=True):
        parsed = PubsubMessage.deserialize(payload)
        assert (parsed.data, parsed.attributes, parsed.ordering_key) == (
            message.data,
            message.attributes,
            message.ordering_key,
        )
        assert not parsed.message_id


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        (b"\x0a\x05ab", "longer than the message"),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "does not end"),
        (b"\x00\x01" + ID_AND_TIME, "no field has the tag"),
        (attribute("a", "b") + piece(3, b"\xff\xfe") + piece(4, b"\x08\x05"), "the message id is not UTF-8"),
        (piece(2, piece(1, b"\xff") + piece(2, b"v")) + ID_AND_TIME, "an attribute's name is not UTF-8"),
        (piece(2, piece(1, b"k") + piece(2, b"\xff")) + ID_AND_TIME, "the attribute 'k' is not UTF-8"),
        (piece(2, b"\x0a\x09k") + ID_AND_TIME, "longer than the message"),
        (piece(3, b"42") + piece(4, b"\x08"), "publish time cannot be decoded"),
        (ID_AND_TIME + piece(5, b"\xff"), "the ordering key is not UTF-8"),
        (TIME, "no message id"),
    ],
)
def test_a_damaged_message_is_reported_with_the_reason_and_its_neighbours_pass(message, fault):
    good = TIME + ID_AND_TIME
    received = wire.parse_response(response(good, message, good))
    assert list(received.faults) == [1]
    assert fault in received.faults[1]
    assert received.message_ids[1]
    assert [received.message_ids[0], received.message_ids[2]] == ["42", "42"]
    assert len({len(column) for column in received[:-1]}) == 1


def test_a_response_that_is_no_list_of_messages_raises():
    with pytest.raises(wire.WireError):
        wire.parse_response(b"\x0a\x7fshort")


def test_an_empty_response_gives_empty_columns():
    assert wire.parse_response(b"").ack_ids == []
    assert wire.parse_response(piece(4, b"\x08\x01")).payloads == []


class TestOutgoing:
    ADDED = (
        ("scheduler-message-id", "c-1-7"),
        ("scheduler-due", "2026-01-01T00:00:00.000Z"),
        ("scheduler-channel", "ü"),
    )

    def test_new_attributes_come_last_in_the_order_given(self):
        out = wire.outgoing(OTHER + TIME + attribute("scheduler-due", "forged"), added=self.ADDED)
        assert out == (OTHER + b"".join(attribute(k, v) for k, v in self.ADDED), 0)

    @pytest.mark.parametrize(("present", "dropped"), [(97, 0), (98, 1), (99, 2), (100, 3)])
    def test_a_hundred_attributes_are_never_exceeded(self, present, dropped):
        payload = TIME + b"".join(attribute(f"a{n}", "") for n in range(present))
        out = wire.outgoing(payload, added=self.ADDED)
        assert out.dropped == dropped
        assert len(PubsubMessage.deserialize(out.data).attributes) == 100

    def test_doubled_names_count_once(self):
        payload = b"".join(attribute("a", str(n)) for n in range(120))
        assert wire.outgoing(payload, added=self.ADDED).dropped == 0

    def test_a_message_without_data_and_attributes_stays_valid_by_the_new_ones(self):
        out = wire.outgoing(TIME, added=self.ADDED)
        assert PubsubMessage.deserialize(out.data).attributes["scheduler-message-id"] == "c-1-7"

    @pytest.mark.parametrize("spare", [0, 1, 27, 28, 60, 200])
    def test_the_request_never_exceeds_the_service_s_limit(self, spare):
        topic = "projects/p/topics/t-1"
        overhead = wire.request_size(topic, b"") + 3 + len(TIME)
        data = b"x" * (LIMITS.request_bytes_max - overhead - 5 - spare)
        payload = piece(1, data) + TIME
        out = wire.outgoing(payload, added=self.ADDED, topic=topic)
        size = wire.request_size(topic, out.data)
        assert size == len(wire.publish_request(topic, [out.data])) <= LIMITS.request_bytes_max
        assert len(PubsubMessage.deserialize(out.data).attributes) == 3 - out.dropped
        if out.dropped:
            following = self.ADDED[3 - out.dropped]
            assert size + len(attribute(*following)) > LIMITS.request_bytes_max

    def test_a_message_too_big_even_bare_comes_back_bare_and_can_be_told(self):
        payload = piece(1, b"x" * LIMITS.request_bytes_max) + TIME
        out = wire.outgoing(payload, added=self.ADDED, topic="t")
        assert out.dropped == 3
        assert wire.request_size("t", out.data) > LIMITS.request_bytes_max


def test_the_ids_of_a_publish_response_come_in_order():
    data = PublishResponse.serialize(PublishResponse(message_ids=["3", "1", "2"]))
    assert wire.parse_publish_response(data) == ["3", "1", "2"]


def test_a_huge_message_passes_unchanged():
    body = piece(1, bytes(range(256)) * 39_000) + OTHER
    received = wire.parse_response(response(body + ID_AND_TIME))
    assert received.payloads == [body]
    assert read(wire.strip_inputs(body + TIME))[0].content == bytes(range(256)) * 39_000


def response(*messages):
    return b"".join(piece(1, piece(1, b"ack") + piece(2, message)) for message in messages)
