"""What a node's web side needs before it can start, each fault a sentence."""

from __future__ import annotations

import errno
import os
import socket
import ssl
import time
from collections.abc import Mapping

from engine.errors import ConfigError
from scheduler_project.accounts import AdminUsers, Tokens
from scheduler_project.env import WebConfig
from scheduler_project.secret import Secret


def web_problems(config: WebConfig, environ: Mapping[str, str], *, port_patience_s: float = 0.0) -> list[str]:
    """Every fault of the web side's configuration; `port_patience_s` is how long a busy port may take to be free."""
    problems: list[str] = []
    try:
        tokens = Tokens(environ)
        if not (config.loopback or tokens.configured or config.unsafe_open_api):
            problems.append(
                f"API_HOST={config.api_host!r} can be reached from other machines: set API_TOKEN (or API_TOKEN_FILE,"
                " API_TOKENS_FILE), bind a loopback address, or set UNSAFE_OPEN_API=true to serve it to everyone"
            )
    except ConfigError as error:
        problems.append(str(error))
    for read in (lambda: AdminUsers(environ), lambda: Secret("SECRET_KEY", environ)):
        try:
            read()
        except ConfigError as error:
            problems.append(str(error))
    problems += _tls_problems(config)
    problems += _port_problems(config, port_patience_s)
    return problems


def _tls_problems(config: WebConfig) -> list[str]:
    if config.tls_cert_file is None or config.tls_key_file is None:
        return []
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(config.tls_cert_file, config.tls_key_file)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return [
            f"API_TLS_CERT_FILE={str(config.tls_cert_file)!r} and API_TLS_KEY_FILE={str(config.tls_key_file)!r}"
            f" cannot be used: {reason}"
        ]
    return []


def _port_problems(config: WebConfig, patience_s: float) -> list[str]:
    """Try to bind as gunicorn will."""
    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            found = socket.getaddrinfo(
                config.api_host, config.api_port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            family, kind, protocol, _, address = found[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        except socket.gaierror as error:
            return [f"API_HOST={config.api_host!r} cannot be resolved: {error.strerror}"]
        except OSError as error:
            if error.errno == errno.EADDRINUSE and time.monotonic() < deadline_s:
                time.sleep(0.1)
                continue
            name = "API_HOST" if error.errno == errno.EADDRNOTAVAIL else "API_PORT"
            value = config.api_host if name == "API_HOST" else config.api_port
            return [f"{name}={value!r}: {config.bind} cannot be bound: {os.strerror(error.errno or 0)}"]
        return []
