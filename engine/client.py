"""The one door to the engine for everyone outside it: typed calls over the control socket of this node.

Plain blocking sockets, one connection per thread, made anew after an error and after a fork; no engine object, thread
or gRPC channel lives here, so it is safe below gunicorn. Every method raises the errors of `engine.errors`.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from engine.config import ControlLimits
from engine.errors import OutcomeUnknown, Unavailable
from engine.frames import PROTOCOL, FrameError, SocketPath, receive_frame, send_frame, unpack_error

Document = dict[str, Any]
"""A JSON document in the shape of the REST interface."""


class Client:
    """Calls to the engine whose storage is `storage_path`."""

    def __init__(self, storage_path: Path, limits: ControlLimits | None = None) -> None:
        self._storage_path = storage_path
        self._limits = limits or ControlLimits()
        self._local = threading.local()

    # ---- channels ----------------------------------------------------------------------------------------------------

    def channels(self) -> list[Document]:
        """All channels, by id, with state and stats."""
        return cast(list[Document], self._read("channels"))

    def channel(self, channel_id: str) -> Document:
        """One channel; NotFound."""
        return cast(Document, self._read("channel", id=channel_id))

    def create_channel(self, document: Mapping[str, Any], *, actor: str, request_id: str = "") -> Document:
        """Create a channel from a REST body; InvalidCommand, Conflict. A missing id is made here, by the proposer."""
        return cast(Document, self._write("create_channel", document=document, actor=actor, request_id=request_id))

    def update_channel(
        self,
        channel_id: str,
        patch: Mapping[str, Any],
        *,
        actor: str,
        expected_revision: int | None = None,
        request_id: str = "",
    ) -> Document:
        """Merge a JSON merge patch (RFC 7396) into a channel; NotFound, InvalidCommand, Conflict, RevisionMismatch."""
        return cast(
            Document,
            self._write(
                "update_channel",
                id=channel_id,
                patch=patch,
                expected_revision=expected_revision,
                actor=actor,
                request_id=request_id,
            ),
        )

    def delete_channel(
        self,
        channel_id: str,
        *,
        actor: str,
        pending: str | None = None,
        expected_revision: int | None = None,
        request_id: str = "",
    ) -> bool:
        """Delete a channel: True when it is gone, False while it is closing (`drain`).

        `pending` is None (refused with CHANNEL_NOT_EMPTY while it holds messages), `discard` or `drain`.
        """
        return cast(
            bool,
            self._write(
                "delete_channel",
                id=channel_id,
                pending=pending,
                expected_revision=expected_revision,
                actor=actor,
                request_id=request_id,
            ),
        )

    def pause_channel(
        self,
        channel_id: str,
        *,
        actor: str,
        side: str = "both",
        until: str | int | float | None = None,
        reason: str = "",
        request_id: str = "",
    ) -> Document:
        """Stop one side or both; `until` as RFC 3339 or epoch seconds. The channel."""
        return cast(
            Document,
            self._write(
                "pause_channel",
                id=channel_id,
                side=side,
                until=until,
                reason=reason,
                actor=actor,
                request_id=request_id,
            ),
        )

    def resume_channel(self, channel_id: str, *, actor: str, side: str = "both", request_id: str = "") -> Document:
        """Let one side or both go on. The channel."""
        return cast(
            Document, self._write("resume_channel", id=channel_id, side=side, actor=actor, request_id=request_id)
        )

    # ---- the node ----------------------------------------------------------------------------------------------------

    def in_flight(self, channel_id: str) -> set[int]:
        """Seqs of the channel that are handed to the publisher and not yet confirmed (only the leader knows any)."""
        return set(self._read("in_flight", id=channel_id))

    def cluster(self) -> Document:
        """The body of `GET /cluster`."""
        return cast(Document, self._read("cluster"))

    def health(self) -> Document:
        """`{"live": [...], "ready": [...]}`, each a list of `{name, status, detail}` with status ok, warn or fail."""
        return cast(Document, self._read("health"))

    def metrics(self) -> bytes:
        """The engine's metrics in the Prometheus text format."""
        return cast(bytes, self._read("metrics"))

    def secret_key(self) -> str:
        """Django's SECRET_KEY as it was made at the founding; Unavailable before that."""
        return cast(str, self._read("secret_key"))

    def barrier(self) -> None:
        """Return once everything that was committed before the call is applied on this node; NoLeader."""
        self._read("barrier")

    def fresh(self, *, strong: bool = False) -> None:
        """Return once `state.db` shows every mutation that this node has answered.

        `strong`: everything that was committed before the call, whoever made it; NoLeader.
        """
        self._read("fresh", strong=strong)

    # ---- transport ---------------------------------------------------------------------------------------------------

    def _read(self, operation: str, **arguments: Any) -> Any:
        """Call without effect: a broken connection is made anew once, everything else is Unavailable."""
        for last in (False, True):
            try:
                return self._exchange(operation, arguments)
            except (OSError, FrameError) as error:
                self._drop()
                if last:
                    raise _unreachable(error) from error
        raise AssertionError("unreachable")

    def _write(self, operation: str, **arguments: Any) -> Any:
        """Call with an effect: after the request has left, a broken connection means that the outcome is unknown."""
        try:
            self._connection()
            # A kept connection may have died with an earlier engine: ask something harmless first.
            self._exchange("ping", {})
        except (OSError, FrameError):
            self._drop()
            try:
                self._connection()
            except OSError as error:
                raise _unreachable(error) from error
        try:
            return self._exchange(operation, arguments)
        except (OSError, FrameError) as error:
            self._drop()
            raise OutcomeUnknown(
                f"the engine did not answer ({error}); repeat the request with the same Idempotency-Key"
            ) from error

    def _exchange(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        connection = self._connection()
        send_frame(connection, {"v": PROTOCOL, "op": operation, "args": arguments})
        answer = receive_frame(connection, self._limits.frame_bytes_max)
        if answer is None:
            raise FrameError("the engine closed the connection")
        if "error" in answer:
            raise unpack_error(answer["error"])
        return answer["ok"]

    def _connection(self) -> socket.socket:
        owner: int | None = getattr(self._local, "pid", None)
        if owner == os.getpid():
            return cast(socket.socket, self._local.socket)
        path = SocketPath(self._storage_path)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(self._limits.request_timeout_s)
            connection.connect(path.address)
        except OSError:
            connection.close()
            raise
        finally:
            path.close()
        self._local.socket = connection
        self._local.pid = os.getpid()
        return connection

    def _drop(self) -> None:
        connection: socket.socket | None = getattr(self._local, "socket", None)
        if connection is not None:
            connection.close()
        self._local.__dict__.clear()

    def close(self) -> None:
        """Close this thread's connection."""
        self._drop()


def _unreachable(error: Exception) -> Unavailable:
    return Unavailable(f"the engine of this node does not answer: {error}", reason="ENGINE_UNREACHABLE")
