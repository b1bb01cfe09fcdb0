"""The handshake: both ends prove that they hold a secret, tell who they are, and derive the keys of the session.

==========  =========  ===========================================================================
message     from       content (MessagePack map; unknown keys are skipped)
==========  =========  ===========================================================================
HELLO       initiator  magic, lowest and highest version, identity, the name it wants, nonce
CHALLENGE   acceptor   version, nonce
PROOF       initiator  HMAC(secret, "initiator" + hash of HELLO and CHALLENGE)
WELCOME     acceptor   identity as bytes, HMAC(secret, "acceptor" + hash of all before and the identity)
REJECT      either     reason and a sentence, instead of the next message
==========  =========  ===========================================================================

Each direction's key is HMAC(secret of its sender, direction + hash). Each end signs with its first secret and accepts
all of its secrets, so a secret is replaced without a moment at which nodes refuse each other. Both nonces are in the
hash: neither end accepts what was recorded earlier. The initiator proves itself first: who merely connects to the port
learns nothing that a guessed secret could be compared with.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets as random_bytes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, TypeVar

import msgspec

from engine.errors import ConfigError
from engine.raft.transport.admission import RefusedError
from engine.raft.transport.frames import Buffer, Frame, FrameType, frame_parts
from engine.raft.transport.transport import Identity, Reason

VERSIONS: Final = (1, 1)
"""The lowest and the highest version of the protocol that this program speaks."""
_MAGIC: Final = "EVSCHRFT"
_NONCE_BYTES: Final = 32
_SECRET_BYTES_MIN: Final = 16
_Nonce = Annotated[bytes, msgspec.Meta(min_length=_NONCE_BYTES, max_length=_NONCE_BYTES)]

Admit = Callable[[Identity], None]
"""Raises RefusedError for an identity that may not talk to this node."""


class _Hello(msgspec.Struct, kw_only=True):
    magic: str
    version_min: int
    version_max: int
    identity: Identity
    to: str
    nonce: _Nonce


class _Challenge(msgspec.Struct, kw_only=True):
    version: int
    nonce: _Nonce


class _Proof(msgspec.Struct, kw_only=True):
    mac: bytes


class _Welcome(msgspec.Struct, kw_only=True):
    identity: bytes
    mac: bytes


class _Rejection(msgspec.Struct, kw_only=True):
    reason: str
    detail: str


_T = TypeVar("_T", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What both ends have agreed on."""

    peer: Identity
    connection_id: str
    send_key: bytes
    receive_key: bytes


def parse_secrets(text: str) -> tuple[bytes, ...]:
    """CLUSTER_SECRET: one secret a line, the first signs; ConfigError for one of less than 16 bytes."""
    secrets = tuple(line.strip().encode() for line in text.splitlines() if line.strip())
    for number, secret in enumerate(secrets, 1):
        if len(secret) < _SECRET_BYTES_MIN:
            raise ConfigError(
                f"CLUSTER_SECRET: secret {number} has {len(secret)} bytes, at least {_SECRET_BYTES_MIN} are needed:"
                " for example the output of `openssl rand -hex 32`"
            )
    return secrets


def fingerprint(secret: bytes) -> str:
    """8 hex digits by which people compare the secrets of two nodes in their logs."""
    return hmac.digest(secret, b"fingerprint", hashlib.sha256)[:4].hex() if secret else "none"


def rejection(refused: RefusedError) -> list[Buffer]:
    """The body of the REJECT frame that tells the other end."""
    return [msgspec.msgpack.encode(_Rejection(reason=refused.reason, detail=refused.detail))]


def rejected(frame: Frame) -> RefusedError:
    """What a REJECT frame of the other end says."""
    told = _decode(frame, _Rejection)
    try:
        reason = Reason(told.reason)
    except ValueError:
        reason = Reason.BAD_HANDSHAKE
    return RefusedError(reason, told.detail[:500], by_peer=True)


class _Handshake:
    """What both roles have in common: the transcript's hash and the secrets."""

    def __init__(self, secrets: Sequence[bytes]) -> None:
        self.session: Session | None = None
        """Set when this end has nothing more to wait for."""
        self.claimed: Identity | None = None
        """Who the other end says it is, before it has proven anything."""
        self._secrets = tuple(secrets) or (b"",)
        self._hash = hashlib.sha256()

    def _sent(self, frame_type: FrameType, message: msgspec.Struct) -> list[Buffer]:
        body = msgspec.msgpack.encode(message)
        self._note(body)
        return frame_parts(None, frame_type, (body,))

    def _note(self, body: bytes) -> None:
        self._hash.update(len(body).to_bytes(4, "little"))
        self._hash.update(body)

    def _mac(self, secret: bytes, label: str) -> bytes:
        return hmac.digest(secret, label.encode() + self._hash.digest(), hashlib.sha256)

    def _proven(self, mac: bytes, label: str) -> bytes:
        """The secret with which the other end signed; RefusedError when it is none of ours."""
        found: bytes | None = None
        for secret in self._secrets:
            if hmac.compare_digest(self._mac(secret, label), mac):
                found = secret
        if found is None:
            detail = "the other node signs with none of the secrets of this one"
            raise RefusedError(Reason.WRONG_SECRET, detail, claimed=self.claimed)
        return found

    def _agree(self, initiator_secret: bytes, acceptor_secret: bytes) -> tuple[str, bytes, bytes]:
        """(connection id, key of the initiator's frames, key of the acceptor's frames)."""
        return (
            hashlib.sha256(b"connection" + self._hash.digest()).hexdigest()[:16],
            self._mac(initiator_secret, "initiator's frames"),
            self._mac(acceptor_secret, "acceptor's frames"),
        )


