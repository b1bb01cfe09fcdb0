"""Values that may change while we run: secrets from the environment, or from files, read again when they change.

Every secret can be given as ``NAME`` or as ``NAME_FILE``. A file that turns unreadable, empty or wrong keeps the last
good value, and the log says so once for each change: a half-written rotation must not lock everybody out.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from engine.errors import ConfigError
from scheduler_project.limits import LIMITS

T = TypeVar("T")
log = structlog.get_logger(__name__)


class WatchedFile(Generic[T]):
    """The parsed content of a file, parsed again when the file changes.

    `parse` raises ValueError with a sentence for content that cannot be right. The first reading raises ConfigError.
    """

    def __init__(self, variable: str, path: Path, parse: Callable[[bytes], T]) -> None:
        self._variable = variable
        self._path = path
        self._parse = parse
        self._lock = threading.Lock()
        self._stamp = self._stat()
        self._looked_at_s = time.monotonic()
        try:
            self._value = parse(self._read())
        except (OSError, ValueError) as error:
            raise ConfigError(f"{variable}={str(path)!r}: {_reason(error)}") from error

    def get(self) -> T:
        """The newest good value."""
        with self._lock:
            now_s = time.monotonic()
            if now_s - self._looked_at_s >= LIMITS.secret_check_s:
                self._looked_at_s = now_s
                self._refresh()
            return self._value

    def _refresh(self) -> None:
        stamp = self._stat()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._value = self._parse(self._read())
        except (OSError, ValueError) as error:
            log.warning(
                "A secret's file cannot be used, the last good value stays.",
                action="secret_refused",
                variable=self._variable,
                path=str(self._path),
                reason=_reason(error),
            )
        else:
            log.info("Read a changed file.", action="secret_reread", variable=self._variable, path=str(self._path))

    def _stat(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> bytes:
        with self._path.open("rb") as file:
            content = file.read(LIMITS.secret_bytes_max + 1)
        if len(content) > LIMITS.secret_bytes_max:
            raise ValueError(f"the file is larger than {LIMITS.secret_bytes_max} bytes")
        return content


class Secret:
    """A secret of one or more lines: the first is in use, all are accepted."""

    def __init__(self, name: str, environ: Mapping[str, str] = os.environ) -> None:
        """Read `name` or `name`_FILE; ConfigError when both are set or the file cannot be used."""
        value = environ.get(name, "")
        path = environ.get(f"{name}_FILE", "")
        if value and path:
            raise ConfigError(f"{name} and {name}_FILE are both set: set one of them")
        self._fixed = _lines(value.encode()) if value else ()
        self._file = WatchedFile(f"{name}_FILE", Path(path), _some_lines) if path else None

    def lines(self) -> tuple[str, ...]:
        """All values, the first being the one in use; none when the secret is not set."""
        return self._fixed if self._file is None else self._file.get()

    def value(self) -> str | None:
        """The value in use."""
        return next(iter(self.lines()), None)


def _lines(content: bytes) -> tuple[str, ...]:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ValueError("the content is not UTF-8") from error
    return tuple(line.rstrip("\r") for line in text.split("\n") if line.strip())


def _some_lines(content: bytes) -> tuple[str, ...]:
    lines = _lines(content)
    if not lines:
        raise ValueError("the file is empty")
    return lines


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
