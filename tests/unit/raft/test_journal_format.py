"""The format on disk, byte by byte, made here without the journal's own code: later versions must go on reading it."""

from __future__ import annotations

import struct
from pathlib import Path
from zlib import crc32

from engine.raft.log import Entry
from tests.unit.raft.disk import contents, restore
from tests.unit.raft.journals import fill, open_at, payload, read_all, sync_all

JOURNAL_ID = bytes(range(16))
BODY = (
    b"\x87\xaajournal_id\xd9\x20000102030405060708090a0b0c0d0e0f"
    b"\xa9node_name\xb000112233445566aa"
    b"\xabincarnation\xb0ffeeddccbbaa9988"
    b"\xaacluster_id\xa2c1"
    b"\xa4term\x05\xa4vote\xa6node-b\xaccommit_index\x0a"
)


def with_crc(content: bytes) -> bytes:
    return content + struct.pack("<I", crc32(content))


def segment_bytes(first_index: int, previous_term: int, entries: list[Entry]) -> bytes:
    head = b"EVSCHLOG" + struct.pack("<HHI", 1, 64, 0) + JOURNAL_ID + struct.pack("<QQ12x", first_index, previous_term)
    content = with_crc(head)
    seed = crc32(head)
    for entry in entries:
        fields = struct.pack("<IQQ", len(entry.payload), entry.index, entry.term)
        content += struct.pack("<I", crc32(fields + entry.payload, seed)) + fields + entry.payload
    return content


def mark_bytes(index: int, term: int) -> bytes:
    slot = with_crc(b"EVSCHMRK" + struct.pack("<HHI", 1, 64, 0) + JOURNAL_ID + struct.pack("<QQQI", 7, index, term, 0))
    return bytes(4096) + slot


def meta_bytes() -> bytes:
    head = b"EVSCHMTA" + struct.pack("<HHIQI", 1, 32, len(BODY), 3, 0)
    return (head + struct.pack("<I", crc32(BODY, crc32(head))) + BODY).ljust(4096, b"\0")


def golden() -> dict[str, bytes]:
    """Entries 101..106 in two segments, of terms 4 and 5."""
    first = [Entry(101, 4, b"a"), Entry(102, 5, b""), Entry(103, 5, b"b" * 300)]
    second = [Entry(index, 5, b"c" * index) for index in (104, 105, 106)]
    return {
        "00000000000000000101.log": segment_bytes(101, 4, first),
        "00000000000000000104.log": segment_bytes(104, 5, second),
        "mark": mark_bytes(105, 5),
        "meta.a": meta_bytes(),
        "meta.b": meta_bytes(),
    }


def test_a_log_of_format_1_is_read(tmp_path: Path) -> None:
    restore(tmp_path / "log", golden())
    journal = open_at(tmp_path / "log", 100, 4)
    assert [(entry.index, entry.term, len(entry.payload)) for entry in read_all(journal)] == [
        (101, 4, 1), (102, 5, 0), (103, 5, 300), (104, 5, 104), (105, 5, 105), (106, 5, 106),
    ]  # fmt: skip
    meta = journal.meta
    assert (meta.node_name, meta.incarnation, meta.cluster_id) == ("00112233445566aa", "ffeeddccbbaa9988", "c1")
    assert (meta.term, meta.vote, meta.commit_index) == (5, "node-b", 10)
    journal.close()


def test_the_mark_of_format_1_is_believed(tmp_path: Path) -> None:
    files = golden()
    files["00000000000000000104.log"] = files["00000000000000000104.log"][:-1]
    restore(tmp_path / "log", files)
    journal = open_at(tmp_path / "log", 100, 4)
    assert journal.last_index == 105
    journal.close()


def test_what_is_written_is_format_1(tmp_path: Path) -> None:
    restore(tmp_path / "log", golden())
    journal = open_at(tmp_path / "log", 100, 4)
    fill(journal, 1, term=6)
    sync_all(journal)
    journal.close()
    written = contents(tmp_path / "log")
    entries = [Entry(index, 5, b"c" * index) for index in (104, 105, 106)]
    last = segment_bytes(104, 5, entries)
    assert written["00000000000000000104.log"] == last
    assert written["00000000000000000107.log"] == segment_bytes(107, 5, [Entry(107, 6, payload(107, 6))])
    assert (written["meta.a"], written["meta.b"]) == (meta_bytes(), meta_bytes())