class Initiator(_Handshake):
    """The end that dialled; whoever opens the session decides whether the other end is welcome."""

    def __init__(self, own: Identity, to: str, secrets: Sequence[bytes], versions: tuple[int, int] = VERSIONS) -> None:
        super().__init__(secrets)
        self._own = own
        self._to = to
        self._versions = versions
        self._expected = FrameType.CHALLENGE

    def begin(self) -> list[Buffer]:
        """The first frame."""
        low, high = self._versions
        hello = _Hello(
            magic=_MAGIC,
            version_min=low,
            version_max=high,
            identity=self._own,
            to=self._to,
            nonce=random_bytes.token_bytes(_NONCE_BYTES),
        )
        return self._sent(FrameType.HELLO, hello)

    def receive(self, frame: Frame) -> list[Buffer]:
        """What to answer to a frame; RefusedError ends the handshake."""
        _expect(frame, self._expected)
        if self._expected is FrameType.CHALLENGE:
            challenge = _decode(frame, _Challenge)
            if not self._versions[0] <= challenge.version <= self._versions[1]:
                raise RefusedError(Reason.INCOMPATIBLE_VERSION, f"it chose protocol version {challenge.version}")
            self._note(frame.body)
            self._expected = FrameType.WELCOME
            return self._sent(FrameType.PROOF, _Proof(mac=self._mac(self._secrets[0], "initiator")))
        welcome = _decode(frame, _Welcome)
        self._note(welcome.identity)
        secret = self._proven(welcome.mac, "acceptor")
        self.claimed = peer = _identity(welcome.identity)
        if self._to and peer.name != self._to:
            detail = f"at this address answers {peer.name!r} and not {self._to!r}"
            raise RefusedError(Reason.OTHER_NODE, detail, claimed=peer)
        connection_id, own_key, other_key = self._agree(self._secrets[0], secret)
        self.session = Session(peer=peer, connection_id=connection_id, send_key=own_key, receive_key=other_key)
        return []


class Acceptor(_Handshake):
    """The end that was dialled; it says welcome to those alone whom `admit` lets in."""

    def __init__(
        self, own: Identity, secrets: Sequence[bytes], admit: Admit, versions: tuple[int, int] = VERSIONS
    ) -> None:
        super().__init__(secrets)
        self._own = own
        self._admit = admit
        self._versions = versions
        self._expected = FrameType.HELLO
        self._to = ""

    def receive(self, frame: Frame) -> list[Buffer]:
        """What to answer to a frame; RefusedError ends the handshake."""
        _expect(frame, self._expected)
        if self._expected is FrameType.HELLO:
            return self._challenge(frame, _decode(frame, _Hello))
        proof = _decode(frame, _Proof)
        secret = self._proven(proof.mac, "initiator")
        if self._to not in ("", self._own.name):
            detail = f"this is {self._own.name!r} and not {self._to!r}"
            raise RefusedError(Reason.OTHER_NODE, detail, claimed=self.claimed)
        assert self.claimed is not None
        self._admit(self.claimed)
        self._note(frame.body)
        identity = msgspec.msgpack.encode(self._own)
        self._note(identity)
        connection_id, other_key, own_key = self._agree(secret, self._secrets[0])
        mac = self._mac(self._secrets[0], "acceptor")
        self.session = Session(peer=self.claimed, connection_id=connection_id, send_key=own_key, receive_key=other_key)
        body = msgspec.msgpack.encode(_Welcome(identity=identity, mac=mac))
        return frame_parts(None, FrameType.WELCOME, (body,))

    def _challenge(self, frame: Frame, hello: _Hello) -> list[Buffer]:
        if hello.magic != _MAGIC:
            raise RefusedError(Reason.BAD_HANDSHAKE, "the first message is not one of this protocol")
        self.claimed = hello.identity
        low, high = self._versions
        version = min(high, hello.version_max)
        if version < max(low, hello.version_min):
            detail = (
                f"this node speaks protocol versions {low} to {high},"
                f" the other one {hello.version_min} to {hello.version_max}"
            )
            raise RefusedError(Reason.INCOMPATIBLE_VERSION, detail, claimed=self.claimed)
        self._to = hello.to
        self._note(frame.body)
        self._expected = FrameType.PROOF
        challenge = _Challenge(version=version, nonce=random_bytes.token_bytes(_NONCE_BYTES))
        return self._sent(FrameType.CHALLENGE, challenge)


def _expect(frame: Frame, expected: FrameType) -> None:
    if frame.type is FrameType.REJECT:
        raise rejected(frame)
    if frame.type is not expected:
        detail = f"a {frame.type.name} frame came where {expected.name} was expected"
        raise RefusedError(Reason.BAD_HANDSHAKE, detail)


def _decode(frame: Frame, kind: type[_T]) -> _T:
    try:
        return msgspec.msgpack.decode(frame.body, type=kind)
    except msgspec.MsgspecError as error:
        raise RefusedError(Reason.BAD_HANDSHAKE, f"a {frame.type.name} frame is malformed: {error}") from error


def _identity(body: bytes) -> Identity:
    try:
        return msgspec.msgpack.decode(body, type=Identity)
    except msgspec.MsgspecError as error:
        raise RefusedError(Reason.BAD_HANDSHAKE, f"an identity is malformed: {error}") from error
