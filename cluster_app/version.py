"""The revision that runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from engine.version import VERSION

__all__ = ["REVISION", "VERSION", "find_revision"]

_ROOT: Final = Path(__file__).resolve().parent.parent


def find_revision(root: Path) -> str | None:
    """The commit: from the file REVISION that a build leaves beside manage.py, else from a checkout's .git; or None."""
    try:
        stamped = root / "REVISION"
        if stamped.is_file():
            return stamped.read_text().strip() or None
        git = root / ".git"
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        name = head.removeprefix("ref: ")
        loose = git / name
        if loose.is_file():
            return loose.read_text().strip()
        packed = re.search(rf"^([0-9a-f]+) {re.escape(name)}$", (git / "packed-refs").read_text(), re.MULTILINE)
    except OSError:
        return None
    return packed[1] if packed else None


REVISION: Final = find_revision(_ROOT)
