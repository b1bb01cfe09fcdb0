"""Row checksums: the quick way by columns and the plain way by rows agree, and every change shows."""

from __future__ import annotations

import pytest

from engine.state import rows
from engine.state.checksum import fold, fold_column, integers, signed, text_hashes, unsigned
from engine.state.rows import Columns, accepted_crcs, message_crc, message_crcs, quarantine_crc

ROW: rows.Row = (1, 5, b"body", "id", 7, "", None, 9, 0, 1, 5, 0)
QUARANTINE_ROW: rows.QuarantineRow = (1, None, b"body", "id", 7, "", None, 9, 10, "CODE", "reason", 0, 1, 0)


@pytest.mark.parametrize("n", [1, 11, 12, 50])
@pytest.mark.parametrize("keyed", [False, True])
def test_checksums_by_columns_are_those_of_single_rows(n: int, keyed: bool) -> None:
    columns = Columns(
        dues_ms=[(-1) ** i * i * 10**12 for i in range(n)],
        payloads=[bytes([i]) * i for i in range(n)],
        source_ids=[f"id{i}" for i in range(n)],
        publish_us=list(range(n)),
        ordering_keys=[f"k{i % 3}" if i % 3 else "" for i in range(n)] if keyed else None,
        keys=[None if i % 2 else f"key{i}" for i in range(n)] if keyed else None,
        id_hashes=text_hashes(f"id{i}" for i in range(n)),
        due_column=integers([(-1) ** i * i * 10**12 for i in range(n)]),
        publish_column=integers(range(n)),
    )
    made = accepted_crcs(3, 99, 1000, columns)
    singly: list[rows.Row] = [
        (
            3, columns.dues_ms[i], columns.payloads[i], columns.source_ids[i], columns.publish_us[i],
            columns.ordering_keys[i] if columns.ordering_keys else "", columns.keys[i] if columns.keys else None,
            99, 0, 1, columns.dues_ms[i], made[i],
        )
        for i in range(n)
    ]  # fmt: skip
    seqs = range(1000, 1000 + n)
    assert made == [message_crc(seq, row) for seq, row in zip(seqs, singly, strict=True)]
    assert made == message_crcs(seqs, singly)
    assert len(set(made)) == n


@pytest.mark.parametrize("position", range(rows.CRC))
def test_every_column_of_a_message_counts(position: int) -> None:
    other = list(ROW)
    value = other[position]
    other[position] = value + 1 if isinstance(value, int) else value + b"x" if isinstance(value, bytes) else "x"
    assert message_crc(4, other) != message_crc(4, ROW)
    assert message_crc(5, ROW) != message_crc(4, ROW)


@pytest.mark.parametrize("position", range(rows.Q_CRC))
def test_every_column_of_a_quarantined_message_counts(position: int) -> None:
    other = list(QUARANTINE_ROW)
    value = other[position]
    other[position] = value + 1 if isinstance(value, int) else value + b"x" if isinstance(value, bytes) else "x"
    assert quarantine_crc(4, other) != quarantine_crc(4, QUARANTINE_ROW)
    assert quarantine_crc(5, QUARANTINE_ROW) != quarantine_crc(4, QUARANTINE_ROW)


def test_an_absent_key_is_not_an_empty_one() -> None:
    empty = (*ROW[: rows.KEY], "", *ROW[rows.KEY + 1 :])
    assert message_crc(4, empty) != message_crc(4, ROW)


def test_folding_a_column_is_folding_each_value() -> None:
    values = [0, 1, -1, (1 << 63) - 1, -(1 << 63)]
    h = unsigned(integers([7] * len(values))).copy()
    fold_column(h, unsigned(integers(values)))
    assert h.tolist() == [fold(7, value) for value in values]
    assert signed(fold(7, 1)) in range(-(1 << 63), 1 << 63)
