"""What is to become of received messages: the policy of a channel applied to one response. Pure.

Input are the columns of `engine.pubsub.received`, output is an Accept command for exactly those messages: each is
pending at a due time, quarantined with a reason, or discarded; none is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from engine.commands import Accept, Fault
from engine.due import BadTime, explain_far, format_duration, parse_duration_ms, parse_time_ms
from engine.model import Channel, Disposition, Policy, TimeUnit

DELAY: Final = "scheduler-delay"
KEY: Final = "scheduler-key"
CHANNEL: Final = "scheduler-channel"
UNSUPPORTED: Final = ("scheduler-op", "scheduler-expires-at")
"""Inputs that change what happens to a message and that this version cannot honour: never ignored in silence."""

KEY_BYTES_MAX: Final = 256

MISSING_TIME: Final = "MISSING_TIME"
BAD_TIME: Final = "BAD_TIME"
TOO_FAR: Final = "TOO_FAR"
BOTH_TIMES: Final = "BOTH_TIMES"
UNREADABLE: Final = "UNREADABLE"
UNSUPPORTED_INPUT: Final = "UNSUPPORTED_INPUT"
BAD_KEY: Final = "BAD_KEY"
LOOP: Final = "LOOP"


class Refused(ValueError):
    """The time of one message cannot be honoured."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.fault = Fault(code, reason)


def plan_accept(
    channel: Channel,
    *,
    stamp_ms: int,
    subscription: str,
    message_ids: list[str],
    publish_us: list[int],
    ordering_keys: Sequence[str],
    available_at: Sequence[str | None],
    inputs: Sequence[Mapping[str, str] | None],
    payloads: list[bytes],
    unreadable: Mapping[int, str],
) -> Accept:
    """One Accept for all messages of a response; `stamp_ms` is now by the release clock."""
    faults = {position: Fault(UNREADABLE, reason) for position, reason in unreadable.items()}
    discards: dict[int, str] = {}
    keys: dict[int, str] = {}
    latest_ms = stamp_ms + channel.policy.max_delay_ms
    dues_ms = None if faults or any(inputs) else _whole_seconds(available_at, latest_ms)
    if dues_ms is None:
        dues_ms = []
        _plan_each(channel, stamp_ms, latest_ms, publish_us, available_at, inputs, dues_ms, faults, discards, keys)
    return Accept(
        stamp_ms=stamp_ms,
        channel_uid=channel.uid,
        subscription=subscription,
        source_ids=message_ids,
        publish_us=publish_us,
        dues_ms=dues_ms,
        payloads=payloads,
        ordering_keys={i: key for i, key in enumerate(ordering_keys) if key} if any(ordering_keys) else {},
        keys=keys,
        faults=faults,
        discards=discards,
    )


def _whole_seconds(available_at: Sequence[str | None], latest_ms: int) -> list[int] | None:
    """Dues of messages that all have ten digits for a time, the usual form, read without a step per message."""
    try:
        joined = "".join(available_at)  # type: ignore[arg-type]
    except TypeError:
        return None  # one has no time
    if not (joined.isascii() and joined.isdigit()) or set(map(len, available_at)) != {10}:  # type: ignore[arg-type]
        return None
    dues_ms = [second * 1000 for second in map(int, available_at)]  # type: ignore[arg-type]
    return dues_ms if max(dues_ms) <= latest_ms else None


def _plan_each(
    channel: Channel,
    stamp_ms: int,
    latest_ms: int,
    publish_us: Sequence[int],
    available_at: Sequence[str | None],
    inputs: Sequence[Mapping[str, str] | None],
    dues_ms: list[int],
    faults: dict[int, Fault],
    discards: dict[int, str],
    keys: dict[int, str],
) -> None:
    """Message by message: fills in the due time of each, or why it has none."""
    seconds = channel.policy.time_unit is TimeUnit.SECONDS
    append = dues_ms.append
    for position, (text, more) in enumerate(zip(available_at, inputs, strict=True)):
        if more is None and text is not None and seconds and len(text) == 10 and text.isascii() and text.isdigit():
            due_ms = int(text) * 1000  # the common form, without a call
            if due_ms <= latest_ms and position not in faults:
                append(due_ms)
                continue
        append(0)
        if position in faults:
            continue
        try:
            dues_ms[position] = _due_ms(text, more or {}, channel.policy, publish_us[position], latest_ms)
            _take_key(more, position, keys)
        except Refused as refused:
            _dispose(channel, refused.fault, more or {}, position, stamp_ms, dues_ms, faults, discards)


