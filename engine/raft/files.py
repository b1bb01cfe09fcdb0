"""The few file operations that the log is built of, so that tests can make each of them fail or forget."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, Protocol

from engine.errors import StorageError

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_VECTOR_MAX = 1024
"""Buffers of one writev: IOV_MAX of Linux."""


class DiskFull(StorageError):
    """There is no room for a write; what was written before is intact and the write may be repeated later."""


class SyncFailed(StorageError):
    """A sync failed. Which pages reached the disk is unknown and a second sync would not tell: the process must end."""


class Files(Protocol):
    """What a file system has to offer; every error is a StorageError with a sentence, or one of the two above."""

    def names(self, directory: Path) -> list[str]:
        """Sorted names in a directory; empty when there is no such directory."""
        ...

    def make_directory(self, directory: Path) -> None:
        """Create a directory with its parents, and sync the one that holds it."""
        ...

    def open(self, path: Path, *, create: bool = False) -> int:
        """Descriptor for reading and writing; `create` makes an empty file, or empties the one that is there."""
        ...

    def open_to_read(self, path: Path) -> int:
        """Descriptor for reading."""
        ...

    def close(self, descriptor: int) -> None: ...

    def size(self, descriptor: int) -> int:
        """Length of the file in bytes."""
        ...

    def read(self, descriptor: int, size: int, offset: int) -> bytes:
        """`size` bytes, or fewer when the file ends earlier."""
        ...

    def write(self, descriptor: int, buffers: Sequence[bytes], offset: int) -> None:
        """All buffers one after the other; after an error, any part of them may be in the file."""
        ...

    def truncate(self, descriptor: int, size: int) -> None: ...

    def sync(self, descriptor: int) -> None:
        """Data and length are on the disk when this returns; SyncFailed otherwise."""
        ...

    def rename(self, old: Path, new: Path) -> None:
        """Replace `new` by `old` in one step."""
        ...

    def unlink(self, path: Path) -> None: ...

    def sync_directory(self, directory: Path) -> None:
        """Names created, renamed and removed before are on the disk when this returns."""
        ...


class SystemFiles:
    """The machine's file system."""

    def names(self, directory: Path) -> list[str]:
        try:
            return sorted(os.listdir(directory))  # noqa: PTH208 - names are wanted, not paths.
        except FileNotFoundError:
            return []
        except OSError as error:
            _refuse(error, f"{directory} could not be listed")

    def make_directory(self, directory: Path) -> None:
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            _refuse(error, f"{directory} could not be created")
        self.sync_directory(directory.parent)

    def open(self, path: Path, *, create: bool = False) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_TRUNC if create else 0)
        return self._open(path, flags)

    def open_to_read(self, path: Path) -> int:
        return self._open(path, os.O_RDONLY | os.O_CLOEXEC)

    def _open(self, path: Path, flags: int) -> int:
        try:
            return os.open(path, flags, 0o600)
        except OSError as error:
            _refuse(error, f"{path} could not be opened")

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def size(self, descriptor: int) -> int:
        return os.fstat(descriptor).st_size

    def read(self, descriptor: int, size: int, offset: int) -> bytes:
        parts: list[bytes] = []
        try:
            while size > 0:
                part = os.pread(descriptor, size, offset)
                if not part:
                    break
                parts.append(part)
                size -= len(part)
                offset += len(part)
        except OSError as error:
            _refuse(error, f"{_name(descriptor)} could not be read at byte {offset}")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write(self, descriptor: int, buffers: Sequence[bytes], offset: int) -> None:
        try:
            for start in range(0, len(buffers), _VECTOR_MAX):
                offset += _write_all(descriptor, buffers[start : start + _VECTOR_MAX], offset)
        except OSError as error:
            _refuse(error, f"{_name(descriptor)} could not be written at byte {offset}")

    def truncate(self, descriptor: int, size: int) -> None:
        try:
            os.ftruncate(descriptor, size)
        except OSError as error:
            _refuse(error, f"{_name(descriptor)} could not be cut to {size} bytes")

    def sync(self, descriptor: int) -> None:
        try:
            os.fdatasync(descriptor)
        except OSError as error:
            raise SyncFailed(f"{_name(descriptor)} could not be synced: {os.strerror(error.errno or 0)}.") from error

    def rename(self, old: Path, new: Path) -> None:
        try:
            os.replace(old, new)  # noqa: PTH105 - the call by its POSIX meaning.
        except OSError as error:
            _refuse(error, f"{old} could not be renamed to {new.name}")

    def unlink(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            _refuse(error, f"{path} could not be removed")

    def sync_directory(self, directory: Path) -> None:
        try:
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            _refuse(error, f"{directory} could not be opened")
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise SyncFailed(f"{directory} could not be synced: {os.strerror(error.errno or 0)}.") from error
        finally:
            os.close(descriptor)


def _write_all(descriptor: int, buffers: Sequence[bytes], offset: int) -> int:
    """One writev; what a short one left over is written piece by piece. Returns the bytes written."""
    total = sum(map(len, buffers))
    done = os.pwritev(descriptor, buffers, offset)
    if done < total:
        rest = memoryview(b"".join(buffers))
        while done < total:
            done += os.pwrite(descriptor, rest[done:], offset + done)
    return total


def _name(descriptor: int) -> str:
    """The path behind a descriptor, for error sentences."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - the text is wanted, not a path.
    except OSError:
        return f"descriptor {descriptor}"


def _refuse(error: OSError, what: str) -> NoReturn:
    kind = DiskFull if error.errno in _NO_ROOM else StorageError
    raise kind(f"{what}: {os.strerror(error.errno or 0)}.") from error
