"""The newest entries of the log in memory, bounded in bytes."""

from __future__ import annotations

from engine.raft.log import Entry

ENTRY_OVERHEAD_BYTES = 160
"""Objects around a payload: what many tiny entries cost beside their bytes (measured with CPython 3.11)."""


class Tail:
    """Entries `low..high` without gaps; the oldest leave first, and only when they may be read back from disk."""

    def __init__(self, next_index: int) -> None:
        self._entries: dict[int, Entry] = {}
        self.low = next_index
        self.high = next_index - 1
        self.bytes = 0

    def append(self, entry: Entry) -> None:
        """Add the entry that follows the last one."""
        assert entry.index == self.high + 1, "entries follow each other without gaps"
        self._entries[entry.index] = entry
        self.high = entry.index
        self.bytes += cost(entry.payload)

    def read(self, first: int, last: int, max_bytes: int) -> list[Entry]:
        """Entries from `first` to `last`, at least one, then as many as `max_bytes` of payload allow."""
        found: list[Entry] = []
        for index in range(first, min(last, self.high) + 1):
            entry = self._entries[index]
            max_bytes -= len(entry.payload)
            if max_bytes < 0 and found:
                break
            found.append(entry)
        return found

    def cut_from(self, index: int) -> None:
        """Forget the entries from `index` on: they are being replaced."""
        while self.high >= max(index, self.low):
            self.bytes -= cost(self._entries.pop(self.high).payload)
            self.high -= 1
        if index < self.low:
            self.low = index
            self.high = index - 1

    def shrink(self, budget_bytes: int, synced_index: int) -> None:
        """Let the oldest go until the budget is kept; what is not synced stays whatever it costs."""
        while self.bytes > budget_bytes and self.low <= min(synced_index, self.high):
            self.bytes -= cost(self._entries.pop(self.low).payload)
            self.low += 1


def cost(payload: bytes) -> int:
    """What an entry counts in every budget of bytes."""
    return len(payload) + ENTRY_OVERHEAD_BYTES
