"""What the replicated log sees of the network between nodes: named members, messages, and what can happen.

`tcp.TcpTransport` and `memory.MemoryTransport` implement it; one suite of contract tests runs over both.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Annotated, Protocol

import msgspec

_Word = Annotated[str, msgspec.Meta(max_length=255)]


class Reason(StrEnum):
    """Why a connection was refused."""

    WRONG_SECRET = "wrong_secret"  # noqa: S105
    OTHER_CLUSTER = "other_cluster"
    UNKNOWN_NAME = "unknown_name"
    """The node is not among the members."""
    OTHER_NODE = "other_node"
    """The address leads to another node than the one that was dialled."""
    SAME_NODE = "same_node"
    """A node met itself, or another one that bears its name."""
    INCOMPATIBLE_VERSION = "incompatible_version"
    STALE_INCARNATION = "stale_incarnation"
    """This incarnation or process of the name was fenced."""
    BAD_HANDSHAKE = "bad_handshake"
    """What came is no handshake of ours, or did not come in time."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who a node says it is; true as far as whoever holds the secret is honest."""

    name: _Word
    incarnation: _Word
    """Made with the storage directory: an emptied or replaced disk is another one."""
    process: _Word
    """Made at each start: two processes on one disk differ in it."""
    cluster_id: _Word = ""
    """Empty until the cluster is founded."""
    address: _Word = ""
    """`host:port` under which the others are to reach it."""


class Events(Protocol):
    """What the transport tells, from the thread that polls it; each call must be short.

    An exception ends the transport: `poll` raises it, and the transport's own thread hands it to `on_fatal`.
    """

    def on_frame(self, name: str, incarnation: str, connection_id: str, kind: int, payload: bytes) -> None:
        """A whole message came."""
        ...

    def on_connected(self, peer: Identity, connection_id: str) -> None:
        """A connection to `peer` stands; messages to its name go there from now on.

        Both ends know the connection by the same id.
        """
        ...

    def on_disconnected(self, name: str, connection_id: str, reason: str) -> None:
        """A connection ended; what was sent on it and not answered may or may not have arrived."""
        ...

    def on_rejected(self, reason: Reason, claimed: Identity | None, detail: str) -> None:
        """A connection was refused, by this node or by the other one.

        `claimed` is who the other end says it is, as far as it said so; it is not proven with WRONG_SECRET.
        """
        ...

    def on_duplicate(self, older: Identity, newer: Identity) -> None:
        """Two processes of one name have both answered at the same time; `newer` is used until one is fenced."""
        ...

    def on_fatal(self, error: Exception) -> None:
        """The transport's own thread has ended with an error; nothing more is sent or received."""
        ...


class Transport(Protocol):
    """Messages to members by name.

    Messages on one connection arrive in the order in which they were sent; urgent ones keep their order among
    themselves and may pass the others. Nothing is repeated. A message is lost only with its connection, and then
    `on_disconnected` says so. All methods but `poll` may be called from any thread.
    """

    def start(self) -> None:
        """Listen, and begin to connect to the members."""
        ...

    def stop(self) -> None:
        """Send what waits, say goodbye, close; repeating it does nothing. Bounded in time."""
        ...

    def set_members(self, members: Mapping[str, str], *, seeds: Collection[str] = (), strangers: bool = False) -> None:
        """Replace the members: name → `host:port`, this node may be among them.

        `seeds` are addresses whose nodes' names are not known yet: they are dialled, and whoever answers there counts
        as invited. With `strangers`, nodes of other names may connect, bounded in number. Connections to those who
        are no longer welcome are closed. ConfigError names an address that is none.
        """
        ...

    def set_cluster_id(self, cluster_id: str) -> None:
        """What later handshakes carry; connections that stand stay, unless they claimed another cluster."""
        ...

    def fence(self, name: str, incarnation: str, process: str | None = None) -> None:
        """Close and refuse this process of a name, or every process of that incarnation; lasts until the stop."""
        ...

    def send(self, name: str, kind: int, payload: bytes, *, urgent: bool = False) -> bool:
        """Queue a message on the newest connection; False when there is none or its queue is full.

        An urgent message is at most one fragment long, has room of its own and passes the others. Raises
        LimitExceeded for a message that is too long, ValueError for a kind that is no u16.
        """
        ...

    def writable(self, name: str) -> bool:
        """Whether an ordinary message would be taken now."""
        ...

    def backlog(self, name: str) -> int:
        """Bytes that wait for the connection to take them; 0 when there is none."""
        ...

    def problems(self) -> Mapping[str, str]:
        """For each member or seed that is not connected: a sentence with the last thing that failed."""
        ...