def _due_ms(text: str | None, inputs: Mapping[str, str], policy: Policy, publish_us: int, latest_ms: int) -> int:
    for name in UNSUPPORTED:
        if name in inputs:
            raise Refused(UNSUPPORTED_INPUT, f"the attribute {name} is not available in this version")
    delay = inputs.get(DELAY)
    if text is not None and delay is not None:
        raise Refused(BOTH_TIMES, f"both available_at and {DELAY} are set; only one may be")
    try:
        if delay is not None:
            due_ms = -(-publish_us // 1000) + parse_duration_ms(delay)
        elif text is not None:
            due_ms = parse_time_ms(text, policy.time_unit)
        else:
            raise Refused(MISSING_TIME, f"the message has neither available_at nor {DELAY}")
    except BadTime as error:
        raise Refused(BAD_TIME, f"{DELAY if delay is not None else 'available_at'}: {error}") from error
    if due_ms > latest_ms:
        guess = explain_far(text, due_ms) if text is not None else None
        limit = format_duration(policy.max_delay_ms)
        shown = text if text is not None else delay
        raise Refused(TOO_FAR, guess or f"{shown} is further ahead than the channel's max_delay of {limit}")
    return due_ms


def _take_key(inputs: Mapping[str, str] | None, position: int, keys: dict[int, str]) -> None:
    key = inputs.get(KEY) if inputs else None
    if key is None:
        return
    if not key or len(key.encode()) > KEY_BYTES_MAX:
        raise Refused(BAD_KEY, f"{KEY} has {len(key.encode())} bytes; 1 to {KEY_BYTES_MAX} are allowed")
    keys[position] = key


def _dispose(
    channel: Channel,
    fault: Fault,
    inputs: Mapping[str, str],
    position: int,
    now_ms: int,
    dues_ms: list[int],
    faults: dict[int, Fault],
    discards: dict[int, str],
) -> None:
    """Apply the policy for a missing or wrong time; what is no matter of time is always quarantined."""
    if fault.code == MISSING_TIME and inputs.get(CHANNEL) == channel.id:
        dues_ms[position] = 0
        discards[position] = LOOP
        return
    disposition = Disposition.QUARANTINE
    if fault.code == MISSING_TIME:
        disposition = channel.policy.missing_time
    elif fault.code in {BAD_TIME, TOO_FAR, BOTH_TIMES}:
        disposition = channel.policy.bad_time
    if disposition is Disposition.RELEASE:
        dues_ms[position] = now_ms
    elif disposition is Disposition.DISCARD:
        dues_ms[position] = 0
        discards[position] = fault.code
    else:
        dues_ms[position] = 0
        faults[position] = fault


def merge_accepts(parts: Sequence[Accept]) -> Accept:
    """One Accept for several of the same channel and subscription, in order."""
    if len(parts) == 1:
        return parts[0]
    source_ids: list[str] = []
    publish_us: list[int] = []
    dues_ms: list[int] = []
    payloads: list[bytes] = []
    ordering_keys: dict[int, str] = {}
    keys: dict[int, str] = {}
    faults: dict[int, Fault] = {}
    discards: dict[int, str] = {}
    for part in parts:
        base = len(source_ids)
        for merged, own in ((ordering_keys, part.ordering_keys), (keys, part.keys), (discards, part.discards)):
            merged.update({base + position: value for position, value in own.items()})
        faults.update({base + position: fault for position, fault in part.faults.items()})
        source_ids += part.source_ids
        publish_us += part.publish_us
        dues_ms += part.dues_ms
        payloads += part.payloads
    return Accept(
        stamp_ms=max(part.stamp_ms for part in parts),
        channel_uid=parts[0].channel_uid,
        subscription=parts[0].subscription,
        source_ids=source_ids,
        publish_us=publish_us,
        dues_ms=dues_ms,
        payloads=payloads,
        ordering_keys=ordering_keys,
        keys=keys,
        faults=faults,
        discards=discards,
    )
