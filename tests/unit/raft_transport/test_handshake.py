"""The handshake alone: two ends, and whoever stands between them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import ConfigError
from engine.raft.transport.admission import RefusedError
from engine.raft.transport.frames import Buffer, Frame, FrameReader, FrameType
from engine.raft.transport.handshake import Acceptor, Initiator, fingerprint, parse_secrets
from engine.raft.transport.transport import Identity, Reason
from tests.unit.raft_transport.harness import SECRET, identity

A = identity("a", "a:1")
B = identity("b", "b:1")
OLD, NEW = b"the old secret of them", b"the new secret of them"


Meddle = Callable[[int, Frame], Frame]


def everyone(claimed: Identity) -> None:
    """Lets in whoever holds the secret."""


def one_frame(parts: list[Buffer]) -> Frame:
    reader = FrameReader(4096)
    reader.feed(b"".join(parts))
    frame = reader.next()
    assert frame is not None
    return frame


def altered(frame: Frame, place: int, change: int) -> Frame:
    body = bytearray(frame.body)
    body[place % len(body)] ^= change
    return frame._replace(body=bytes(body))


def shake(
    initiator: Initiator, acceptor: Acceptor, meddle: Callable[[int, Frame], Frame] = lambda n, f: f
) -> list[Frame]:
    """Carry the handshake through; `meddle(number, frame)` says what arrives. Every frame that was sent, in order."""
    sent = [one_frame(initiator.begin())]
    for number in range(4):
        end = acceptor if number % 2 == 0 else initiator
        answer = end.receive(meddle(number, sent[-1]))
        if answer:
            sent.append(one_frame(answer))
    return sent


def test_both_ends_agree_on_id_and_keys_and_know_each_other() -> None:
    initiator, acceptor = Initiator(A, "b", [SECRET]), Acceptor(B, [SECRET], everyone)
    shake(initiator, acceptor)
    mine, theirs = initiator.session, acceptor.session
    assert mine is not None
    assert theirs is not None
    assert (mine.peer, theirs.peer) == (B, A)
    assert mine.connection_id == theirs.connection_id
    assert (mine.send_key, mine.receive_key) == (theirs.receive_key, theirs.send_key)
    assert mine.send_key != mine.receive_key


def test_each_session_has_keys_of_its_own() -> None:
    keys = set()
    for _ in range(3):
        initiator = Initiator(A, "b", [SECRET])
        shake(initiator, Acceptor(B, [SECRET], everyone))
        assert initiator.session is not None
        keys |= {initiator.session.send_key, initiator.session.receive_key, initiator.session.connection_id.encode()}
    assert len(keys) == 9


@pytest.mark.parametrize(
    ("ours", "theirs"), [([OLD], [OLD, NEW]), ([OLD, NEW], [NEW, OLD]), ([NEW], [NEW, OLD]), ([], [])]
)
def test_ends_that_accept_each_others_first_secret_agree(ours: list[bytes], theirs: list[bytes]) -> None:
    shake(Initiator(A, "b", ours), Acceptor(B, theirs, everyone))
    shake(Initiator(A, "b", theirs), Acceptor(B, ours, everyone))


def test_an_acceptor_that_signs_with_an_unknown_secret_is_refused_by_the_initiator() -> None:
    initiator, acceptor = Initiator(A, "b", [OLD]), Acceptor(B, [NEW, OLD], everyone)
    with pytest.raises(RefusedError) as caught:
        shake(initiator, acceptor)
    assert caught.value.reason is Reason.WRONG_SECRET
    assert initiator.session is None


@pytest.mark.parametrize("position", range(4))
def test_a_recorded_frame_is_worth_nothing_in_another_handshake(position: int) -> None:
    recorded = shake(Initiator(A, "b", [SECRET]), Acceptor(B, [SECRET], everyone))
    initiator, acceptor = Initiator(A, "b", [SECRET]), Acceptor(B, [SECRET], everyone)
    with pytest.raises(RefusedError) as caught:
        shake(initiator, acceptor, lambda number, frame: recorded[number] if number == position else frame)
    assert caught.value.reason is Reason.WRONG_SECRET
    assert initiator.session is None


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 3), st.integers(min_value=0), st.integers(1, 255))
def test_no_altered_byte_goes_unnoticed_by_both_ends(position: int, place: int, change: int) -> None:
    initiator, acceptor = Initiator(A, "b", [SECRET]), Acceptor(B, [SECRET], everyone)
    with pytest.raises(RefusedError):
        shake(initiator, acceptor, lambda number, frame: altered(frame, place, change) if number == position else frame)
    assert initiator.session is None


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(FrameType), st.binary(max_size=200), st.booleans())
def test_any_other_frame_is_refused_in_words(frame_type: FrameType, body: bytes, to_acceptor: bool) -> None:
    end: Initiator | Acceptor = Acceptor(B, [SECRET], everyone) if to_acceptor else Initiator(A, "b", [SECRET])
    with pytest.raises(RefusedError) as caught:
        end.receive(Frame(frame_type, 0, 0, body))
    assert caught.value.detail


def test_versions_that_do_not_overlap_are_refused_with_both_ranges() -> None:
    initiator, acceptor = Initiator(A, "b", [SECRET], versions=(2, 3)), Acceptor(B, [SECRET], everyone)
    with pytest.raises(RefusedError, match=r"versions 1 to 1.* 2 to 3") as caught:
        acceptor.receive(one_frame(initiator.begin()))
    assert caught.value.reason is Reason.INCOMPATIBLE_VERSION
    shake(Initiator(A, "b", [SECRET], versions=(1, 3)), Acceptor(B, [SECRET], everyone, versions=(1, 2)))


def test_nobody_is_judged_before_the_secret_is_proven() -> None:
    judged: list[str] = []
    acceptor = Acceptor(B, [SECRET], lambda claimed: judged.append(claimed.name))
    initiator = Initiator(A, "b", [b"another secret than theirs"])
    challenge = one_frame(acceptor.receive(one_frame(initiator.begin())))
    with pytest.raises(RefusedError):
        acceptor.receive(one_frame(initiator.receive(challenge)))
    assert judged == []


def test_secrets_are_read_one_a_line_and_short_ones_refused_without_being_shown() -> None:
    assert parse_secrets(f"\n  {NEW.decode()} \n{OLD.decode()}\n") == (NEW, OLD)
    assert parse_secrets("") == ()
    with pytest.raises(ConfigError, match="secret 2 has 5 bytes") as caught:
        parse_secrets(f"{NEW.decode()}\nshort")
    assert "short" not in str(caught.value)


def test_a_fingerprint_tells_secrets_apart_and_is_no_part_of_them() -> None:
    assert fingerprint(OLD) != fingerprint(NEW)
    assert len(fingerprint(OLD)) == 8
    assert fingerprint(b"") == "none"
