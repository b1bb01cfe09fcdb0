"""The files under version control, and what several checks need of them."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ("engine", "channels_app", "cluster_app", "scheduler_project")
"""What runs in production; the rest of the Python is tests."""


@lru_cache(maxsize=1)
def tracked() -> tuple[Path, ...]:
    """Every file that git knows and that is here, relative to the root."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    names = (Path(name) for name in listed.decode().split("\0") if name)
    return tuple(name for name in names if (ROOT / name).is_file())


def python_files(*packages: str) -> list[Path]:
    """Tracked modules, migrations aside; with `packages` only those below them (`manage.py` belongs to all)."""
    chosen = [path for path in tracked() if path.suffix == ".py" and "migrations" not in path.parts]
    return [path for path in chosen if not packages or path.parts[0] in (*packages, "manage.py")]


@lru_cache(maxsize=1024)
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a tracked module."""
    return ast.parse((ROOT / path).read_text(encoding="utf-8"), filename=str(path))


def text(name: str) -> str:
    """The content of a text file, by its path from the root."""
    return (ROOT / name).read_text(encoding="utf-8")


def section(markdown: str, heading: str) -> str:
    """What stands below a heading, up to the next one of the same or a higher level."""
    level = len(heading) - len(heading.lstrip("#"))
    _, found, rest = f"\n{markdown}".partition(f"\n{heading}\n")
    assert found, f"there is no heading {heading!r}"
    return re.split(rf"^#{{1,{level}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def table_rows(markdown: str) -> Iterator[list[str]]:
    """The cells of every table row in a piece of Markdown, headers and rulers aside."""
    lines = markdown.splitlines()
    for position, line in enumerate(lines):
        following = lines[position + 1] if position + 1 < len(lines) else ""
        if line.startswith("|") and not _is_ruler(line) and not _is_ruler(following):
            yield [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def _is_ruler(line: str) -> bool:
    return bool(re.fullmatch(r"\|(\s*:?-+:?\s*\|)+", line))


def code_spans(cell: str) -> list[str]:
    """What stands between backticks."""
    return re.findall(r"`([^`]+)`", cell)
