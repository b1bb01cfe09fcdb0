"""Whatever legal bytes come in: columns say what is in them, and everything but what must be cut leaves as it came."""

from __future__ import annotations

from google.pubsub_v1.types import PublishRequest, PubsubMessage
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.pubsub import wire
from engine.pubsub.received import _parse_columns, _parse_exactly
from tests.property.wire_oracle import (
    CUT,
    entry,
    expect,
    extras,
    fields,
    messages,
    payloads,
    read,
    stripped,
    unknown_fields,
    usual_messages,
    varint,
)

added = st.lists(
    st.tuples(
        st.sampled_from(["scheduler-message-id", "scheduler-due", "scheduler-channel"]),
        st.one_of(st.text(max_size=200), st.just("2026-01-01T00:00:00.123Z")),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda pair: pair[0],
)


@st.composite
def responses(draw, content=messages):
    """A StreamingPullResponse, the messages in it and their delivery attempts."""
    inside = draw(st.lists(content, max_size=6))
    usual = draw(st.integers(0, 3)) > 0
    attempt = draw(st.sampled_from(["none", "all", "some"]))
    data = b""
    attempts = []
    for number, message in enumerate(inside):
        count = 0 if attempt == "none" or (attempt == "some" and draw(st.booleans())) else draw(st.integers(1, 300))
        attempts.append(count)
        counted = b"\x18" + varint(count) if count else b""
        ack_id = f"ack-{number}".encode()
        if usual:
            data += _received(ack_id, message, counted)
            continue
        parts = [draw(fields(1, ack_id)), draw(fields(2, message)), counted]
        parts += draw(st.lists(unknown_fields(st.integers(4, 9)), max_size=1))
        data += draw(fields(1, b"".join(draw(st.permutations(parts)))))
        data += draw(st.one_of(st.just(b""), unknown_fields(st.integers(2, 9))))
    return data, inside, attempts


def assert_matches(received, inside, attempts):
    expected = [expect(message) for message in inside]
    assert received.faults == {}
    assert received.ack_ids == [f"ack-{number}" for number in range(len(inside))]
    assert received.payloads == [e.payload for e in expected]
    assert received.message_ids == [e.message_id for e in expected]
    assert received.publish_us == [e.publish_us for e in expected]
    assert received.ordering_keys == [e.ordering_key for e in expected]
    assert received.available_at == [e.attributes.get("available_at") for e in expected]
    others = [{k: v for k, v in e.attributes.items() if k.startswith("scheduler-")} for e in expected]
    assert received.inputs == [found or None for found in others]
    assert received.delivery_attempts == attempts


@given(responses())
@settings(max_examples=120)
def test_a_response_is_split_exactly_as_the_specification_says(response):
    data, inside, attempts = response
    assert_matches(wire.parse_response(data), inside, attempts)


@given(responses(content=usual_messages()))
@settings(max_examples=150)
def test_a_response_as_the_service_writes_it_is_split_exactly(response):
    data, inside, attempts = response
    assert_matches(wire.parse_response(data), inside, attempts)


@given(responses())
@settings(max_examples=50)
def test_the_field_by_field_way_gives_the_same_answer(response):
    data, inside, attempts = response
    assert_matches(_parse_exactly(data), inside, attempts)


@given(st.binary(max_size=200))
@settings(max_examples=100)
def test_a_message_of_arbitrary_bytes_is_reported_and_does_not_disturb_its_neighbours(garbage):
    good = _received(b"ack-1", b"\x0a\x01x" + _attribute("available_at", "5") + b"\x1a\x017\x22\x02\x08\x09")
    data = good + _received(b"ack-2", garbage) + good
    received = wire.parse_response(data)
    assert received.ack_ids == ["ack-1", "ack-2", "ack-1"]
    assert received.message_ids[0] == received.message_ids[2] == "7"
    assert received.available_at[0] == received.available_at[2] == "5"
    assert set(received.faults) <= {1}
    assert received.message_ids[1]
    if 1 in received.faults:
        assert wire.parse_response(data).message_ids[1] == received.message_ids[1]
    wire.strip_inputs(garbage)
    wire.outgoing(garbage, added=[("scheduler-due", "x")])


@given(payloads)
@example(b"")
@settings(max_examples=120)
def test_stripping_cuts_the_named_attributes_and_nothing_else(payload):
    assert wire.strip_inputs(payload) == stripped(payload)


@given(payloads, added)
@settings(max_examples=100)
def test_outgoing_is_the_stripped_payload_followed_by_the_new_attributes(payload, new):
    out = wire.outgoing(payload, added=new)
    assert out.dropped == 0
    bare = stripped(payload)
    assert out.data.startswith(bare)
    assert [entry(piece.content) for piece in read(out.data[len(bare) :])] == new
    parsed = PubsubMessage.deserialize(out.data)
    assert {key for key in parsed.attributes if key in CUT} == {key for key, _value in new}


@given(st.lists(payloads, max_size=5), st.text(min_size=1, max_size=300))
@settings(max_examples=50)
def test_a_request_is_what_google_s_own_types_read_from_it(inside, topic):
    request = wire.publish_request(topic, inside)
    parsed = PublishRequest.deserialize(request)
    assert parsed.topic == topic
    assert [PubsubMessage.serialize(m) for m in parsed.messages] == [
        PubsubMessage.serialize(PubsubMessage.deserialize(payload)) for payload in inside
    ]
    if len(inside) == 1:
        assert wire.request_size(topic, inside[0]) == len(request)


@given(st.binary(max_size=300), st.dictionaries(st.text(max_size=20), st.text(max_size=200), max_size=5), st.text())
def test_a_built_message_reads_back(data, attributes, ordering_key):
    built = wire.build_message(data, attributes, ordering_key)
    parsed = PubsubMessage.deserialize(built)
    assert (parsed.data, dict(parsed.attributes), parsed.ordering_key) == (data, attributes, ordering_key)
    assert wire.read_attributes(built) == attributes


@given(st.integers(0, 2**40), extras)
def test_numbers_are_read_in_any_length(number, extra):
    data = b"\x10" + varint(number, extra)
    assert [piece.content for piece in read(data)] == [data[1:]]
    ours = next(iter(wire_fields(data)))
    assert (ours.number, ours.stop) == (2, len(data))


@given(messages)
@settings(max_examples=60)
def test_columns_are_never_wrong_even_where_they_give_up(message):
    data = _received(b"a", message)
    try:
        columns = _parse_columns(data)
    except Exception:  # Giving up is fine: parse_response then goes the exact way.
        return
    assert columns == _parse_exactly(data)


def wire_fields(data):
    from engine.pubsub.fields import read_fields

    return read_fields(data, 0, len(data))


def _attribute(key, value):
    content = b"\x0a" + varint(len(key)) + key.encode() + b"\x12" + varint(len(value)) + value.encode()
    return b"\x12" + varint(len(content)) + content


def _received(ack_id, message, rest=b""):
    content = b"\x0a" + varint(len(ack_id)) + ack_id + b"\x12" + varint(len(message)) + message + rest
    return b"\x0a" + varint(len(content)) + content
