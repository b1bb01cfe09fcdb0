"""The connections that stand, by the name of the other end: which one is used, and which ones have to go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from engine.config import TransportLimits
from engine.raft.transport.transport import Identity


class Connection(Protocol):
    """What has to be known of a connection here."""

    superseded: bool
    """Another process of this name has come; it is kept until it answers, or does not."""

    leaving: str
    """Not empty while it is being closed in order."""

    @property
    def peer(self) -> Identity:
        """Who is at the other end."""
        ...


_C = TypeVar("_C", bound=Connection)


@dataclass(slots=True)
class Consequences(Generic[_C]):
    """What a new connection means for the older ones of its name."""

    replaced: list[_C] = field(default_factory=list)
    """Older connections of the same process: to be closed in order, so that nothing on them is lost."""
    surplus: list[_C] = field(default_factory=list)
    """Too many: to be closed at once."""
    doubt: list[_C] = field(default_factory=list)
    """Connections of another process of this name, which is a duplicate if it still answers."""


class Connections(Generic[_C]):
    """See the module. Changed by the transport's thread only; `current` may be called from any."""

    def __init__(self, own_name: str, limits: TransportLimits) -> None:
        self._own_name = own_name
        self._limits = limits
        self._by_name: dict[str, list[_C]] = {}
        self._current: dict[str, _C] = {}

    def current(self, name: str) -> _C | None:
        """The connection on which messages to `name` are sent: the newest."""
        return self._current.get(name)

    def __iter__(self) -> Iterator[_C]:
        return iter([link for links in self._by_name.values() for link in links])

    def __contains__(self, link: _C) -> bool:
        return link in self._by_name.get(link.peer.name, ())

    def holds_address(self, address: str) -> bool:
        """Whether someone is connected who is to be reached there."""
        return any(link.peer.address == address for link in list(self._current.values()))

    def names(self) -> list[str]:
        """Everyone who is connected."""
        return list(self._current)

    def add(self, link: _C) -> Consequences[_C]:
        """Take a new connection; it is the current one from now on.

        Both ends may dial at the same time and see the two connections stand in different orders. If each closed its
        older one, none would be left. So the end with the lower name closes, and the other one waits for that.
        """
        links = self._by_name.setdefault(link.peer.name, [])
        found: Consequences[_C] = Consequences()
        for older in links:
            if not same_process(older.peer, link.peer):
                if not older.superseded:
                    found.doubt.append(older)
            elif self._own_name < link.peer.name and not older.leaving:
                found.replaced.append(older)
        found.surplus = links[: max(0, len(links) + 1 - self._limits.peer_connections_max)]
        links.append(link)
        self._current[link.peer.name] = link
        return found

    def remove(self, link: _C) -> None:
        """Forget a connection; the newest that is left takes its place."""
        links = self._by_name[link.peer.name]
        links.remove(link)
        if not links:
            del self._by_name[link.peer.name]
        self.review(link.peer.name)

    def review(self, name: str) -> None:
        """Choose the current connection again, after one of them was superseded or began to close."""
        links = self._by_name.get(name, [])
        left = [link for link in links if not link.superseded and not link.leaving]
        if left:
            self._current[name] = left[-1]
        else:
            self._current.pop(name, None)


def same_process(one: Identity, other: Identity) -> bool:
    """Whether two identities of one name are the same process."""
    return (one.incarnation, one.process) == (other.incarnation, other.process)
