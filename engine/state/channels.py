"""The channels and their rules: which ids and subscriptions are free, which revision is expected, when one may go."""

from __future__ import annotations

import msgspec

from engine.commands import (
    REASON_CHANNEL_EXISTS,
    REASON_CHANNEL_NOT_CLOSING,
    REASON_CHANNEL_NOT_EMPTY,
    REASON_REVISION,
    REASON_SUBSCRIPTION_TAKEN,
    Answer,
    ChannelAnswer,
    CloseChannel,
    CreateChannel,
    Done,
    DropChannel,
    PauseChannel,
    Rejected,
    UpdateChannel,
)
from engine.model import Channel, Closing, Side
from engine.state.counters import Counters
from engine.state.generation import Generation
from engine.state.messages import no_channel


class Channels:
    """All channels by uid, with the two names that must be free. Changes go through the rules, in the apply thread."""

    def __init__(self, next_uid: int) -> None:
        self.next_uid = next_uid
        self.by_uid: dict[int, Channel] = {}
        self.uids: dict[str, int] = {}
        """uid by id."""
        self.former_ids: set[str] = set()
        """Every id that a channel ever had, the present ones included."""
        self._readers: dict[str, int] = {}
        """uid by subscription."""

    def load(self, channel: Channel) -> None:
        """A stored channel, while opening."""
        self.by_uid[channel.uid] = channel
        self.uids[channel.id] = channel.uid
        self._readers[channel.source.config.subscription] = channel.uid

    def get(self, channel_id: str) -> Channel | None:
        """The channel of this id."""
        uid = self.uids.get(channel_id)
        return None if uid is None else self.by_uid.get(uid)

    def create(self, command: CreateChannel, stamp_ms: int, active: Generation) -> Answer:
        """Add a channel under a uid that none ever had."""
        if command.id in self.uids:
            return Rejected(REASON_CHANNEL_EXISTS, f"there is a channel {command.id!r} already")
        if command.initial and command.id in self.former_ids:
            return Rejected(REASON_CHANNEL_EXISTS, f"a channel {command.id!r} was made before and deleted")
        taken = self._taken(command.source.config.subscription, 0)
        if taken:
            return taken
        channel = Channel(
            uid=self.next_uid,
            id=command.id,
            name=command.name,
            source=command.source,
            destination=command.destination,
            policy=command.policy,
            created_ms=stamp_ms,
            updated_ms=stamp_ms,
        )
        self.next_uid += 1
        if channel.id not in self.former_ids:
            self.former_ids.add(channel.id)
            active.former_ids.append(channel.id)
        return self._put(channel, active)

    def update(self, command: UpdateChannel, stamp_ms: int, active: Generation) -> Answer:
        """Replace what an operator may change; a closing channel too, or a drain could not be repaired."""
        channel = self.by_uid.get(command.channel_uid)
        if channel is None:
            return no_channel(command.channel_uid)
        refused = _unexpected(channel, command.expected_revision) or self._taken(
            command.source.config.subscription, channel.uid
        )
        if refused:
            return refused
        del self._readers[channel.source.config.subscription]
        return self._put(
            msgspec.structs.replace(
                channel,
                name=command.name,
                source=command.source,
                destination=command.destination,
                policy=command.policy,
                revision=channel.revision + 1,
                updated_ms=stamp_ms,
            ),
            active,
        )

    def pause(self, command: PauseChannel, stamp_ms: int, active: Generation) -> Answer:
        """Stop or resume sides; nothing to change is no new revision."""
        channel = self.by_uid.get(command.channel_uid)
        if channel is None:
            return no_channel(command.channel_uid)
        if command.expected_revision is not None:
            refused = _unexpected(channel, command.expected_revision)
            if refused:
                return refused
        listen = channel.paused_listen if command.side is Side.RELEASE else command.pause
        release = channel.paused_release if command.side is Side.LISTEN else command.pause
        if (listen, release) == (channel.paused_listen, channel.paused_release):
            return ChannelAnswer(channel)
        return self._put(
            msgspec.structs.replace(
                channel,
                paused_listen=listen,
                paused_release=release,
                revision=channel.revision + 1,
                updated_ms=stamp_ms,
            ),
            active,
        )

    def close(self, command: CloseChannel, counters: Counters | None, stamp_ms: int, active: Generation) -> Answer:
        """Set the closing mark; on a channel that has it, another mode replaces the first."""
        channel = self.by_uid.get(command.channel_uid)
        if channel is None or counters is None:
            return no_channel(command.channel_uid)
        if command.expected_revision is not None:
            refused = _unexpected(channel, command.expected_revision)
            if refused:
                return refused
        if command.mode is None and (counters.pending or counters.quarantined):
            return _not_empty(channel, counters)
        mode = command.mode or Closing.DISCARD
        if channel.closing is mode:
            return ChannelAnswer(channel)
        return self._put(
            msgspec.structs.replace(channel, closing=mode, revision=channel.revision + 1, updated_ms=stamp_ms), active
        )

    def drop(self, command: DropChannel, counters: Counters | None, active: Generation) -> Answer:
        """Forget a closing channel that is empty; its id stays among the former ones."""
        channel = self.by_uid.get(command.channel_uid)
        if channel is None or counters is None:
            return no_channel(command.channel_uid)
        if channel.closing is None:
            return Rejected(REASON_CHANNEL_NOT_CLOSING, f"channel {channel.id!r} is not being deleted")
        if counters.pending or counters.quarantined:
            return _not_empty(channel, counters)
        del self.by_uid[channel.uid]
        del self.uids[channel.id]
        del self._readers[channel.source.config.subscription]
        active.channels[channel.uid] = None
        active.forget_channel(channel.uid)
        return Done()

    def _put(self, channel: Channel, active: Generation) -> Answer:
        self.load(channel)
        active.channels[channel.uid] = channel
        return ChannelAnswer(channel)

    def _taken(self, subscription: str, uid: int) -> Rejected | None:
        reader = self._readers.get(subscription, uid)
        if reader == uid:
            return None
        return Rejected(REASON_SUBSCRIPTION_TAKEN, f"channel {self.by_uid[reader].id!r} reads {subscription} already")


def _unexpected(channel: Channel, revision: int) -> Rejected | None:
    if channel.revision == revision:
        return None
    return Rejected(REASON_REVISION, f"channel {channel.id!r} is at revision {channel.revision}, not at {revision}")


def _not_empty(channel: Channel, counters: Counters) -> Rejected:
    return Rejected(
        REASON_CHANNEL_NOT_EMPTY,
        f"channel {channel.id!r} holds {counters.pending} pending and {counters.quarantined} quarantined messages",
    )
