"""Real files that can die at a chosen operation, lose what was not synced, fill up, or hold a sync back."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.raft.files import DiskFull, SyncFailed, SystemFiles

SECTOR_BYTES = 512


class UnsyncedFiles(SystemFiles):
    """The machine's files without waiting for the disk: for tests in which nothing is lost."""

    def sync(self, descriptor: int) -> None:
        pass

    def sync_directory(self, directory: Path) -> None:
        pass


class Crash(Exception):
    """The machine or the process is gone: nothing after this operation happens."""


class _Content:
    """One file: what a power cut would leave, and what was done to it since."""

    def __init__(self) -> None:
        self.durable = b""
        self.since: list[tuple[int, bytes | None]] = []
        """(offset, bytes written), or (size, None) for a cut."""

    def sync(self) -> None:
        """Everything done since is on the disk."""
        content = bytearray(self.durable)
        for offset, data in self.since:
            if data is None:
                del content[offset:]
            else:
                content.extend(bytes(max(0, offset - len(content))))
                content[offset : offset + len(data)] = data
        self.durable = bytes(content)
        self.since = []

    def after_power_cut(self, rng: random.Random) -> bytes:
        """Any part of what was not synced may have reached the disk, in pieces of a sector."""
        content = bytearray(self.durable)
        for offset, data in self.since:
            if data is None:
                if rng.random() < 0.5:
                    del content[offset:]
                continue
            for start in range(0, len(data), SECTOR_BYTES):
                if rng.random() < 0.5:
                    piece = data[start : start + SECTOR_BYTES]
                    content.extend(bytes(max(0, offset + start - len(content))))
                    content[offset + start : offset + start + len(piece)] = piece
        return bytes(content)


class FragileFiles(SystemFiles):
    """The machine's files below one directory; counts what changes something and dies before operation `die_at`."""

    def __init__(self, *, die_at: int | None = None) -> None:
        self.operations = 0
        self.die_at = die_at
        self.dead = False
        self.room_bytes: int | None = None
        """How much the files may still grow; None for no limit."""
        self.sync_error = False
        self.held_thread: str | None = None
        """Each sync of the thread of this name waits for a `let_sync`."""
        self.syncs_waiting = threading.Semaphore(0)
        self._sync_permits = threading.Semaphore(0)
        self._contents: dict[int, _Content] = {}
        self._names: dict[Path, _Content] = {}
        self._renamed: list[tuple[Path, _Content | None]] = []
        self._lock = threading.RLock()

    def _step(self, partly: Callable[[], None] | None = None) -> None:
        if self.dead:
            raise Crash
        self.operations += 1
        if self.die_at is not None and self.operations >= self.die_at:
            self.dead = True
            if partly is not None:
                partly()
            raise Crash

    def open(self, path: Path, *, create: bool = False) -> int:
        with self._lock:
            if create:
                self._step()
                if self.room_bytes == 0:
                    raise DiskFull(f"{path} could not be opened: no room.")
            fresh = create and not path.exists()
            descriptor = super().open(path, create=create)
            inode = os.fstat(descriptor).st_ino
            if fresh:
                self._contents[inode] = _Content()
                self._renamed.append((path, self._contents[inode]))
            elif create:
                self._contents[inode].since.append((0, None))
            else:
                self._adopt(path, inode)
            return descriptor

    def _adopt(self, path: Path, inode: int) -> None:
        """A file from before: all of it is durable."""
        if inode not in self._contents:
            self._contents[inode] = _Content()
            self._contents[inode].durable = path.read_bytes()
            self._names[path] = self._contents[inode]

    def adopt_all(self, directory: Path) -> None:
        """Take what is in the directory as durable."""
        for path in directory.iterdir():
            self._adopt(path, path.stat().st_ino)

    def write(self, descriptor: int, buffers: Sequence[bytes], offset: int) -> None:
        with self._lock:
            data = b"".join(buffers)

            def half() -> None:
                self._write(descriptor, data[: len(data) // 2], offset)

            self._step(half)
            self._take_room(descriptor, data, offset)
            self._write(descriptor, data, offset)

    def _take_room(self, descriptor: int, data: bytes, offset: int) -> None:
        """Refuse a write for which there is no room, after the part of it for which there is."""
        growth = offset + len(data) - os.fstat(descriptor).st_size
        if self.room_bytes is None or growth <= 0:
            return
        if growth > self.room_bytes:
            self._write(descriptor, data[: len(data) - growth + self.room_bytes], offset)
            self.room_bytes = 0
            raise DiskFull("There is no room.")
        self.room_bytes -= growth

    def let_sync(self) -> None:
        """Let one held sync go on."""
        self._sync_permits.release()

    def _write(self, descriptor: int, data: bytes, offset: int) -> None:
        super().write(descriptor, [data], offset)
        self._contents[os.fstat(descriptor).st_ino].since.append((offset, data))

    def truncate(self, descriptor: int, size: int) -> None:
        with self._lock:
            self._step()
            super().truncate(descriptor, size)
            self._contents[os.fstat(descriptor).st_ino].since.append((size, None))

    def sync(self, descriptor: int) -> None:
        if threading.current_thread().name == self.held_thread:
            self.syncs_waiting.release()
            assert self._sync_permits.acquire(timeout=30)
        with self._lock:
            self._step()
            content = self._contents[os.fstat(descriptor).st_ino]
            if self.sync_error:
                content.since = []  # Linux marks the pages clean: a later sync succeeds and does not write them.
                raise SyncFailed("The disk could not be synced.")
            content.sync()

    def rename(self, old: Path, new: Path) -> None:
        with self._lock:
            self._step()
            content = self._contents[old.stat().st_ino]
            super().rename(old, new)
            self._renamed += [(old, None), (new, content)]

    def unlink(self, path: Path) -> None:
        with self._lock:
            self._step()
            super().unlink(path)
            self._renamed.append((path, None))

    def sync_directory(self, directory: Path) -> None:
        with self._lock:
            self._step()
            for path, content in self._renamed:
                if path.parent == directory:
                    self._apply(self._names, path, content)
            self._renamed = [change for change in self._renamed if change[0].parent != directory]

    def make_directory(self, directory: Path) -> None:
        with self._lock:
            self._step()
            directory.mkdir(parents=True, exist_ok=True)

    def power_cut(self, target: Path, rng: random.Random) -> None:
        """Write what the disk holds after a power cut into another directory."""
        names = dict(self._names)
        for path, content in self._renamed:
            if rng.random() < 0.5:
                self._apply(names, path, content)
        target.mkdir(parents=True)
        for path, content in names.items():
            (target / path.name).write_bytes(content.after_power_cut(rng))

    @staticmethod
    def _apply(names: dict[Path, _Content], path: Path, content: _Content | None) -> None:
        if content is None:
            names.pop(path, None)
        else:
            names[path] = content


def contents(directory: Path) -> dict[str, bytes]:
    """Name and bytes of every file: to compare before and after."""
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def restore(directory: Path, saved: dict[str, bytes]) -> None:
    """Make the directory hold exactly these files."""
    directory.mkdir(exist_ok=True)
    for path in list(directory.iterdir()):
        if path.name not in saved:
            path.unlink()
    for name, content in saved.items():
        path = directory / name
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)
