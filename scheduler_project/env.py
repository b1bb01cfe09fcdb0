"""The web side's variables, parsed once, each refusal naming the variable, its value and what is allowed."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.errors import ConfigError

LOG_FORMATS: Final = ("text", "json", "gcp")
LOG_LEVELS: Final = ("trace", "debug", "info", "warning", "warn", "error", "fatal", "panic")
LOOPBACK_HOSTS: Final = ("localhost", ".localhost", "127.0.0.1", "[::1]")
DEVELOPMENT: Final = "EVENT_SCHEDULER_DEVELOPMENT"
"""Set by `run_scheduler --dev` for its web child."""
NODE_PID: Final = "EVENT_SCHEDULER_NODE_PID"
"""Set by a node for its web child: the process whose death ends it."""

_TRUE: Final = ("1", "true", "yes", "on")
_FALSE: Final = ("0", "false", "no", "off")
_NUMBER: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?", re.ASCII)
_HOST: Final = re.compile(r"\*|\.?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?|\[[0-9A-Fa-f:.]+\]", re.ASCII)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True, kw_only=True)
class WebConfig:
    """What the web side is started with; secrets that are re-read are not part of it (`scheduler_project.secret`)."""

    storage_path: Path
    api_host: str
    api_port: int
    tls_cert_file: Path | None
    tls_key_file: Path | None
    trusted_proxies: tuple[Network, ...]
    allowed_hosts: tuple[str, ...]
    csrf_trusted_origins: tuple[str, ...]
    log_format: str
    log_level: str
    shutdown_grace_s: float
    unsafe_open_api: bool
    development: bool
    """Debug pages."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> WebConfig:
        """Parse every variable; ConfigError for the first that is wrong."""
        cert_file, key_file = _path(environ, "API_TLS_CERT_FILE"), _path(environ, "API_TLS_KEY_FILE")
        if (cert_file is None) != (key_file is None):
            missing = "API_TLS_CERT_FILE" if cert_file is None else "API_TLS_KEY_FILE"
            raise ConfigError(f"{missing} is not set: HTTPS needs both API_TLS_CERT_FILE and API_TLS_KEY_FILE")
        return cls(
            storage_path=Path(environ.get("STORAGE_PATH") or "storage").absolute(),
            api_host=_bind_host(environ, "API_HOST", "127.0.0.1"),
            api_port=port(environ, "API_PORT", 5569),
            tls_cert_file=cert_file,
            tls_key_file=key_file,
            trusted_proxies=tuple(_network("TRUSTED_PROXIES", item) for item in _items(environ, "TRUSTED_PROXIES")),
            # Loopback names stay: the commands and the probes of this machine use them.
            allowed_hosts=(*_hosts(environ), *LOOPBACK_HOSTS),
            csrf_trusted_origins=_origins(environ),
            log_format=choice(environ, "LOG_FORMAT", "text", LOG_FORMATS),
            log_level=choice(environ, "LOG_LEVEL", "info", LOG_LEVELS),
            shutdown_grace_s=_seconds(environ, "SHUTDOWN_GRACE_SECONDS", 20.0),
            unsafe_open_api=boolean(environ, "UNSAFE_OPEN_API"),
            development=boolean(environ, DEVELOPMENT),
        )

    @property
    def bind(self) -> str:
        """Where gunicorn listens, `host:port` with brackets around IPv6."""
        host = f"[{self.api_host}]" if ":" in self.api_host else self.api_host
        return f"{host}:{self.api_port}"

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the web side."""
        return is_loopback(self.api_host)


def is_loopback(host: str) -> bool:
    """Whether a name or an address means this machine alone."""
    host = host.strip("[]").rstrip(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    address = parse_address(host)
    return address is not None and address.is_loopback


def parse_address(text: str) -> Address | None:
    """An IP address, an IPv4 one where it comes wrapped in IPv6; None for anything else."""
    try:
        address = ipaddress.ip_address(text.split("%", 1)[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def choice(environ: Mapping[str, str], name: str, default: str, allowed: tuple[str, ...]) -> str:
    """One of `allowed`, in any case of letters."""
    value = environ.get(name) or default
    if value.lower() not in allowed:
        raise ConfigError(f"{name}={value!r}: allowed are {', '.join(allowed)}")
    return value.lower()


def boolean(environ: Mapping[str, str], name: str) -> bool:
    """A yes or a no; not set means no."""
    value = environ.get(name) or "false"
    if value.lower() not in _TRUE + _FALSE:
        raise ConfigError(f"{name}={value!r}: allowed are true and false")
    return value.lower() in _TRUE


def port(environ: Mapping[str, str], name: str, default: int) -> int:
    """A port to listen on."""
    value = environ.get(name) or str(default)
    if re.match(r"(tcp|udp|sctp)://", value):
        service = name.removesuffix("_PORT").replace("_", "-").lower()
        raise ConfigError(
            f"{name}={value!r}: Kubernetes sets this for a Service named {service!r}; set enableServiceLinks: false"
            f" in the pod, rename the Service, or set {name} to a number from 1 to 65535"
        )
    if not value.isascii() or not value.isdigit() or not 1 <= int(value[:6]) <= 65535:
        raise ConfigError(f"{name}={value!r}: allowed is a port number from 1 to 65535")
    return int(value)


def _path(environ: Mapping[str, str], name: str) -> Path | None:
    value = environ.get(name)
    return Path(value).absolute() if value else None


def _items(environ: Mapping[str, str], name: str) -> list[str]:
    return [item.strip() for item in environ.get(name, "").split(",") if item.strip()]


def _bind_host(environ: Mapping[str, str], name: str, default: str) -> str:
    value = (environ.get(name) or default).strip()
    bare = value[1:-1] if value.startswith("[") and value.endswith("]") else value
    if parse_address(bare) is None and (":" in bare or not _HOST.fullmatch(bare) or bare.startswith((".", "*"))):
        raise ConfigError(f"{name}={value!r}: allowed is a host name or an IP address, without a port")
    return bare


def _network(name: str, item: str) -> Network:
    try:
        return ipaddress.ip_network(item, strict=False)
    except ValueError as error:
        raise ConfigError(
            f"{name}={item!r}: allowed are IP addresses and networks (10.0.0.0/8), comma-separated"
        ) from error


def _hosts(environ: Mapping[str, str]) -> tuple[str, ...]:
    hosts = _items(environ, "ALLOWED_HOSTS")
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise ConfigError(
                f"ALLOWED_HOSTS={host!r}: allowed are host names without scheme and port, .example.com for all names"
                " below it, or *; comma-separated"
            )
    return tuple(hosts)


def _origins(environ: Mapping[str, str]) -> tuple[str, ...]:
    origins = _items(environ, "CSRF_TRUSTED_ORIGINS")
    for origin in origins:
        if not re.fullmatch(r"https?://[^/\s]+", origin):
            raise ConfigError(
                f"CSRF_TRUSTED_ORIGINS={origin!r}: allowed are origins such as https://admin.example.com,"
                " comma-separated"
            )
    return tuple(origins)


def _seconds(environ: Mapping[str, str], name: str, default: float) -> float:
    value = environ.get(name) or str(default)
    if not _NUMBER.fullmatch(value):
        raise ConfigError(f"{name}={value!r}: allowed is a number of seconds from 0")
    return float(value)
