"""The verbs: what can be proposed to the log, what apply answers, and the versioned codec between them.

A command on the log is `version byte · opcode byte · msgpack array`. Arrays may grow at the end: an older reader skips
what it does not know, a newer one fills in the default. A new opcode or a changed meaning needs a new version, which
is proposed only once every member speaks it.

The proposer stamps times and makes ids; apply only looks at the command and at the state, so every node answers alike.
"""

from __future__ import annotations

from typing import Final

import msgspec

from engine.errors import SchedulerError
from engine.model import Channel, Closing, Cluster, Destination, Node, Pause, Policy, Side, Source

VERSION: Final = 1


class UnknownCommand(SchedulerError):
    """A committed entry that this version cannot read: the node must stop rather than skip it."""


class Command(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Base of all verbs."""

    stamp_ms: int
    """The proposer's release clock, never below an earlier stamp of the log."""


class Fault(msgspec.Struct, frozen=True, array_like=True):
    """Why a message is set aside: a stable code and a sentence."""

    code: str
    reason: str


class Accept(Command, frozen=True, kw_only=True):
    """Store received messages, given as columns of equal length."""

    channel_uid: int
    subscription: str
    """Full name of the source they came from; part of the duplicate key."""
    source_ids: list[str]
    publish_us: list[int]
    """Publish time at the source in microseconds; part of the duplicate key."""
    dues_ms: list[int]
    """0 for a message that is quarantined or discarded."""
    payloads: list[bytes]
    """Each PubsubMessage as it came, without message id and publish time."""
    ordering_keys: dict[int, str] = {}
    """By position, only where a key is set."""
    keys: dict[int, str] = {}
    """`scheduler-key`, by position."""
    faults: dict[int, Fault] = {}
    """By position: these go to the quarantine."""
    discards: dict[int, str] = {}
    """By position, with the code: these are only remembered as seen, and counted."""


class Confirm(Command, frozen=True, kw_only=True):
    """These messages were published: they leave the state."""

    channel_uid: int
    seqs: list[int]
    revisions: dict[int, int] = {}
    """seq → revision that was published, where it is not 1."""


class Quarantine(Command, frozen=True, kw_only=True):
    """Set pending messages aside, because they cannot be published."""

    channel_uid: int
    seqs: list[int]
    fault: Fault
    revisions: dict[int, int] = {}


class Discard(Command, frozen=True, kw_only=True):
    """Remove pending or quarantined messages of a channel that is being deleted; a slice of at most 1,000."""

    channel_uid: int
    seqs: list[int]


class Request(Command, frozen=True, kw_only=True):
    """Base of the verbs that people and programs send: they carry an actor and, if wanted, an idempotency key."""

    actor: str = ""
    request_id: str = ""
    """Idempotency key, scoped by the caller; empty = none."""
    fingerprint: str = ""
    """Digest of the request: the same key with another one is refused."""


class CreateChannel(Request, frozen=True, kw_only=True):
    """Add a channel; its uid is given by apply."""

    id: str
    name: str
    source: Source
    destination: Destination
    policy: Policy
    initial: bool = False
    """Made from the environment: refused if a channel of this id ever existed."""


class UpdateChannel(Request, frozen=True, kw_only=True):
    """Replace name, source, destination and policy of a channel at a known revision."""

    channel_uid: int
    expected_revision: int
    name: str
    source: Source
    destination: Destination
    policy: Policy


class PauseChannel(Request, frozen=True, kw_only=True):
    """Stop or, with `pause` None, resume one side or both."""

    channel_uid: int
    side: Side
    pause: Pause | None
    expected_revision: int | None = None
    """The channel as whoever decided this saw it: the end of one pause must not end the one that replaced it."""


class CloseChannel(Request, frozen=True, kw_only=True):
    """Begin the deletion of a channel: nothing is accepted behind this entry."""

    channel_uid: int
    mode: Closing | None
    """None: only if the channel is empty."""
    expected_revision: int | None = None


class DropChannel(Command, frozen=True, kw_only=True):
    """Finish the deletion of a closing channel that is empty."""

    channel_uid: int


class Found(Command, frozen=True, kw_only=True):
    """The first command of a cluster: who we are."""

    cluster: Cluster


class PutNode(Command, frozen=True, kw_only=True):
    """Where a member can be reached now."""

    node: Node


# ---- answers ---------------------------------------------------------------------------------------------------------


class Rejected(msgspec.Struct, frozen=True, array_like=True):
    """Not legal in this state; nothing changed. `reason` is one of the REASON_… codes."""

    reason: str
    detail: str


class Accepted(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """All of an Accept is safe: stored, duplicate, quarantined or discarded."""

    first_seq: int
    pending: int
    duplicates: int = 0
    quarantined: int = 0
    discarded: int = 0


class Removed(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """How many of the named messages were there."""

    removed: int
    stale: int = 0


class ChannelAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The channel as it is after the command."""

    channel: Channel


class Done(msgspec.Struct, frozen=True, array_like=True):
    """Nothing more to say."""


Answer = Rejected | Accepted | Removed | ChannelAnswer | Done

REASON_NO_CHANNEL: Final = "NO_CHANNEL"
REASON_CHANNEL_EXISTS: Final = "CHANNEL_EXISTS"
REASON_CHANNEL_CLOSING: Final = "CHANNEL_CLOSING"
REASON_CHANNEL_NOT_CLOSING: Final = "CHANNEL_NOT_CLOSING"
REASON_CHANNEL_NOT_EMPTY: Final = "CHANNEL_NOT_EMPTY"
REASON_SUBSCRIPTION_TAKEN: Final = "SUBSCRIPTION_TAKEN"
REASON_REVISION: Final = "REVISION_MISMATCH"
REASON_MALFORMED: Final = "MALFORMED"
REASON_KEY_REUSED: Final = "IDEMPOTENCY_KEY_REUSED"
REASON_KEYS_FULL: Final = "IDEMPOTENCY_KEYS_FULL"
REASON_ALREADY_FOUNDED: Final = "ALREADY_FOUNDED"

# ---- codec -----------------------------------------------------------------------------------------------------------

OPCODES: Final[dict[int, type[Command]]] = {
    1: Accept,
    2: Confirm,
    3: Quarantine,
    4: Discard,
    5: CreateChannel,
    6: UpdateChannel,
    7: PauseChannel,
    8: CloseChannel,
    9: DropChannel,
    10: Found,
    11: PutNode,
}
_HEADERS: Final = {verb: bytes((VERSION, opcode)) for opcode, verb in OPCODES.items()}
_DECODERS: Final = {bytes((VERSION, opcode)): msgspec.msgpack.Decoder(verb) for opcode, verb in OPCODES.items()}
_ENCODER: Final = msgspec.msgpack.Encoder()
_ANSWERS: Final[tuple[type[msgspec.Struct], ...]] = (Rejected, Accepted, Removed, ChannelAnswer, Done)


def encode(command: Command) -> bytes:
    """The bytes of a log entry."""
    return _HEADERS[type(command)] + _ENCODER.encode(command)


def decode(entry: bytes) -> Command:
    """The command in a log entry; raises `UnknownCommand` for a version, opcode or body that this code cannot read."""
    decoder = _DECODERS.get(entry[:2])
    if decoder is None:
        raise UnknownCommand(
            f"log entry of version {entry[:1].hex() or 'none'}, opcode {entry[1:2].hex() or 'none'}:"
            f" this node reads version {VERSION} with opcodes 1 to {max(OPCODES)}; start a newer version"
        )
    try:
        return decoder.decode(memoryview(entry)[2:])
    except msgspec.MsgspecError as error:
        raise UnknownCommand(f"log entry with opcode {entry[1]} does not decode: {error}") from error


def encode_answer(answer: Answer) -> bytes:
    """An answer as it is remembered for an idempotency key."""
    return bytes((_ANSWERS.index(type(answer)),)) + _ENCODER.encode(answer)


def decode_answer(data: bytes) -> Answer:
    """The reverse of `encode_answer`."""
    answer: Answer = msgspec.msgpack.decode(memoryview(data)[1:], type=_ANSWERS[data[0]])  # type: ignore[assignment]
    return answer
