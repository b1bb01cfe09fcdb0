"""Connections to Pub/Sub: shared by the channels that have endpoint and credentials in common, counted, and renewed.

The real service is reached over the GAPIC client's own transport, so that authentication, mutual TLS and universe
domains stay Google's; on its channel the relay uses stubs of its own that pass bytes. An emulator is reached in plain
text and without credentials.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import grpc
import structlog

from engine.clock import Clock
from engine.config import PubSubLimits
from engine.model import DestinationConfig, SourceConfig
from engine.pubsub import credentials
from engine.pubsub.errors import KeyFileError, NotConnected
from engine.pubsub.timer import Timer

_log = structlog.get_logger(__name__)

PLAIN: Final = "http://"
"""An endpoint that begins so is spoken to in plain text and without credentials: an emulator of its own."""

# gRPC logs a traceback for every refused token; `classify` makes a sentence of the same failure.
logging.getLogger("grpc._plugin_wrapping").setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Identity:
    """What two users must have in common to share a connection."""

    target: str
    plain: bool
    key_file: Path | None
    watched: Path | None
    """The file whose change means new credentials."""
    digest: str


class _Shared:
    """One gRPC channel and its users."""

    def __init__(self, identity: _Identity, channel: grpc.Channel, now_s: float) -> None:
        self.identity = identity
        self.channel = channel
        self.users = 0
        self.retired = False
        self.answered_s = now_s
        self.polled_s = now_s
        self.complaint = ""


class Connection:
    """One user's hold on a shared connection; `close` gives it back."""

    def __init__(self, owner: Connections, shared: _Shared, clock: Clock) -> None:
        self._owner = owner
        self._shared = shared
        self._clock = clock
        self._closed = False

    @property
    def channel(self) -> grpc.Channel:
        """The channel, to make stubs of."""
        return self._shared.channel

    @property
    def timer(self) -> Timer:
        """For what a user wants to do later."""
        return self._owner.timer

    def unary(self, method: str, parse: Callable[[bytes], Any] | None = None) -> Any:
        """A stub for `Service/Method` that takes request bytes."""
        return self._shared.channel.unary_unary(f"/google.pubsub.v1.{method}", None, parse)

    def stream(self, method: str) -> Any:
        """A stub for a stream of bytes in both directions."""
        return self._shared.channel.stream_stream(f"/google.pubsub.v1.{method}", None, None)

    def answered(self) -> None:
        """Note that the service answered: the connection is alive."""
        self._shared.answered_s = self._clock.elapsed_s()

    def silent_s(self) -> float:
        """Seconds since the service last answered any user."""
        return self._clock.elapsed_s() - self._shared.answered_s

    def retire(self) -> None:
        """Give no new user this connection; it is closed when its last user has left."""
        self._shared.retired = True

    def renewed(self) -> bool:
        """Whether other, usable credentials have taken the place of these: then connect again."""
        return self._shared.retired or self._owner.poll(self._shared)

    def close(self) -> None:
        """Give the connection back; closing twice does nothing."""
        if not self._closed:
            self._closed = True
            self._owner.release(self._shared)


def routing(field: str, resource: str) -> tuple[tuple[str, str], ...]:
    """The metadata by which the service routes a call, as its own clients send it."""
    return (("x-goog-request-params", f"{field}={quote(resource)}"),)


