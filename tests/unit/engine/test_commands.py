"""The codec of the log: every verb comes back, newer fields are skipped, what is unknown stops the node."""

from __future__ import annotations

import msgspec
import pytest

from engine import commands
from engine.commands import Accept, Confirm, Fault, UnknownCommand, decode, decode_answer, encode, encode_answer
from engine.model import (
    Channel,
    Closing,
    Cluster,
    Destination,
    DestinationConfig,
    Node,
    Policy,
    Side,
    Source,
    SourceConfig,
)

SOURCE = Source(config=SourceConfig(project_id="p", subscription_id="sub"))
DESTINATION = Destination(config=DestinationConfig(project_id="p", topic_id="top"))
ALL = [
    Accept(
        stamp_ms=1,
        channel_uid=2,
        subscription="s",
        source_ids=["a", "b"],
        publish_us=[1, 2],
        dues_ms=[0, -5],
        payloads=[b"", b"\xff"],
        ordering_keys={1: "k"},
        keys={0: "é"},
        faults={0: Fault("BAD_TIME", "why")},
        discards={1: "LOOP"},
    ),
    Confirm(stamp_ms=1, channel_uid=2, seqs=[1, 2**40], revisions={1: 2}),
    commands.Quarantine(stamp_ms=1, channel_uid=2, seqs=[3], fault=Fault("X", "y")),
    commands.Discard(stamp_ms=1, channel_uid=2, seqs=[]),
    commands.CreateChannel(stamp_ms=1, id="c", name="n", source=SOURCE, destination=DESTINATION, policy=Policy()),
    commands.UpdateChannel(
        stamp_ms=1,
        actor="me",
        channel_uid=1,
        expected_revision=3,
        name="n",
        source=SOURCE,
        destination=DESTINATION,
        policy=Policy(),
    ),
    commands.PauseChannel(stamp_ms=1, channel_uid=1, side=Side.BOTH, pause=None),
    commands.CloseChannel(stamp_ms=1, channel_uid=1, mode=Closing.DRAIN),
    commands.DropChannel(stamp_ms=1, channel_uid=1),
    commands.Found(stamp_ms=1, cluster=Cluster(cluster_id="c")),
    commands.PutNode(stamp_ms=1, node=Node(name="n", addr="h:1")),
]


@pytest.mark.parametrize("command", ALL, ids=lambda command: type(command).__name__)
def test_a_command_comes_back_as_it_was(command: commands.Command) -> None:
    assert decode(encode(command)) == command


def test_every_verb_is_tested_here() -> None:
    assert {type(command) for command in ALL} == set(commands.OPCODES.values())


def test_fields_added_by_a_newer_version_are_skipped() -> None:
    entry = encode(ALL[1])
    longer = entry[:2] + msgspec.msgpack.encode([*msgspec.msgpack.decode(entry[2:]), "a field of tomorrow"])

    assert decode(longer) == ALL[1]


@pytest.mark.parametrize(
    "entry", [b"", b"\x01", b"\x02\x01\x90", b"\x01\xfa\x90", b"\x01\x02", b"\x01\x02\xc1", b"\x01\x02\x91\x01"]
)
def test_an_entry_that_cannot_be_read_is_never_skipped(entry: bytes) -> None:
    with pytest.raises(UnknownCommand, match="log entry"):
        decode(entry)


@pytest.mark.parametrize(
    "answer",
    [
        commands.Rejected("NO_CHANNEL", "gone"),
        commands.Accepted(first_seq=1, pending=2),
        commands.Removed(removed=1, stale=2),
        commands.ChannelAnswer(Channel(uid=1, id="c", name="c", source=SOURCE, destination=DESTINATION)),
        commands.Done(),
    ],
    ids=lambda answer: type(answer).__name__,
)
def test_an_answer_comes_back_as_it_was(answer: commands.Answer) -> None:
    assert decode_answer(encode_answer(answer)) == answer
