"""What the administrative calls share: pages of a list, update masks, labels, durations in range."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from engine.emulator import limits
from engine.emulator.clock import NS_PER_S
from engine.emulator.errors import bad_argument, invalid
from engine.emulator.settings import duration_ns
from engine.emulator.wire import Pb

T = TypeVar("T")

_LABEL_KEY = re.compile(r"[^\W\d_A-Z][\w-]{0,62}")
_LABEL_VALUE = re.compile(r"[\w-]{0,63}")


def page(names: Iterable[str], page_size: int, page_token: str) -> tuple[list[str], str]:
    """One page of `names`, sorted, and the token of the next page (empty at the end).

    A token is the last name given.
    """
    if page_size < 0:
        raise bad_argument("page_size")
    size = min(page_size or limits.PAGE_SIZE_DEFAULT, limits.PAGE_SIZE_MAX)
    try:
        after = base64.b64decode(page_token.encode(), b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise bad_argument("page_token") from error
    rest = sorted(name for name in names if name > after)
    more = len(rest) > size
    token = base64.urlsafe_b64encode(rest[size - 1].encode()).decode() if more else ""
    return rest[:size], token


def under(prefix: str, resources: Mapping[str, T]) -> list[str]:
    """Names of the resources of one project."""
    return [name for name in resources if name.startswith(prefix)]


def copy_of(resource: Pb) -> Pb:
    """A resource that can be changed: those in use are replaced, never changed in place."""
    copy = type(resource)()
    copy.CopyFrom(resource)
    return copy


def apply_mask(kind: str, current: Pb, wanted: Pb, paths: Collection[str], mutable: Collection[str]) -> Pb:
    """`current` with the fields named by `paths` taken from `wanted`; `kind` is Topic, Subscription or Snapshot."""
    prefix = f"Invalid update_mask provided in the Update{kind}Request:"
    if not paths:
        raise invalid(
            f"The update_mask in the Update{kind}Request must be set, and must contain a non-empty paths list."
        )
    changed = copy_of(current)
    for path in paths:
        field, _, rest = path.partition(".")
        if field not in current.DESCRIPTOR.fields_by_name:
            raise invalid(
                f"{prefix} {path} is not a known {kind} field. Note that field paths must be of the form 'push_config' "
                f"rather than 'pushConfig'."
            )
        if field not in mutable:
            raise invalid(f"{prefix} the '{field}' field in the {kind} is not mutable.")
        target, source = changed, wanted
        if rest:
            target, source, field = _inner(prefix, kind, path, changed, wanted)
        _take_field(target, source, field)
    return changed


def _inner(prefix: str, kind: str, path: str, target: Pb, source: Pb) -> tuple[Pb, Pb, str]:
    """The messages that hold the last field of a dotted path, and that field's name."""
    *outer, last = path.split(".")
    for name in outer:
        target, source = getattr(target, name), getattr(source, name)
        if not hasattr(target, "DESCRIPTOR"):
            raise invalid(f"{prefix} {path} is not a known {kind} field.")
    if last not in target.DESCRIPTOR.fields_by_name:
        raise invalid(f"{prefix} {path} is not a known {kind} field.")
    return target, source, last


def _take_field(target: Pb, source: Pb, field: str) -> None:
    partial = type(source)()
    partial.CopyFrom(source)
    for name in source.DESCRIPTOR.fields_by_name:
        if name != field:
            partial.ClearField(name)
    target.ClearField(field)
    target.MergeFrom(partial)
    descriptor = source.DESCRIPTOR.fields_by_name[field]
    if descriptor.has_presence and source.HasField(field) and not target.HasField(field):
        getattr(target, field).SetInParent()


def check_labels(labels: Mapping[str, str]) -> None:
    """Refuse labels that the service would refuse."""
    if len(labels) > limits.LABELS_MAX:
        raise bad_argument("labels")
    for key, value in labels.items():
        if _LABEL_KEY.fullmatch(key) is None or _LABEL_VALUE.fullmatch(value) is None or value != value.lower():
            raise invalid(f"Invalid label (label={key}:{value}).")


def check_duration(argument: str, duration: Pb, minimum_s: int, maximum_s: int) -> None:
    """Refuse a duration out of its range."""
    value_ns = duration_ns(duration)
    if not minimum_s * NS_PER_S <= value_ns <= maximum_s * NS_PER_S:
        raise invalid(
            f"Invalid {argument}: {value_ns / NS_PER_S:g} s; it must be between {minimum_s} and {maximum_s} seconds."
        )
