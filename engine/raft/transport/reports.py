"""What the transport says in the log; a refusal or failure that repeats is said once in a while, with a count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog

from engine.raft.transport.admission import RefusedError
from engine.raft.transport.handshake import fingerprint
from engine.raft.transport.repeats import Repeats
from engine.raft.transport.transport import Identity, Reason

log = structlog.get_logger(__name__)

_UNPROVEN: Final = (Reason.BAD_HANDSHAKE, Reason.INCOMPATIBLE_VERSION, Reason.WRONG_SECRET)


class Reports:
    """One method for each thing worth a line."""

    def __init__(self, period_s: float) -> None:
        self._repeats = Repeats(period_s)

    def listening(self, host: str, port: int, secrets: Sequence[bytes]) -> None:
        """It has started; people compare the secrets of two nodes by their fingerprints."""
        log.info(
            "The cluster port is open.",
            action="transport_listening",
            bind_host=host,
            port=port,
            secrets=[fingerprint(secret) for secret in secrets],
        )

    def connected(self, peer: Identity, connection_id: str) -> None:
        """A connection stands."""
        log.info(
            "Connected to another node.",
            action="transport_connected",
            peer=peer.name,
            peer_addr=peer.address,
            incarnation=peer.incarnation,
            connection=connection_id,
        )

    def disconnected(self, peer: Identity, connection_id: str, reason: str) -> None:
        """A connection ended."""
        log.info(
            "A connection to another node ended.",
            action="transport_disconnected",
            peer=peer.name,
            connection=connection_id,
            reason=reason,
        )

    def duplicate(self, older: Identity, newer: Identity) -> None:
        """Two processes of one name have answered."""
        log.error(
            "Two processes of one name are alive at the same time.",
            action="transport_duplicate",
            peer=older.name,
            older=f"{older.incarnation}/{older.process}",
            newer=f"{newer.incarnation}/{newer.process}",
        )

    def refused(self, refused: RefusedError, claimed: Identity | None, address: str, now_s: float) -> None:
        """One of two nodes does not want the other."""
        name = claimed.name if claimed else ""
        # What is not proven is no key: anyone could fill the log with names of their own making.
        key = (refused.reason, refused.by_peer) + (() if refused.reason in _UNPROVEN else (name, address))
        left_out = self._repeats.left_out(key, now_s)
        if left_out is not None:
            log.warning(
                "Another node refuses this one." if refused.by_peer else "A connection of another node is refused.",
                action="transport_refused",
                reason=refused.reason.value,
                detail=refused.detail,
                peer=name,
                peer_addr=address,
                left_out=left_out,
            )

    def crowded(self, now_s: float) -> None:
        """A connection had to make room for a newer one before its handshake was done."""
        left_out = self._repeats.left_out("crowded", now_s)
        if left_out is not None:
            log.warning(
                "Too many connections without a handshake: the oldest is closed.",
                action="transport_crowded",
                left_out=left_out,
            )

    def unreachable(self, name: str, address: str, problem: str, now_s: float) -> None:
        """An attempt to connect has failed."""
        left_out = self._repeats.left_out((name, address, problem), now_s)
        if left_out is not None:
            log.warning(
                "Another node cannot be reached.",
                action="transport_unreachable",
                peer=name,
                peer_addr=address,
                problem=problem,
                left_out=left_out,
            )

    def failed(self, error: Exception) -> None:
        """The transport's thread ends with this error."""
        log.critical("The transport has failed.", action="transport_failed", exc_info=error)
