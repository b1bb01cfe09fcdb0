"""From a channel's id to its number in state.db."""

from __future__ import annotations

from channels_app.models import Channel
from engine.errors import NotFound


def channel_uid(channel_id: str) -> int:
    """The uid of a channel; NotFound."""
    uid: int | None = Channel.objects.filter(id=channel_id).values_list("uid", flat=True).first()
    if uid is None:
        raise NotFound(f"There is no channel {channel_id!r}.", reason="NO_CHANNEL")
    return uid
