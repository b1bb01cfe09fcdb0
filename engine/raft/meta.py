"""What a member must never forget: its term and vote, its name, and which journal this is; in two synced copies.

Each copy is a page of 4096 bytes, overwritten in place so that a full disk cannot stop it: first `meta.a`, synced, then
`meta.b`, synced. A power cut therefore tears one of them at most, and the newest copy that can be read counts.

======  =====  ===========================================================================================
offset  bytes  meaning (little endian)
======  =====  ===========================================================================================
0       8      ``EVSCHMTA``
8       2      version, 1: it stands for the whole directory; a higher one is refused
10      2      bytes of this header, 32: readers go on there, so that later versions may add fields to it
12      4      bytes of the body
16      8      sequence: the higher of the two copies counts
24      4      zero
28      4      CRC-32 of the 28 bytes before and the body
32      ...    the body: `Meta` as a MessagePack map; unknown keys are skipped, then zeros up to 4096
======  =====  ===========================================================================================
"""

from __future__ import annotations

import secrets
import struct
from pathlib import Path
from zlib import crc32

import msgspec
import structlog

from engine.errors import ConfigError, DamagedError
from engine.raft.files import Files

log = structlog.get_logger(__name__)

FILE_NAMES = ("meta.a", "meta.b")
_MAGIC = b"EVSCHMTA"
_VERSION = 1
_HEADER = struct.Struct("<8sHHIQI")
_CRC = struct.Struct("<I")
_HEADER_BYTES = _HEADER.size + _CRC.size
_PAGE_BYTES = 4096


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """The stored facts."""

    journal_id: str
    """32 hex digits, random: ties segments, mark and meta of one directory to each other."""
    node_name: str
    """Random, made once; who this member is to the others, whatever its address."""
    incarnation: str
    """Random, made with the directory: an emptied or replaced disk is another incarnation."""
    cluster_id: str = ""
    """Empty until the cluster is founded."""
    term: int = 0
    vote: str | None = None
    """Whom this member voted for in `term`."""
    commit_index: int = 0
    """A lower bound, noted when something else is stored too."""


def new_meta() -> Meta:
    """The facts of a directory that is just being made."""
    return Meta(journal_id=secrets.token_hex(16), node_name=secrets.token_hex(8), incarnation=secrets.token_hex(8))


class MetaStore:
    """Both copies in one directory, and the newest content."""

    def __init__(self, files: Files, directory: Path, meta: Meta, sequence: int) -> None:
        self._files = files
        self._directory = directory
        self._sequence = sequence
        self.meta = meta

    @classmethod
    def create(cls, files: Files, directory: Path, meta: Meta) -> MetaStore:
        """Write both copies for the first time; once one has its name, the directory counts as made.

        The names are durable when the caller has synced the directory.
        """
        store = cls(files, directory, meta, 1)
        for name in FILE_NAMES:
            store._put(name)
        return store

    @classmethod
    def read(cls, files: Files, directory: Path) -> MetaStore | None:
        """The newest readable copy, None when neither exists; nothing is written.

        Raises DamagedError when there are copies and none can be read, ConfigError for a newer version.
        """
        names = [name for name in FILE_NAMES if name in files.names(directory)]
        copies = [_read_copy(files, directory / name) for name in names]
        readable = [copy for copy in copies if not isinstance(copy, str)]
        if not names:
            return None
        if not readable:
            raise DamagedError(
                f"{directory / 'meta.a'} and its copy meta.b cannot be read ({'; '.join(map(str, copies))}), so this "
                "node's vote is unknown. The files were left as they are: restore this node's storage from a back-up."
            )
        sequence, meta = max(readable, key=lambda copy: copy[0])
        return cls(files, directory, meta, sequence)

    def repair(self) -> None:
        """Replace a copy that is missing, damaged or older by the newest content; the caller syncs the directory."""
        for name in FILE_NAMES:
            exists = name in self._files.names(self._directory)
            copy = _read_copy(self._files, self._directory / name) if exists else "it is missing"
            if isinstance(copy, str) or copy[0] != self._sequence:
                log.warning(
                    "A copy of the log's meta file was not the newest and was written again from the other one.",
                    action="log_meta_repaired",
                    file=str(self._directory / name),
                    cause=copy if isinstance(copy, str) else "it is older",
                )
                self._put(name)

    def save(self, **changes: object) -> None:
        """Change the facts; they are on the disk, twice, when this returns."""
        meta = msgspec.structs.replace(self.meta, **changes)
        self._sequence += 1
        page = _encode(meta, self._sequence)
        for name in FILE_NAMES:
            descriptor = self._files.open(self._directory / name)
            try:
                self._files.write(descriptor, [page], 0)
                self._files.sync(descriptor)
            finally:
                self._files.close(descriptor)
        self.meta = meta

    def _put(self, name: str) -> None:
        """Write a whole copy aside and give it its name."""
        path = self._directory / name
        aside = path.with_suffix(path.suffix + ".tmp")
        descriptor = self._files.open(aside, create=True)
        try:
            self._files.write(descriptor, [_encode(self.meta, self._sequence)], 0)
            self._files.sync(descriptor)
        finally:
            self._files.close(descriptor)
        self._files.rename(aside, path)


def _encode(meta: Meta, sequence: int) -> bytes:
    body = msgspec.msgpack.encode(meta)
    header = _HEADER.pack(_MAGIC, _VERSION, _HEADER_BYTES, len(body), sequence, 0)
    page = header + _CRC.pack(crc32(body, crc32(header))) + body
    assert len(page) <= _PAGE_BYTES, "addresses and ids are short"
    return page.ljust(_PAGE_BYTES, b"\0")


def _read_copy(files: Files, path: Path) -> tuple[int, Meta] | str:
    """Sequence and content, or what is wrong with this copy."""
    descriptor = files.open_to_read(path)
    try:
        page = files.read(descriptor, _PAGE_BYTES, 0)
    finally:
        files.close(descriptor)
    if len(page) < _HEADER_BYTES:
        return f"{path.name} has {len(page)} bytes"
    magic, version, header_bytes, body_bytes, sequence, _zero = _HEADER.unpack_from(page)
    if magic != _MAGIC:
        return f"{path.name} does not begin as a meta file"
    body = page[header_bytes : header_bytes + body_bytes]
    crc_offset = header_bytes - _CRC.size
    if header_bytes < _HEADER_BYTES or len(body) != body_bytes or len(page) < header_bytes:
        return f"the lengths in {path.name} are impossible"
    if _CRC.unpack_from(page, crc_offset)[0] != crc32(body, crc32(page[:crc_offset])):
        return f"the checksum of {path.name} is wrong"
    if version > _VERSION:
        raise ConfigError(
            f"{path} was written in format {version} and this program knows format {_VERSION}: it is older than the "
            "one that wrote the log. Nothing was changed; start the newer program again."
        )
    try:
        return sequence, msgspec.msgpack.decode(body, type=Meta)
    except msgspec.MsgspecError as error:
        return f"the body of {path.name} cannot be read: {error}"