class Connections:
    """All connections of this node, made on demand."""

    def __init__(
        self, emulator_host: str | None, key_files_dir: Path | None, limits: PubSubLimits, clock: Clock
    ) -> None:
        self._emulator_host = emulator_host
        self._key_files_dir = key_files_dir
        self._limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._shared: list[_Shared] = []
        self._closed = False
        self.timer = Timer(clock)

    def subscriber(self, config: SourceConfig) -> Connection:
        """Connect for a source. Raises what `errors.classify` knows: KeyFileError, google-auth's errors.

        With default credentials this may take seconds, so it belongs in a thread of the channel's own.
        """
        return self._connect(config.endpoint, config.key_file)

    def publisher(self, config: DestinationConfig) -> Connection:
        """The same for a destination."""
        return self._connect(config.endpoint, config.key_file)

    def is_quick(self, config: SourceConfig | DestinationConfig) -> bool:
        """Whether connecting asks nobody but the disk."""
        return bool(config.key_file) or self._plain_target(config.endpoint) is not None

    def close(self) -> None:
        """Close every connection, whoever still holds it."""
        self.timer.close()
        with self._lock:
            self._closed = True
            shared, self._shared = self._shared, []
        for connection in shared:
            connection.channel.close()

    def release(self, shared: _Shared) -> None:
        """Take a user off; the last one closes the channel."""
        with self._lock:
            shared.users -= 1
            unused = shared.users == 0 and shared in self._shared
            if unused:
                self._shared.remove(shared)
        if unused:
            shared.channel.close()

    def fingerprint(self, config: SourceConfig | DestinationConfig) -> str:
        """Identity of the credentials that `config` would get now; a change is worth another attempt."""
        try:
            return self._identify(config.endpoint, config.key_file)[0].digest
        except KeyFileError as error:
            return str(error)

    def poll(self, shared: _Shared) -> bool:
        """Look whether the key file changed, at most every few seconds; an unusable new content changes nothing."""
        now_s = self._clock.elapsed_s()
        path = shared.identity.watched
        if path is None or now_s - shared.polled_s < self._limits.key_file_poll_s:
            return False
        shared.polled_s = now_s
        try:
            content = credentials.read_key_file(path)
            if credentials.digest(content) == shared.identity.digest:
                return False
            credentials.load_key(content, path)
        except KeyFileError as error:
            if shared.complaint != str(error):
                shared.complaint = str(error)
                _log.warning(
                    "A changed key file cannot be used; the credentials that were loaded before stay in use.",
                    action="key_file_unusable",
                    reason=shared.complaint,
                )
            return False
        shared.retired = True
        _log.info("A key file has changed: connecting again with it.", action="key_file_changed", path=str(path))
        return True

    def _plain_target(self, endpoint: str | None) -> str | None:
        """Where to connect in plain text; None for the real service."""
        if endpoint and endpoint.startswith(PLAIN):
            return endpoint.removeprefix(PLAIN).rstrip("/")
        return self._emulator_host or None

    def _connect(self, endpoint: str | None, key_file: str | None) -> Connection:
        """Share a connection with the same identity, or make one."""
        identity, content = self._identify(endpoint, key_file)
        with self._lock:
            shared = self._find(identity)
            if shared is not None:
                shared.users += 1
                return Connection(self, shared, self._clock)
        channel = self._open(identity, content)
        with self._lock:
            if not self._closed:
                shared = _Shared(identity, channel, self._clock.elapsed_s())
                shared.users = 1
                self._shared.append(shared)
                return Connection(self, shared, self._clock)
        channel.close()
        raise NotConnected("the connections are closed")

    def _identify(self, endpoint: str | None, key_file: str | None) -> tuple[_Identity, bytes]:
        """Where a configuration leads and with which credentials, and its key file's content."""
        plain = self._plain_target(endpoint)
        path = credentials.key_file_path(key_file, self._key_files_dir)
        content = credentials.read_key_file(path) if path else b""
        watched = path or (None if plain else credentials.machine_key_file())
        watched_content = credentials.read_key_file(watched) if watched else b""
        return _Identity(
            target=plain or endpoint or "",
            plain=plain is not None,
            key_file=path,
            watched=watched,
            digest=credentials.digest(content or watched_content),
        ), content

    def _find(self, identity: _Identity) -> _Shared | None:
        """A connection of this identity with room for one more user."""
        for shared in self._shared:
            if shared.identity == identity and not shared.retired and shared.users < self._limits.connection_users_max:
                return shared
        return None

    def _open(self, identity: _Identity, content: bytes) -> grpc.Channel:
        """Make a channel; raises when the credentials cannot be used."""
        loaded = credentials.load_key(content, identity.key_file) if identity.key_file else None
        if identity.plain:
            if loaded is not None:
                credentials.try_local_token(loaded)
            options = [*self._options(), ("grpc.enable_http_proxy", 0)]
            return grpc.insecure_channel(identity.target, options)
        return self._open_secure(identity.target, loaded or credentials.machine_credentials())

    def _open_secure(self, target: str, loaded: Any) -> grpc.Channel:
        """A channel as the GAPIC client makes it, with options of ours."""
        # Imported here: it costs a third of a second, and a node with an emulator never needs it.
        from google.api_core.client_options import ClientOptions
        from google.pubsub_v1.services.subscriber import SubscriberClient
        from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

        def create(host: str, options: list[tuple[str, Any]], **settings: Any) -> grpc.Channel:
            merged = (
                dict(options) | dict(self._options()) | {"grpc.keepalive_time_ms": int(self._limits.keepalive_s * 1000)}
            )
            return SubscriberGrpcTransport.create_channel(host, options=list(merged.items()), **settings)

        client = SubscriberClient(
            credentials=loaded,
            client_options=ClientOptions(api_endpoint=target or None),
            transport=partial(SubscriberGrpcTransport, channel=create),
        )
        transport: Any = client.transport
        channel: grpc.Channel = transport.grpc_channel
        return channel

    def _options(self) -> list[tuple[str, Any]]:
        """Options of every channel: any size, no retries behind our back, a TCP connection of its own."""
        return [
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", -1),
            ("grpc.enable_retries", 0),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.initial_reconnect_backoff_ms", int(self._limits.backoff_min_s * 1000)),
            ("grpc.max_reconnect_backoff_ms", int(self._limits.reconnect_backoff_max_s * 1000)),
        ]
