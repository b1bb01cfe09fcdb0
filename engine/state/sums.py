"""One number over all rows of the small tables, kept from boundary to boundary.

`meta` holds it. A file whose pages are not all of one boundary (copied while it was written, or without its
write-ahead file) then shows at the next start, although every single row is sound.
"""

from __future__ import annotations

from typing import Final

from engine.state.checksum import MASK, fold, signed

TABLES: Final = ("channels", "channel_stats", "former_ids", "nodes", "cluster", "results")


class Sums:
    """Row checksums by table and key, and their total; putting the same row twice changes nothing."""

    def __init__(self) -> None:
        self._crcs: dict[tuple[str, int | str], int] = {}
        self._total = 0

    @property
    def total(self) -> int:
        """Signed, as `meta` holds it."""
        return signed(self._total)

    def put(self, table: str, key: int | str, crc: int) -> None:
        """A row is this now."""
        self.remove(table, key)
        self._crcs[table, key] = crc
        self._total = (self._total + _weight(table, crc)) & MASK

    def remove(self, table: str, key: int | str) -> None:
        """A row is gone, if it was there."""
        crc = self._crcs.pop((table, key), None)
        if crc is not None:
            self._total = (self._total - _weight(table, crc)) & MASK


def _weight(table: str, crc: int) -> int:
    return fold(TABLES.index(table) + 1, crc)
