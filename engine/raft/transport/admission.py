"""Who may be at the other end of a connection: the rules, without any networking."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from engine.config import TransportLimits
from engine.errors import SchedulerError
from engine.raft.transport.transport import Identity, Reason


class RefusedError(SchedulerError):
    """A connection does not come about, with the reason that both ends log."""

    def __init__(self, reason: Reason, detail: str, *, claimed: Identity | None = None, by_peer: bool = False) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.claimed = claimed
        self.by_peer = by_peer
        """The other end refused, and need not be told."""


class Admission:
    """The rules of one node at one moment."""

    def __init__(self, own: Identity, limits: TransportLimits) -> None:
        self.own = own
        self._limits = limits
        self._members: Mapping[str, str] = {}
        self._strangers = False
        self._fenced: OrderedDict[tuple[str, str, str | None], None] = OrderedDict()

    def set_members(self, members: Mapping[str, str], strangers: bool) -> None:
        """Whom this node knows, and whether it talks to others too."""
        self._members = dict(members)
        self._strangers = strangers

    def fence(self, name: str, incarnation: str, process: str | None) -> None:
        """Refuse this process, or this whole incarnation; the oldest fence is forgotten when there are too many."""
        self._fenced[(name, incarnation, process)] = None
        while len(self._fenced) > self._limits.fences_max:
            self._fenced.popitem(last=False)

    def check(self, claimed: Identity, *, invited: bool, strangers: int = 0) -> None:
        """Raise RefusedError unless `claimed` may talk to this node.

        `invited`: this node dialled an address to meet whoever is there. `strangers`: how many nodes that are no
        members are connected already.
        """
        own = self.own
        if claimed.name == own.name:
            raise self._refused(Reason.SAME_NODE, claimed, f"it bears this node's own name {own.name!r}")
        if own.cluster_id and claimed.cluster_id and own.cluster_id != claimed.cluster_id:
            ids = f"it belongs to cluster {claimed.cluster_id!r}, this node to {own.cluster_id!r}"
            raise self._refused(Reason.OTHER_CLUSTER, claimed, ids)
        for process in (None, claimed.process):
            if (claimed.name, claimed.incarnation, process) in self._fenced:
                what = f"incarnation {claimed.incarnation!r} of {claimed.name!r} was replaced by another one"
                raise self._refused(Reason.STALE_INCARNATION, claimed, what)
        if claimed.name not in self._members and not invited:
            if not self._strangers:
                raise self._refused(Reason.UNKNOWN_NAME, claimed, f"{claimed.name!r} is no member of this cluster")
            if strangers >= self._limits.strangers_max:
                raise self._refused(Reason.UNKNOWN_NAME, claimed, "too many nodes that are no members are connected")

    def is_member(self, name: str) -> bool:
        """Whether the name is one of the members."""
        return name in self._members

    @staticmethod
    def _refused(reason: Reason, claimed: Identity, detail: str) -> RefusedError:
        return RefusedError(reason, detail, claimed=claimed)
