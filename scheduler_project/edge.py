"""The outermost layer: what proxies say of a request, bodies without a length, any host for probes, headers."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Final

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpResponse

from engine.errors import LimitExceeded
from scheduler_project.auth import FORWARDED
from scheduler_project.env import parse_address
from scheduler_project.limits import LIMITS
from scheduler_project.problems import from_error

_ANY_HOST: Final = ("/livez", "/readyz", "/metrics")
_CONTENT_POLICY: Final = "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; form-action 'self'"


class EdgeMiddleware:
    """Goes first; everything behind it may trust the address, the scheme and the host of the request."""

    def __init__(self, get_response: Callable[[WSGIRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: WSGIRequest) -> HttpResponse:
        _apply_proxy_headers(request)
        if request.path.rstrip("/") in _ANY_HOST:
            # A kubelet names the pod's address, a scraper whatever it found: neither is worth a refusal here.
            request.META["HTTP_HOST"] = "localhost"
        try:
            request.get_host()
            _bound_body(request)
        except (DisallowedHost, LimitExceeded) as error:
            return from_error(error)
        response = self._get_response(request)
        if request.is_secure():
            for cookie in response.cookies.values():
                cookie["secure"] = True
        if not settings.DEBUG:
            response.headers.setdefault("Content-Security-Policy", _CONTENT_POLICY)
        return response


def _apply_proxy_headers(request: WSGIRequest) -> None:
    meta = request.META
    chain = [item.strip() for item in meta.pop("HTTP_X_FORWARDED_FOR", "").split(",") if item.strip()]
    scheme = meta.pop("HTTP_X_FORWARDED_PROTO", "").split(",")[-1].strip().lower()
    host = meta.pop("HTTP_X_FORWARDED_HOST", "").split(",")[-1].strip()
    forwarded = bool(chain or scheme or host or meta.pop("HTTP_FORWARDED", ""))
    if not _trusted(meta.get("REMOTE_ADDR", "")):
        if forwarded:
            meta[FORWARDED] = "1"
        return
    if scheme in ("http", "https"):
        request.environ["wsgi.url_scheme"] = scheme
    if host:
        meta["HTTP_HOST"] = host
    # The nearest address that is no proxy of ours is the caller; what stands before it anyone can write.
    callers = [item for item in chain if not _trusted(item)]
    if callers:
        meta["REMOTE_ADDR"] = callers[-1]
        meta[FORWARDED] = "1"


def _trusted(address: str) -> bool:
    parsed = parse_address(address)
    return parsed is not None and any(parsed in network for network in settings.WEB.trusted_proxies)


def _bound_body(request: WSGIRequest) -> None:
    limit = LIMITS.body_bytes_max
    length = request.META.get("CONTENT_LENGTH") or ""
    if length.isdigit() and int(length) > limit:
        raise LimitExceeded(f"The body has {length} bytes; the limit is {limit}.", reason="BODY_TOO_LARGE")
    if not length and "chunked" in request.META.get("HTTP_TRANSFER_ENCODING", "").lower():
        # Django reads nothing where no length is given: collect the chunks, which the server ends for us.
        body = request.environ["wsgi.input"].read(limit + 1)
        if len(body) > limit:
            raise LimitExceeded(f"The body has more than {limit} bytes.", reason="BODY_TOO_LARGE")
        request.META["CONTENT_LENGTH"] = str(len(body))
        request._stream = io.BytesIO(body)
