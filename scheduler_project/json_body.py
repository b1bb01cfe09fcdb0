"""JSON in and out of the REST views: strict in what it reads, so that nothing fails later, and always the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any, Final

import msgspec
from rest_framework.exceptions import ParseError
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from engine.errors import LimitExceeded
from scheduler_project.limits import LIMITS

_DEPTH_MAX: Final = 32


class StrictJSONParser(BaseParser):
    """JSON without the liberties that would fail later: no NaN, no lone surrogates, no integers beyond 64 bits."""

    media_type = "application/json"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        body = stream.read(LIMITS.body_bytes_max + 1)
        if len(body) > LIMITS.body_bytes_max:
            raise LimitExceeded(f"The body has more than {LIMITS.body_bytes_max} bytes.", reason="BODY_TOO_LARGE")
        if not body.strip():
            return {}
        try:
            document = msgspec.json.decode(body)
            _check_depth(document, _DEPTH_MAX)
            msgspec.msgpack.encode(document)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ParseError(f"The body is not JSON: {error}.") from error
        except RecursionError as error:
            raise ParseError(f"The body is nested more than {_DEPTH_MAX} levels deep.") from error
        except OverflowError as error:
            raise ParseError("The body holds an integer of more than 64 bits.") from error
        return document


class MergePatchParser(StrictJSONParser):
    """The same under the media type of RFC 7396."""

    media_type = "application/merge-patch+json"


class JSONRenderer(BaseRenderer):
    """Plain JSON."""

    media_type = "application/json"
    format = "json"
    charset = None

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        return b"" if data is None else msgspec.json.encode(data)


class AlwaysJSON(DefaultContentNegotiation):
    """Answers JSON whatever the caller says to accept: a browser looking at a resource sees it."""

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        renderer = next(iter(renderers))
        return renderer, renderer.media_type


def _check_depth(value: Any, left: int) -> None:
    if isinstance(value, dict | list):
        if not left:
            raise RecursionError
        for item in value.values() if isinstance(value, dict) else value:
            _check_depth(item, left - 1)
