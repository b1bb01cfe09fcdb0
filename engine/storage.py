"""STORAGE_PATH of one node: its layout and the lock that keeps a second process away.

::

    STORAGE_PATH/
        lock                 held by the running process
        control.sock         the local control socket
        state/state.db       the replica's state
        log/                 the replicated log
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final, NamedTuple

from engine.config import StateLimits
from engine.errors import ConfigError

NETWORK_FILE_SYSTEMS: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs"})
"""SQLite's WAL needs shared memory and real locks; over these it loses data."""


class Room(NamedTuple):
    """Space on the file system of one node."""

    free_bytes: int
    short: bool
    """Less is free than the reserve: ingest must stop, so that releasing (which frees space) can go on."""


class Storage:
    """The directory of one node, locked while this object is open."""

    def __init__(self, path: Path, limits: StateLimits) -> None:
        self._limits = limits
        self.path = path
        self.state_path = path / "state" / "state.db"
        self.log_directory = path / "log"
        self._lock: int | None = None

    def open(self) -> None:
        """Create what is missing and take the lock; ConfigError when it cannot be used or another process has it."""
        try:
            for directory in (self.path, self.state_path.parent, self.log_directory):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"STORAGE_PATH={str(self.path)!r} cannot be used: {error}") from error
        kind = file_system(self.path)
        if kind in NETWORK_FILE_SYSTEMS:
            os.close(lock)
            raise ConfigError(
                f"STORAGE_PATH={str(self.path)!r} is on a network file system ({kind}), where SQLite loses data;"
                " use a local disk"
            )
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(lock)
            raise ConfigError(
                f"STORAGE_PATH={str(self.path)!r} is in use by another process (pid {holder}); each node needs its own"
            ) from error
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        self._lock = lock

    def room(self) -> Room:
        """What is free now; the reserve is smaller on a small file system."""
        usage = os.statvfs(self.path)
        free, total = usage.f_bavail * usage.f_frsize, usage.f_blocks * usage.f_frsize
        reserve = min(self._limits.disk_reserve_bytes, total * self._limits.disk_reserve_percent // 100)
        return Room(free, free < reserve)

    def close(self) -> None:
        """Give the lock back."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def file_system(path: Path) -> str:
    """The type of the file system that holds `path`, as /proc/self/mounts names it; `unknown` where that is absent."""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "unknown"
    where = str(path.resolve())
    best, kind = "", "unknown"
    for line in mounts.splitlines():
        _, mount, mount_kind, *_ = line.split(" ")
        mount = mount.replace("\\040", " ")
        inside = where == mount or where.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, mount_kind
    return kind
