"""Reading a stored PubsubMessage, against Google's own code."""

from __future__ import annotations

from typing import Any

import pytest
from google.pubsub_v1.types import pubsub as types
from hypothesis import given
from hypothesis import strategies as st

from channels_app.payload import Payload, PayloadError, read_payload

PubsubMessage: Any = types.PubsubMessage.pb()
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.binary(max_size=300), st.dictionaries(names, names, max_size=8), names)
def test_data_and_attributes_are_those_that_google_wrote(data: bytes, attributes: dict[str, str], key: str) -> None:
    message = PubsubMessage(data=data, attributes=attributes, ordering_key=key, message_id="7")
    message.publish_time.FromMicroseconds(1_700_000_000_000_001)
    assert read_payload(message.SerializeToString()) == Payload(data=data, attributes=attributes)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_refused(content: bytes) -> None:
    try:
        read_payload(content)
    except PayloadError:
        return


@pytest.mark.parametrize("content", [b"\x0a\x05ab", b"\x0a", b"\x0b", b"\xff" * 11, b"\x12\x03\x0a\x09x"])
def test_a_cut_or_broken_message_is_refused(content: bytes) -> None:
    with pytest.raises(PayloadError):
        read_payload(content)
