"""The web side's variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import ConfigError
from scheduler_project.env import WebConfig, is_loopback


def test_without_variables_the_defaults_of_the_interface_hold() -> None:
    config = WebConfig.from_env({})
    assert config.bind == "127.0.0.1:5569"
    assert config.storage_path == Path("storage").absolute()
    assert (config.log_format, config.log_level) == ("text", "info")
    assert config.shutdown_grace_s == 20
    assert config.loopback
    assert "localhost" in config.allowed_hosts


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("API_PORT", "http", "1 to 65535"),
        ("API_PORT", "0", "1 to 65535"),
        ("API_PORT", "65536", "1 to 65535"),
        ("API_PORT", "55 69", "1 to 65535"),
        ("API_PORT", "٥٥٦٩", "1 to 65535"),
        ("API_HOST", "127.0.0.1:80", "without a port"),
        ("API_HOST", "a b", "host name"),
        ("LOG_FORMAT", "xml", "text, json, gcp"),
        ("LOG_LEVEL", "loud", "trace, debug, info"),
        ("SHUTDOWN_GRACE_SECONDS", "-1", "seconds"),
        ("SHUTDOWN_GRACE_SECONDS", "nan", "seconds"),
        ("TRUSTED_PROXIES", "proxy.example.com", "10.0.0.0/8"),
        ("ALLOWED_HOSTS", "https://example.com", "without scheme"),
        ("ALLOWED_HOSTS", "example.com:80", "without scheme and port"),
        ("CSRF_TRUSTED_ORIGINS", "example.com", "https://"),
        ("UNSAFE_OPEN_API", "perhaps", "true and false"),
    ],
)
def test_a_wrong_value_is_named_with_its_variable_and_what_is_allowed(name: str, value: str, allowed: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        WebConfig.from_env({name: value})
    sentence = str(refusal.value)
    assert name in sentence
    assert repr(value) in sentence
    assert allowed in sentence


def test_a_port_that_kubernetes_has_set_names_the_cause() -> None:
    with pytest.raises(ConfigError, match=r"Kubernetes.*enableServiceLinks"):
        WebConfig.from_env({"API_PORT": "tcp://10.0.0.5:5569"})


def test_https_needs_both_files() -> None:
    with pytest.raises(ConfigError, match="API_TLS_KEY_FILE is not set"):
        WebConfig.from_env({"API_TLS_CERT_FILE": "cert.pem"})


@pytest.mark.parametrize(
    ("host", "bind"),
    [("::1", "[::1]:5569"), ("[::1]", "[::1]:5569"), ("0.0.0.0", "0.0.0.0:5569"), ("n1.a", "n1.a:5569")],
)
def test_addresses_of_both_families_can_be_bound(host: str, bind: str) -> None:
    assert WebConfig.from_env({"API_HOST": host}).bind == bind


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.", "a.localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]"])
def test_loopback_is_known_by_name_and_address(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "localhost.example.com", "example", ""])
def test_other_hosts_are_not_loopback(host: str) -> None:
    assert not is_loopback(host)


def test_an_empty_variable_means_the_default() -> None:
    empty = dict.fromkeys(("API_PORT", "API_HOST", "LOG_LEVEL", "STORAGE_PATH", "ALLOWED_HOSTS"), "")
    assert WebConfig.from_env(empty) == WebConfig.from_env({})
