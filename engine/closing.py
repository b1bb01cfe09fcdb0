"""The end of a channel: what is left is discarded in slices, or has drained; then the channel goes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

import structlog

from engine.commands import Discard, DropChannel, encode
from engine.config import FlowLimits
from engine.model import Channel, ChannelStats, Closing

log = structlog.get_logger(__name__)


class Contents(Protocol):
    """What closing needs of the state."""

    def stats(self, uid: int) -> ChannelStats: ...

    def seqs(self, uid: int, after_seq: int, limit: int) -> list[int]: ...

    def channel_by_uid(self, uid: int) -> Channel | None: ...


def finish_closing(
    contents: Contents,
    channel: Channel,
    submit: Callable[[bytes], Future[Any]],
    stamp: Callable[[], int],
    flow: FlowLimits,
    stopping: Callable[[], bool],
) -> bool:
    """Drop a closing channel if nothing is left of it; True when it is gone, False while it still drains.

    Discarding ends between two slices when the node stops, or when somebody decides that the rest is to be drained.
    Both sides must have stopped before a channel is discarded. A draining channel with quarantined messages stays:
    they cannot be released, and it is for a person to discard them.
    """
    if channel.closing is Closing.DISCARD:
        after = 0
        while seqs := contents.seqs(channel.uid, after, flow.slice_messages_max):
            now = contents.channel_by_uid(channel.uid)
            if stopping() or now is None or now.closing is not Closing.DISCARD:
                return False
            after = seqs[-1]
            command = Discard(stamp_ms=stamp(), channel_uid=channel.uid, seqs=seqs)
            submit(encode(command)).result(flow.transition_timeout_s)
    stats = contents.stats(channel.uid)
    if stats.pending or stats.quarantined:
        return False
    submit(encode(DropChannel(stamp_ms=stamp(), channel_uid=channel.uid))).result(flow.transition_timeout_s)
    log.info("A channel is deleted.", action="channel_deleted", channel=channel.id)
    return True
