"""What a request says of its origin is believed from trusted proxies alone."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from scheduler_project.auth import FORWARDED
from scheduler_project.edge import EdgeMiddleware
from scheduler_project.env import WebConfig


@pytest.fixture
def through(settings: Any) -> Any:
    """Sends a request through the middleware and gives what came out of it."""
    settings.WEB = WebConfig.from_env({"TRUSTED_PROXIES": "10.0.0.0/8, 127.0.0.1"})
    settings.ALLOWED_HOSTS = ["testserver", "public.example"]

    def send(address: str, **headers: str) -> HttpRequest:
        seen: list[HttpRequest] = []

        def view(request: HttpRequest) -> HttpResponse:
            seen.append(request)
            return HttpResponse()

        request = RequestFactory().get("/channels", headers=headers, REMOTE_ADDR=address)
        EdgeMiddleware(view)(request)
        return seen[0]

    return send


def test_a_trusted_proxy_tells_address_scheme_and_host(through: Any) -> None:
    headers = {"X-Forwarded-For": "198.51.100.7, 10.0.0.9", "X-Forwarded-Proto": "https"}
    request = through("10.0.0.1", **headers, **{"X-Forwarded-Host": "public.example"})
    assert request.META["REMOTE_ADDR"] == "198.51.100.7"
    assert request.is_secure()
    assert request.get_host() == "public.example"
    assert FORWARDED in request.META


def test_a_caller_cannot_choose_its_own_address_through_a_trusted_proxy(through: Any) -> None:
    request = through("10.0.0.1", **{"X-Forwarded-For": "127.0.0.1, 198.51.100.7"})
    assert request.META["REMOTE_ADDR"] == "198.51.100.7"


def test_anyone_else_is_not_believed_and_not_taken_for_local(through: Any) -> None:
    headers = {"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.example"}
    request = through("192.0.2.1", **headers)
    assert request.META["REMOTE_ADDR"] == "192.0.2.1"
    assert not request.is_secure()
    assert request.get_host() == "testserver"
    assert FORWARDED in request.META


def test_a_request_without_a_proxy_is_as_it_came(through: Any) -> None:
    request = through("127.0.0.1")
    assert FORWARDED not in request.META
    assert request.META["REMOTE_ADDR"] == "127.0.0.1"
