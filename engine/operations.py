"""What each call on the control socket does: a mutation becomes one command, a reading comes from this replica."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Protocol

import msgspec
import xxhash

from engine.clock import Clock, SystemClock
from engine.commands import (
    REASON_CHANNEL_CLOSING,
    REASON_CHANNEL_EXISTS,
    REASON_CHANNEL_NOT_EMPTY,
    REASON_KEY_REUSED,
    REASON_KEYS_FULL,
    REASON_NO_CHANNEL,
    REASON_REVISION,
    ChannelAnswer,
    CloseChannel,
    Command,
    CreateChannel,
    PauseChannel,
    Rejected,
    UpdateChannel,
    encode,
)
from engine.config import EngineConfig
from engine.documents import merge_patch, parse_channel, render_channel
from engine.due import BadTime, parse_time_ms
from engine.errors import (
    Conflict,
    FieldError,
    InvalidCommand,
    NotFound,
    OutcomeUnknown,
    RequestError,
    RevisionMismatch,
    Unavailable,
)
from engine.model import Channel, Closing, Pause, Side
from engine.state.state import State
from engine.views import Views

Operation = Callable[..., Any]


class Flush(Protocol):
    """What freshness needs of the flusher."""

    def request(self, index: int) -> Future[int]: ...


class Operations:
    """The table of calls for one node."""

    def __init__(
        self,
        config: EngineConfig,
        state: State,
        views: Views,
        *,
        submit: Callable[[bytes], Future[Any]],
        barrier: Callable[[], Future[int]],
        stamp: Callable[[], int],
        flush: Flush,
        clock: Clock | None = None,
    ) -> None:
        self._config = config
        self._state = state
        self._views = views
        self._submit = submit
        self._barrier = barrier
        self._stamp = stamp
        self._flush = flush
        self._clock = clock or SystemClock()
        self._answered_index = 0
        """Highest index at which this node has answered a mutation."""

    def table(self) -> Mapping[str, Operation]:
        """Operations by their name on the wire."""
        return {
            "ping": lambda: True,
            "channels": self._views.channels,
            "channel": lambda id: self._views.channel(self._known(id)),
            "create_channel": self.create_channel,
            "update_channel": self.update_channel,
            "delete_channel": self.delete_channel,
            "pause_channel": self.pause_channel,
            "resume_channel": self.resume_channel,
            "in_flight": lambda id: self._views.in_flight(self._known(id)),
            "cluster": self._views.cluster,
            "health": self._views.health,
            "metrics": self._views.metrics,
            "secret_key": self._views.secret_key,
            "barrier": self.barrier,
            "fresh": self.fresh,
        }

    # ---- channels ----------------------------------------------------------------------------------------------------

    def create_channel(self, document: Any, actor: str, request_id: str = "") -> dict[str, Any]:
        """Validate, give an id where none was chosen, propose."""
        parsed = parse_channel(document, bare_key_files=self._config.key_files_dir is not None)
        channel_id = parsed.id or str(uuid.uuid4())
        command = CreateChannel(
            stamp_ms=self._stamp(),
            actor=actor,
            request_id=request_id,
            fingerprint=_fingerprint("create", document),
            id=channel_id,
            name=parsed.name or channel_id,
            source=parsed.source,
            destination=parsed.destination,
            policy=parsed.policy,
        )
        return self._channel(self._propose(command))

    def update_channel(
        self, id: str, patch: Any, actor: str, expected_revision: int | None = None, request_id: str = ""
    ) -> dict[str, Any]:
        """Merge into the channel as it is here; when it changes meanwhile and no revision was given, merge again."""
        for attempt in range(self._config.limits.control.merge_attempts_max):
            channel = self._known(id)
            # A request with a key may have been carried out before and left a higher revision: apply knows.
            lowest = channel.revision if not request_id else 0
            if expected_revision is not None and not lowest <= expected_revision <= channel.revision:
                raise _revision_mismatch(channel, expected_revision)
            merged = merge_patch(render_channel(channel), patch)
            parsed = parse_channel(merged, bare_key_files=self._config.key_files_dir is not None)
            if parsed.id != channel.id:
                raise InvalidCommand(
                    "the id of a channel cannot be changed",
                    errors=(FieldError("/id", f"the id is {channel.id!r} and cannot be changed, got {parsed.id!r}"),),
                )
            command = UpdateChannel(
                stamp_ms=self._stamp(),
                actor=actor,
                # A refusal is remembered as well, so each further attempt has a key of its own.
                request_id=f"{request_id}#{attempt}" if request_id and attempt else request_id,
                fingerprint=_fingerprint("update", id, patch),
                channel_uid=channel.uid,
                expected_revision=channel.revision if expected_revision is None else expected_revision,
                name=parsed.name or channel.id,
                source=parsed.source,
                destination=parsed.destination,
                policy=parsed.policy,
            )
            try:
                return self._channel(self._propose(command))
            except RevisionMismatch:
                if expected_revision is not None:
                    raise
        raise Conflict("the channel kept changing meanwhile; repeat the request", reason="CONCURRENT_CHANGES")

    def delete_channel(
        self,
        id: str,
        actor: str,
        pending: str | None = None,
        expected_revision: int | None = None,
        request_id: str = "",
    ) -> bool:
        """Close the channel; True when it is gone, False while it drains."""
        modes = {None: None, "discard": Closing.DISCARD, "drain": Closing.DRAIN}
        if pending not in modes:
            allowed = "discard or drain"
            raise InvalidCommand(
                f"pending={pending!r} is not available in this version; allowed: {allowed}",
                errors=(FieldError("/pending", f"{pending!r} is not one of {allowed}"),),
            )
        channel = self._known(id)
        command = CloseChannel(
            stamp_ms=self._stamp(),
            actor=actor,
            request_id=request_id,
            fingerprint=_fingerprint("delete", id, pending),
            channel_uid=channel.uid,
            mode=modes[pending],
            expected_revision=expected_revision,
        )
        self._propose(command)
        if pending == "drain":
            return False
        return self._views.wait_gone(channel.uid, self._config.limits.control.request_timeout_s / 2)

    def pause_channel(
        self,
        id: str,
        actor: str,
        side: str = "both",
        until: Any = None,
        reason: str = "",
        request_id: str = "",
    ) -> dict[str, Any]:
        """Stop one side or both."""
        pause = Pause(by=actor, reason=reason, until_ms=self._until_ms(until))
        return self._pause(id, actor, side, pause, request_id, _fingerprint("pause", id, side, until, reason))

    def resume_channel(self, id: str, actor: str, side: str = "both", request_id: str = "") -> dict[str, Any]:
        """Let one side or both go on."""
        return self._pause(id, actor, side, None, request_id, _fingerprint("resume", id, side))

    def barrier(self) -> int:
        """Wait until everything committed before the call is applied here; the index that it is applied up to."""
        try:
            return self._barrier().result(self._config.limits.control.request_timeout_s / 2)
        except FutureTimeout as error:
            raise Unavailable("what is committed was not applied here in time", reason="STALE") from error

    def fresh(self, strong: bool = False) -> bool:
        """Wait until the file shows every mutation that this node has answered; strong: all that is committed."""
        index = self.barrier() if strong else self._answered_index
        if self._state.stored_index < index:
            try:
                self._flush.request(index).result(self._config.limits.control.request_timeout_s / 2)
            except FutureTimeout as error:
                raise Unavailable("state.db is behind and was not written in time", reason="STALE") from error
        return True

    # ---- helpers -----------------------------------------------------------------------------------------------------

    def _pause(
        self, id: str, actor: str, side: str, pause: Pause | None, request_id: str, fingerprint: str
    ) -> dict[str, Any]:
        if side not in list(Side):
            allowed = ", ".join(Side)
            raise InvalidCommand(
                f"side={side!r} is not one of {allowed}",
                errors=(FieldError("/side", f"{side!r} is not one of {allowed}"),),
            )
        command = PauseChannel(
            stamp_ms=self._stamp(),
            actor=actor,
            request_id=request_id,
            fingerprint=fingerprint,
            channel_uid=self._known(id).uid,
            side=Side(side),
            pause=pause,
        )
        return self._channel(self._propose(command))

    def _until_ms(self, until: Any) -> int | None:
        if until is None:
            return None
        try:
            if isinstance(until, bool) or not isinstance(until, int | float | str):
                raise BadTime(f"{until!r} is no time")
            until_ms = parse_time_ms(until if isinstance(until, str) else f"{until:f}".rstrip("0").rstrip("."))
        except BadTime as error:
            raise InvalidCommand(str(error), errors=(FieldError("/until", str(error)),)) from error
        if until_ms <= self._clock.now_ms():
            detail = f"{until!r} is in the past"
            raise InvalidCommand(detail, errors=(FieldError("/until", detail),))
        return until_ms

    def _known(self, channel_id: str) -> Channel:
        channel = self._state.channel(channel_id)
        if channel is None:
            raise NotFound(f"there is no channel {channel_id!r}", reason=REASON_NO_CHANNEL)
        return channel

    def _channel(self, answer: Any) -> dict[str, Any]:
        assert isinstance(answer, ChannelAnswer)
        return self._views.channel(answer.channel)

    def _propose(self, command: Command) -> Any:
        """Submit and wait until it is applied here; raises what the answer says."""
        try:
            answer = self._submit(encode(command)).result(self._config.limits.control.request_timeout_s * 0.8)
        except FutureTimeout as error:
            raise OutcomeUnknown(
                "the command was not committed in time and may still be; repeat it with the same Idempotency-Key"
            ) from error
        self._answered_index = max(self._answered_index, self._state.applied_index)
        if isinstance(answer, Rejected):
            raise _refusal(answer)
        return answer


def _refusal(answer: Rejected) -> RequestError:
    """The error for a command that was not legal."""
    kinds: dict[str, Callable[..., RequestError]] = {
        REASON_NO_CHANNEL: NotFound,
        REASON_CHANNEL_EXISTS: Conflict,
        REASON_CHANNEL_CLOSING: Conflict,
        REASON_CHANNEL_NOT_EMPTY: Conflict,
        REASON_REVISION: RevisionMismatch,
        REASON_KEY_REUSED: InvalidCommand,
        REASON_KEYS_FULL: Unavailable,
    }
    return kinds.get(answer.reason, Conflict)(answer.detail, reason=answer.reason)


def _revision_mismatch(channel: Channel, expected: int) -> RevisionMismatch:
    return RevisionMismatch(f"channel {channel.id!r} is at revision {channel.revision}, not {expected}")


def _fingerprint(*parts: Any) -> str:
    """Tells two different requests with one idempotency key apart."""
    return xxhash.xxh3_128_hexdigest(msgspec.msgpack.encode(parts))
