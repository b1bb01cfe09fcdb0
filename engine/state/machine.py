"""The deterministic core: one command on one state, legal or `Rejected`, never an exception.

What can still be raised is not about the command: the own file is damaged or cannot be read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.commands import (
    REASON_ALREADY_FOUNDED,
    REASON_MALFORMED,
    Accept,
    Answer,
    ChannelAnswer,
    CloseChannel,
    Command,
    Confirm,
    CreateChannel,
    Discard,
    Done,
    DropChannel,
    Found,
    PauseChannel,
    PutNode,
    Quarantine,
    Rejected,
    Request,
    UpdateChannel,
)
from engine.config import StateLimits
from engine.model import Cluster, Node
from engine.state.channels import Channels
from engine.state.counters import Counters
from engine.state.generation import Mark
from engine.state.layers import Layers
from engine.state.messages import Messages, Pending
from engine.state.results import Results
from engine.state.seen import Seen

STAMP_MAX_MS: Final = 1 << 62
"""Beyond it sums of times would leave SQLite's integers."""


@dataclass(slots=True)
class Notice:
    """What one command changed, for the observer."""

    pending: Pending | None = None
    channel_uid: int | None = None


class Machine:
    """The whole state in memory terms; every method runs in the apply thread under the state's lock."""

    def __init__(self, limits: StateLimits, layers: Layers, seen: Seen, mark: Mark) -> None:
        self.layers = layers
        self.seen = seen
        self.last_stamp_ms = mark.last_stamp_ms
        self.messages = Messages(limits, layers, seen, mark.next_seq)
        self.channels = Channels(mark.next_uid)
        self.results = Results(limits)
        self.nodes: dict[str, Node] = {}
        self.cluster: Cluster | None = None

    def apply(self, index: int, command: Command) -> tuple[Answer, Notice]:
        """Carry out one command; `index` is its place in the log."""
        notice = Notice()
        if not 0 <= command.stamp_ms < STAMP_MAX_MS:
            return Rejected(REASON_MALFORMED, f"the stamp {command.stamp_ms} is no time"), notice
        stamp_ms = self.last_stamp_ms = max(self.last_stamp_ms, command.stamp_ms)
        if isinstance(command, Accept):
            channel = self.channels.by_uid.get(command.channel_uid)
            answer, notice.pending = self.messages.accept(command, channel, stamp_ms)
            return answer, notice
        if isinstance(command, Confirm):
            return self.messages.confirm(command), notice
        if isinstance(command, Request) and command.request_id:
            remembered = self.results.recall(command, stamp_ms, self.layers.active)
            if remembered is not None:
                return remembered, notice
            answer = self._carry_out(command, stamp_ms, notice)
            self.results.remember(command, index, stamp_ms, answer, self.layers.active)
            return answer, notice
        return self._carry_out(command, stamp_ms, notice), notice

    def _carry_out(self, command: Command, stamp_ms: int, notice: Notice) -> Answer:
        """The verbs that are rare."""
        active = self.layers.active
        if isinstance(command, Quarantine):
            return self.messages.quarantine(command, stamp_ms)
        if isinstance(command, Discard):
            return self.messages.discard(command, self.channels.by_uid.get(command.channel_uid))
        if isinstance(command, Found):
            return self._found(command)
        if isinstance(command, PutNode):
            return self._put_node(command.node)
        answer = self._channel_verb(command, stamp_ms)
        if isinstance(answer, ChannelAnswer):
            uid = notice.channel_uid = answer.channel.uid
            self.messages.counters.setdefault(uid, Counters())
            active.touched.add(uid)
        elif isinstance(answer, Done) and isinstance(command, DropChannel):
            notice.channel_uid = command.channel_uid
            del self.messages.counters[command.channel_uid]
        return answer

    def _channel_verb(self, command: Command, stamp_ms: int) -> Answer:
        active, counters = self.layers.active, self.messages.counters
        if isinstance(command, CreateChannel):
            return self.channels.create(command, stamp_ms, active)
        if isinstance(command, UpdateChannel):
            return self.channels.update(command, stamp_ms, active)
        if isinstance(command, PauseChannel):
            return self.channels.pause(command, stamp_ms, active)
        if isinstance(command, CloseChannel):
            return self.channels.close(command, counters.get(command.channel_uid), stamp_ms, active)
        assert isinstance(command, DropChannel), command
        return self.channels.drop(command, counters.get(command.channel_uid), active)

    def _found(self, command: Found) -> Answer:
        if self.cluster is not None:
            return Rejected(REASON_ALREADY_FOUNDED, f"the cluster was founded as {self.cluster.cluster_id}")
        self.cluster = self.layers.active.cluster = command.cluster
        return Done()

    def _put_node(self, node: Node) -> Answer:
        if self.nodes.get(node.name) != node:
            self.nodes[node.name] = self.layers.active.nodes[node.name] = node
        return Done()
