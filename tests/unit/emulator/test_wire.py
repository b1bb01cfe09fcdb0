"""The splice: any message goes through as it came, but for id and time; the short cut of the checks misses nothing."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.emulator import limits
from engine.emulator.errors import Refused
from engine.emulator.publishing import read_publish
from engine.emulator.wire import (
    ack_ids,
    batch_of,
    is_ack_id,
    messages_of,
    publish_response,
    received,
    resource_of,
    stamp,
)
from tests.contract.pubsub.client import pb

MESSAGE = pb("PubsubMessage")
REQUEST = pb("PublishRequest")

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
KEYS = TEXTS.filter(lambda key: key and not key.startswith("goog"))
TIMES = st.integers(0, 10**10 * 10**9)


@st.composite
def pubsub_messages(draw, ordering_keys=TEXTS):
    """Legal messages, some with what only the server may set."""
    message = MESSAGE(
        data=draw(st.binary(max_size=400)),
        attributes=draw(st.dictionaries(KEYS, TEXTS, max_size=6)),
        ordering_key=draw(ordering_keys),
        message_id=draw(st.one_of(st.just(""), TEXTS)),
    )
    if draw(st.booleans()):
        message.publish_time.FromNanoseconds(draw(TIMES))
    if not message.data and not message.attributes:
        message.data = b"x"
    return message


@given(data=st.data(), key=TEXTS, publish_ns=TIMES, number=st.integers(0, 10**14 - 1))
def test_any_message_comes_out_unchanged_but_for_id_and_time(data, key: str, publish_ns: int, number: int) -> None:
    sent = data.draw(st.lists(pubsub_messages(st.just(key)), min_size=1, max_size=5))
    call = read_publish(REQUEST(topic="projects/p/topics/t", messages=sent).SerializeToString())
    messages = messages_of(call.raws, number, batch_of(number, publish_ns, call.ordering_key))
    ids = ack_ids(b"01234567", 12, len(messages))
    attempts = data.draw(st.one_of(st.none(), st.just([200] * len(messages))))
    response = pb("PullResponse").FromString(received(messages, ids, attempts))
    answered = pb("PublishResponse").FromString(publish_response(number, len(messages))).message_ids
    assert [item.ack_id.encode() for item in response.received_messages] == ids
    assert {item.delivery_attempt for item in response.received_messages} == {200 if attempts else 0}
    for before, item, message_id in zip(sent, response.received_messages, answered, strict=True):
        expected = MESSAGE()
        expected.CopyFrom(before)
        expected.message_id = message_id
        expected.publish_time.FromNanoseconds(publish_ns)
        assert item.message == expected


@given(sent=pubsub_messages(), tail=st.sampled_from([b"", b"\x7a\x03abc"]))
def test_fields_that_are_unknown_here_are_kept(sent, tail: bytes) -> None:
    sent = MESSAGE.FromString(sent.SerializeToString() + tail)
    call = read_publish(REQUEST(messages=[sent]).SerializeToString())
    assert MESSAGE.FromString(call.raws[0]).SerializeToString().endswith(tail)


def has_fault(message) -> bool:
    """The limits, said plainly."""
    if not message.data and not message.attributes:
        return True
    if len(message.attributes) > limits.ATTRIBUTES_MAX:
        return True
    return any(
        not key or len(key.encode()) > 256 or len(value.encode()) > 1024 or key.startswith("goog")
        for key, value in message.attributes.items()
    )


@example(size=1, keys=0, key="", value="v", repeat=1)
@given(
    size=st.sampled_from([0, 1, 100, 127, 128, 129, 300, 16_383, 16_384, 20_000]),
    keys=st.integers(0, 120),
    key=st.sampled_from(["", "k", "k" * 255, "é" * 128, "é" * 129, "k" * 257, "google", "*", '"']),
    value=st.sampled_from(["", "v", "v" * 255, "v" * 1024, "v" * 1025, "*", "\x1a"]),
    repeat=st.integers(1, 3),
)
def test_the_short_cut_refuses_exactly_what_a_plain_check_refuses(
    size: int, keys: int, key: str, value: str, repeat: int
) -> None:
    message = MESSAGE(data=bytes(size), attributes={f"{number}": "" for number in range(keys)})
    if value or key:
        message.attributes[key] = value
    request = REQUEST(messages=[MESSAGE(data=b"first"), *[message] * repeat]).SerializeToString()
    if has_fault(message):
        with pytest.raises(Refused):
            read_publish(request)
    else:
        assert len(read_publish(request).raws) == repeat + 1


@given(
    keys=st.lists(st.sampled_from(["", "a", "b", "aa", "é"]), min_size=1, max_size=4), size=st.sampled_from([1, 200])
)
def test_ordering_keys_must_be_all_the_same(keys: list[str], size: int) -> None:
    messages = [MESSAGE(data=bytes(size), attributes={"a": "b"}, ordering_key=key) for key in keys]
    request = REQUEST(topic="projects/p/topics/t", messages=messages).SerializeToString()
    if len(set(keys)) == 1:
        assert read_publish(request).ordering_key == keys[0]
    else:
        with pytest.raises(Refused, match="539b"):
            read_publish(request)


def test_an_ordering_key_is_seen_wherever_it_stands() -> None:
    raw = MESSAGE(ordering_key="k").SerializeToString() + MESSAGE(data=b"x" * 300).SerializeToString()
    request = REQUEST(topic="t").SerializeToString() + b"\x12" + bytes([len(raw) & 0x7F | 0x80, len(raw) >> 7]) + raw
    assert read_publish(request).ordering_key == "k"


@pytest.mark.parametrize("request_bytes", [b"\xff", b"\x12\x05\x0a\x10ab", b"\x12\x04\x12\x02\x0a\xff"])
def test_what_is_no_publish_request_is_refused(request_bytes: bytes) -> None:
    with pytest.raises(Refused, match="cannot be parsed"):
        read_publish(request_bytes)


def test_a_time_of_zero_nanoseconds_still_overrides() -> None:
    client = MESSAGE(data=b"x")
    client.publish_time.FromNanoseconds(1_999_999_999)
    merged = MESSAGE.FromString(client.SerializeToString() + stamp(5_000_000_000))
    assert merged.publish_time.ToNanoseconds() == 5_000_000_000


def test_ack_ids_are_unique_and_recognised() -> None:
    ids = [*ack_ids(b"01234567", 1, 1000), *ack_ids(b"01234567", 2, 1000)]
    assert len(set(ids)) == 2000
    assert all(is_ack_id(ack_id) for ack_id in ids)
    assert not is_ack_id(b"made up")


def test_the_resource_of_a_request_is_found_in_it_or_one_level_down() -> None:
    name = "projects/p/topics/t"
    assert resource_of(REQUEST(topic=name, messages=[MESSAGE(data=b"x")]).SerializeToString()) == name
    assert resource_of(pb("UpdateTopicRequest")(topic={"name": name}).SerializeToString()) == name
    assert resource_of(b"") == ""
    assert resource_of(b"\xff\xff") == ""


def test_what_only_the_server_may_set_is_taken_out_of_the_kept_bytes() -> None:
    sent = MESSAGE(data=b"x", message_id="mine", publish_time={"seconds": 5}, attributes={"a": "b"})
    kept = MESSAGE.FromString(read_publish(REQUEST(messages=[sent]).SerializeToString()).raws[0])
    assert kept == MESSAGE(data=b"x", attributes={"a": "b"})
