"""`host:port` of a node, and the sockets' own addresses."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any, Final, NamedTuple

from engine.errors import ConfigError

_LOOPBACK_NAMES: Final = ("localhost", "ip6-localhost")


class HostPort(NamedTuple):
    """An address as people write it, taken apart."""

    host: str
    port: int

    @property
    def is_literal(self) -> bool:
        """Whether it is an IP address, which needs no resolving."""
        try:
            ipaddress.ip_address(self.host.partition("%")[0])
        except ValueError:
            return False
        return True


class SocketAddress(NamedTuple):
    """What a socket connects to."""

    family: socket.AddressFamily
    address: tuple[Any, ...]


def parse_address(text: str) -> HostPort:
    """`name:port`, `1.2.3.4:port` or `[v6]:port`; ConfigError for anything else, with a hint for bare IPv6."""
    host, colon, number = text.rpartition(":")
    if not host.startswith("[") and ":" in host:
        raise ConfigError(f"{text!r} is no host:port: an IPv6 address is written in brackets, [address]:port")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not bare or "[" in bare or "]" in bare or any(c in bare for c in "/, "):
        raise ConfigError(f"{text!r} is no host:port")
    if not (number.isascii() and number.isdecimal()) or not 0 < int(number) < 65536:
        raise ConfigError(f"{text!r} is no host:port: the port is a number from 1 to 65535")
    return HostPort(bare, int(number))


def bind_host(configured: str | None, node_host: str) -> str:
    """CLUSTER_BIND_HOST, or where to listen without it: loopback for a loopback name, else all addresses (empty)."""
    if configured:
        return configured.removeprefix("[").removesuffix("]")
    if node_host.lower().rstrip(".") in _LOOPBACK_NAMES:
        return node_host
    try:
        return node_host if ipaddress.ip_address(node_host.strip("[]")).is_loopback else ""
    except ValueError:
        return ""


def look_up(host: str, port: int, *, passive: bool = False) -> list[SocketAddress]:
    """Every address of every family; OSError when there is none. Blocks as long as the resolver does."""
    flags = socket.AI_PASSIVE if passive else 0
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=flags)
    unique = {SocketAddress(family, address): None for family, _, _, _, address in found}
    return list(unique)
