"""Lists in pages: opaque cursors over a sort key, in DRF's shape (`results`, `next`, `previous`)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param

from engine.errors import FieldError, InvalidCommand
from scheduler_project.limits import LIMITS

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in a list: the page goes on behind the entry of this key, or ends before it."""

    key: Key
    backwards: bool = False

    def encode(self) -> str:
        """As the caller sees it: opaque, safe in a URL."""
        packed = msgspec.msgpack.encode([self.backwards, *self.key])
        return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


def decode_cursor(text: str, kinds: Sequence[type]) -> Cursor:
    """The reverse; InvalidCommand for what is no cursor of such a list."""
    try:
        packed = base64.b64decode(text.encode() + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
        backwards, *key = msgspec.msgpack.decode(packed, type=list[Any])
    except (binascii.Error, msgspec.DecodeError, ValueError) as error:
        raise _bad_cursor() from error
    if not isinstance(backwards, bool) or [type(part) for part in key] != list(kinds):
        raise _bad_cursor()
    if any(isinstance(part, int) and abs(part) >= 2**62 for part in key):
        raise _bad_cursor()
    return Cursor(tuple(key), backwards)


def page_cursor(request: Request, kinds: Sequence[type]) -> Cursor | None:
    """The cursor that the caller sent, for a list sorted by a key of these types."""
    text = request.query_params.get("cursor", "")
    return decode_cursor(text, kinds) if text else None


def page_size(request: Request) -> int:
    """How many entries the caller wants: too many are cut to the maximum."""
    text = request.query_params.get("page_size") or str(LIMITS.page_size)
    if not (text.isascii() and text.isdigit() and int(text[:10])):
        raise InvalidCommand(
            f"page_size={text[:32]!r}: allowed is a number from 1.",
            errors=(FieldError("/page_size", "allowed is a number from 1; above 1000 it is cut to 1000"),),
        )
    return min(int(text[:10]), LIMITS.page_size_max)


def page(request: Request, results: list[Any], *, following: Key | None, preceding: Key | None) -> Response:
    """A page; `following` and `preceding` are the keys of its last and first entry where there is more."""
    url = request.build_absolute_uri()
    return Response(
        {
            "results": results,
            "next": None if following is None else replace_query_param(url, "cursor", Cursor(following).encode()),
            "previous": (
                None if preceding is None else replace_query_param(url, "cursor", Cursor(preceding, True).encode())
            ),
        }
    )


def _bad_cursor() -> InvalidCommand:
    return InvalidCommand(
        "cursor is not one of this list: take it from `next` or `previous`.",
        errors=(FieldError("/cursor", "not a cursor of this list"),),
    )
