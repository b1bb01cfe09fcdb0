"""What opening makes of files that are not as they were written: torn tails are cut, damage is refused."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import pytest
from structlog.testing import capture_logs

from engine.errors import ConfigError, DamagedError
from engine.raft.log import Entry
from tests.unit.raft.disk import contents, restore
from tests.unit.raft.journals import fill, open_at, payload, read_all, sync_all

HEADER = 64
RECORD = 24 + len(payload(1))
Saved = dict[str, bytes]


def segment(first_index: int) -> str:
    return f"{first_index:020d}.log"


def made(directory: Path, count: int, *, mark_at: int | None = None) -> Saved:
    """The files of a closed journal with `count` entries; the mark as it was after the first `mark_at`."""
    journal = open_at(directory)
    fill(journal, mark_at or count)
    sync_all(journal)
    mark = (directory / "mark").read_bytes()
    fill(journal, count - (mark_at or count))
    sync_all(journal)
    journal.close()
    (directory / "mark").write_bytes(mark)
    return contents(directory)


def opens(directory: Path, saved: Saved, applied: tuple[int, int] = (0, 0)) -> list[Entry]:
    """Open these files, write one more entry, and give what is in the log then and after the next opening."""
    restore(directory, saved)
    journal = open_at(directory, *applied)
    fill(journal, 1, term=9)
    sync_all(journal)
    entries = read_all(journal)
    journal.close()
    again = open_at(directory, *applied)
    assert read_all(again) == entries
    again.close()
    return entries[:-1]


def refused(directory: Path, saved: Saved, applied: tuple[int, int] = (0, 0)) -> str:
    """Opening these files is refused and changes none of them; the sentence."""
    restore(directory, saved)
    with pytest.raises(DamagedError) as error:
        open_at(directory, *applied)
    assert contents(directory) == saved
    assert str(directory) in str(error.value)
    return str(error.value)


def expected(first: int, last: int) -> list[Entry]:
    return [Entry(index, 1, payload(index)) for index in range(first, last + 1)]


def flipped(content: bytes, offset: int, mask: int) -> bytes:
    return content[:offset] + bytes([content[offset] ^ mask]) + content[offset + 1 :]


def test_a_tail_torn_at_any_byte_is_cut_and_the_log_goes_on(tmp_path: Path) -> None:
    saved = made(tmp_path / "log", 5, mark_at=4)
    whole = saved[segment(1)]
    for end in range(HEADER + 4 * RECORD, len(whole)):
        torn = saved | {segment(1): whole[:end]}
        assert opens(tmp_path / "log", torn) == expected(1, 4), f"cut at byte {end}"
    assert opens(tmp_path / "log", saved) == expected(1, 5)


def test_cutting_a_torn_tail_is_told(tmp_path: Path) -> None:
    saved = made(tmp_path / "log", 5, mark_at=4)
    with capture_logs() as told:
        opens(tmp_path / "log", saved | {segment(1): saved[segment(1)][:-5]})
    (cut,) = [line for line in told if line.get("action") == "log_tail_cut"]
    assert (cut["cut_bytes"], cut["index"], cut["offset"]) == (RECORD - 5, 5, HEADER + 4 * RECORD)


def test_a_log_cut_at_any_byte_below_the_mark_is_damage(tmp_path: Path) -> None:
    saved = made(tmp_path / "log", 5)
    whole = saved[segment(1)]
    for end in range(len(whole)):
        sentence = refused(tmp_path / "log", saved | {segment(1): whole[:end]})
        assert "ends with entry" in sentence or f"entry {max(1, (end - HEADER) // RECORD + 1)} " in sentence


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_any_flipped_byte_below_the_mark_is_damage(tmp_path: Path, mask: int) -> None:
    saved = made(tmp_path / "log", 5)
    whole = saved[segment(1)]
    for offset in range(len(whole)):
        sentence = refused(tmp_path / "log", saved | {segment(1): flipped(whole, offset, mask)})
        assert segment(1) in sentence
        if offset >= HEADER:
            number = (offset - HEADER) // RECORD
            assert f"at byte {HEADER + number * RECORD}, where entry {number + 1} should be" in sentence
        assert "left as they are" in sentence


@pytest.mark.parametrize("mask", [0x01, 0x80])
def test_any_flipped_byte_above_the_mark_cuts_the_log_there(tmp_path: Path, mask: int) -> None:
    saved = made(tmp_path / "log", 6, mark_at=3)
    whole = saved[segment(1)]
    for offset in range(HEADER + 3 * RECORD, len(whole)):
        kept = (offset - HEADER) // RECORD
        damaged = saved | {segment(1): flipped(whole, offset, mask)}
        assert opens(tmp_path / "log", damaged) == expected(1, kept), f"byte {offset}"


@pytest.mark.parametrize("mask", [0x01, 0x80])
def test_any_flipped_byte_that_the_state_already_holds_costs_nothing(tmp_path: Path, mask: int) -> None:
    saved = made(tmp_path / "log", 6)
    whole = saved[segment(1)]
    for offset in range(HEADER, HEADER + 4 * RECORD):
        damaged = saved | {segment(1): flipped(whole, offset, mask)}
        assert opens(tmp_path / "log", damaged, (4, 1)) == expected(5, 6), f"byte {offset}"


def test_a_log_whose_every_entry_the_state_holds_begins_anew_behind_it(tmp_path: Path) -> None:
    saved = made(tmp_path / "log", 4)
    whole = saved[segment(1)]
    for offset in range(len(whole)):
        damaged = saved | {segment(1): flipped(whole, offset, 0x04)}
        assert opens(tmp_path / "log", damaged, (4, 1)) == [], f"byte {offset}"
    assert segment(5) in contents(tmp_path / "log")
    assert segment(1) not in contents(tmp_path / "log")


def test_damage_behind_the_applied_entry_is_found_although_an_earlier_record_is_bad_too(tmp_path: Path) -> None:
    saved = made(tmp_path / "log", 6)
    twice = flipped(flipped(saved[segment(1)], HEADER + 5, 1), HEADER + 4 * RECORD + 30, 1)
    assert "entry 5 " in refused(tmp_path / "log", saved | {segment(1): twice}, (3, 1))


def test_a_bad_record_in_a_segment_that_is_followed_by_another_is_damage_even_above_the_mark(tmp_path: Path) -> None:
    saved = made(tmp_path / "log", 30, mark_at=2)
    bad = flipped(saved[segment(1)], HEADER + 4 * RECORD + 3, 1)
    assert "entry 5 " in refused(tmp_path / "log", saved | {segment(1): bad})


def test_a_bad_segment_that_the_state_holds_is_left_behind(tmp_path: Path) -> None:
    saved = made(tmp_path / "log", 30)
    names = sorted(name for name in saved if name.endswith(".log"))
    second = int(names[1].removesuffix(".log"))
    for bad in (flipped(saved[names[0]], 5, 1), b"", flipped(saved[names[0]], HEADER + 9, 1)):
        assert opens(tmp_path / "log", saved | {names[0]: bad}, (second - 1, 1)) == expected(second, 30)
        assert names[0] not in contents(tmp_path / "log")


def test_a_bad_segment_with_one_entry_that_the_state_lacks_is_damage(tmp_path: Path) -> None:
    saved = made(tmp_path / "log", 30)
    names = sorted(name for name in saved if name.endswith(".log"))
    second = int(names[1].removesuffix(".log"))
    for bad in (flipped(saved[names[0]], 5, 1), b""):
        assert names[0] in refused(tmp_path / "log", saved | {names[0]: bad}, (second - 2, 1))


def test_a_missing_segment_is_damage_unless_the_state_holds_it(tmp_path: Path) -> None:
    saved = made(tmp_path / "log", 30)
    names = sorted(name for name in saved if name.endswith(".log"))
    for gone, name in enumerate(names):
        rest = {key: value for key, value in saved.items() if key != name}
        refused(tmp_path / "log", rest)
        following = int(names[gone + 1].removesuffix(".log")) if gone + 1 < len(names) else 31
        if following < 31:
            assert opens(tmp_path / "log", rest, (following - 1, 1)) == expected(following, 30)
    refused(tmp_path / "log", {key: value for key, value in saved.items() if key not in names})


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (segment(1), b""),
        (segment(1), b"EVSCHLOG"),
        (segment(1), b"\0" * 4096),
        (segment(1), b"\xff" * 100),
        (segment(31), b""),
        (segment(31), b"garbage" * 50),
        ("notes.log", b"not ours"),
        ("1.log", b""),
    ],
)
def test_files_that_are_no_segments_are_refused_with_a_sentence(tmp_path: Path, name: str, content: bytes) -> None:
    saved = made(tmp_path / "log", 30)
    assert name in refused(tmp_path / "log", saved | {name: content})


def test_a_segment_of_another_log_is_refused(tmp_path: Path) -> None:
    saved = made(tmp_path / "log", 4)
    other = made(tmp_path / "other", 4)
    assert "another log" in refused(tmp_path / "log", saved | {segment(1): other[segment(1)]})


def test_records_of_another_segment_are_never_taken_for_entries(tmp_path: Path) -> None:
    saved = made(tmp_path / "log", 5, mark_at=4)
    other = made(tmp_path / "other", 5)
    mixed = saved[segment(1)][: HEADER + 4 * RECORD] + other[segment(1)][HEADER + 4 * RECORD :]
    assert opens(tmp_path / "log", saved | {segment(1): mixed}) == expected(1, 4)


def test_an_entry_behind_a_torn_one_does_not_return_when_the_gap_is_filled(tmp_path: Path) -> None:
    saved = made(tmp_path / "log", 6, mark_at=4)
    restore(tmp_path / "log", saved | {segment(1): flipped(saved[segment(1)], HEADER + 4 * RECORD + 30, 1)})
    journal = open_at(tmp_path / "log")
    fill(journal, 1)
    sync_all(journal)
    journal.close()
    again = open_at(tmp_path / "log")
    assert read_all(again) == expected(1, 5)
    again.close()


def test_records_in_another_order_are_damage(tmp_path: Path) -> None:
    saved = made(tmp_path / "log", 5)
    whole = saved[segment(1)]
    third, fourth = HEADER + 2 * RECORD, HEADER + 3 * RECORD
    swapped = whole[:third] + whole[fourth : fourth + RECORD] + whole[third:fourth] + whole[fourth + RECORD :]
    assert "entry 4 of term 1 stands there" in refused(tmp_path / "log", saved | {segment(1): swapped})


def test_remains_of_an_unfinished_step_are_removed(tmp_path: Path) -> None:
    saved = made(tmp_path / "log", 4)
    assert opens(tmp_path / "log", saved | {"00000000000000000005.tmp": b"half", "meta.a.tmp": b""}) == expected(1, 4)
    assert not [name for name in contents(tmp_path / "log") if name.endswith(".tmp")]


@pytest.mark.parametrize("name", ["meta.a", "meta.b"])
def test_one_copy_of_the_meta_is_enough_and_the_other_is_repaired(tmp_path: Path, name: str) -> None:
    saved = made(tmp_path / "log", 3)
    body = saved[name].rstrip(b"\0")
    spoiled = [flipped(saved[name], offset, 0x10) for offset in range(len(body))]
    spoiled += [b"", saved[name][:20], b"\0" * 4096, b"\xff" * 5000]
    for content in spoiled:
        restore(tmp_path / "log", saved | {name: content})
        open_at(tmp_path / "log").close()
        assert contents(tmp_path / "log") == saved
    restore(tmp_path / "log", {key: value for key, value in saved.items() if key != name})
    open_at(tmp_path / "log").close()
    assert contents(tmp_path / "log") == saved


def test_the_newer_copy_of_the_meta_counts(tmp_path: Path) -> None:
    old = made(tmp_path / "log", 3)
    journal = open_at(tmp_path / "log")
    journal.save_meta(term=5, vote="me")
    journal.close()
    new = contents(tmp_path / "log")
    for name in ("meta.a", "meta.b"):
        restore(tmp_path / "log", new | {name: old[name]})
        journal = open_at(tmp_path / "log")
        assert (journal.meta.term, journal.meta.vote) == (5, "me")
        journal.close()
        assert contents(tmp_path / "log") == new


def test_without_a_readable_meta_the_vote_is_unknown_and_the_start_refused(tmp_path: Path) -> None:
    saved = made(tmp_path / "log", 3)
    for content in (b"", b"\0" * 4096, flipped(saved["meta.a"], 40, 1)):
        sentence = refused(tmp_path / "log", saved | {"meta.a": content, "meta.b": content})
        assert "vote is unknown" in sentence
    rest = {name: content for name, content in saved.items() if not name.startswith("meta")}
    assert "vote is unknown" in refused(tmp_path / "log", rest)


def test_a_mark_that_cannot_be_read_is_as_if_absent(tmp_path: Path) -> None:
    saved = made(tmp_path / "log", 5)
    torn = saved | {segment(1): saved[segment(1)][:-3]}
    for content in (b"", b"short", b"\xff" * 8192, b"\0" * 8192):
        assert opens(tmp_path / "log", torn | {"mark": content}) == expected(1, 4)
    rest = {name: content for name, content in torn.items() if name != "mark"}
    assert opens(tmp_path / "log", rest) == expected(1, 4)


def test_any_flipped_byte_of_the_mark_never_hinders_a_start(tmp_path: Path) -> None:
    saved = made(tmp_path / "log", 5)
    for slot in (0, 4096):
        for offset in range(slot, min(slot + 64, len(saved["mark"]))):
            assert opens(tmp_path / "log", saved | {"mark": flipped(saved["mark"], offset, 0x20)}) == expected(1, 5)


def test_a_lowered_mark_does_not_rise_again_when_its_newest_slot_is_lost(tmp_path: Path) -> None:
    journal = open_at(tmp_path / "log")
    fill(journal, 5)
    sync_all(journal)
    journal.truncate_from(3)
    journal.close()
    saved = contents(tmp_path / "log")
    for slot in (0, 4096):
        assert opens(tmp_path / "log", saved | {"mark": flipped(saved["mark"], slot + 5, 1)}) == expected(1, 2)


def test_the_mark_of_another_log_says_nothing(tmp_path: Path) -> None:
    saved = made(tmp_path / "log", 3)
    other = made(tmp_path / "other", 30)
    assert opens(tmp_path / "log", saved | {"mark": other["mark"]}) == expected(1, 3)


def test_a_state_without_its_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    sentence = refused(tmp_path / "log", {}, (17, 2))
    assert "no log" in sentence
    assert "up to 17" in sentence


def newer_segment(saved: Saved) -> Saved:
    whole = saved[segment(1)]
    header = whole[:8] + struct.pack("<H", 2) + whole[10:60]
    return saved | {segment(1): header + struct.pack("<I", crc32(header)) + b"records of a kind to come"}


def newer_meta(saved: Saved) -> Saved:
    page = saved["meta.a"]
    (length,) = struct.unpack_from("<I", page, 12)
    header = page[:8] + struct.pack("<HHI", 2, 40, length) + page[16:28] + b"newfield"
    body = page[32 : 32 + length]
    page = (header + struct.pack("<I", crc32(body, crc32(header))) + body).ljust(4096, b"\0")
    return saved | {"meta.a": page, "meta.b": page}


@pytest.mark.parametrize("newer", [newer_segment, newer_meta])
def test_a_newer_format_is_refused_and_nothing_is_touched(tmp_path: Path, newer: Callable[[Saved], Saved]) -> None:
    saved = newer(made(tmp_path / "log", 5))
    restore(tmp_path / "log", saved)
    with pytest.raises(ConfigError, match=r"format 2 .* knows format 1"):
        open_at(tmp_path / "log")
    assert contents(tmp_path / "log") == saved


def test_unknown_facts_in_the_meta_are_skipped(tmp_path: Path) -> None:
    saved = made(tmp_path / "log", 3)
    page = saved["meta.a"]
    (length,) = struct.unpack_from("<I", page, 12)
    body = bytes([page[32] + 1]) + page[33 : 32 + length] + b"\xa3new\xa5thing"
    header = page[:12] + struct.pack("<I", len(body)) + page[16:28]
    page = (header + struct.pack("<I", crc32(body, crc32(header))) + body).ljust(4096, b"\0")
    assert opens(tmp_path / "log", saved | {"meta.a": page, "meta.b": page}) == expected(1, 3)


def test_a_record_that_goes_bad_while_the_log_is_in_use_is_never_handed_out(tmp_path: Path) -> None:
    journal = open_at(tmp_path / "log")
    fill(journal, 5)
    sync_all(journal)
    journal.release(5)
    path = tmp_path / "log" / segment(1)
    whole = path.read_bytes()
    for offset in range(HEADER + 2 * RECORD, HEADER + 3 * RECORD):
        path.write_bytes(flipped(whole, offset, 0x40))
        with pytest.raises(DamagedError, match="entry"):
            journal.entries(3, 3, 1)
    path.write_bytes(whole[: HEADER + 2 * RECORD + 7])
    with pytest.raises(DamagedError, match="entry"):
        journal.entries(3, 3, 1)
    journal.close()
