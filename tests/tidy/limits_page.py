"""`docs/limits.md` from the limits in the code: `python -m tests.tidy.limits_page` writes it, a test compares it."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from typing import Any, Final

from engine import config
from scheduler_project import limits as web_limits
from tests.tidy.tree import ROOT, parsed

PAGE: Final = ROOT / "docs" / "limits.md"
GROUPS: Final = (
    ("The log on disk", config.JournalLimits),
    ("The state and its file", config.StateLimits),
    ("Source and sink", config.PubSubLimits),
    ("Listener and releaser", config.FlowLimits),
    ("The control socket", config.ControlLimits),
    ("Connections between nodes", config.TransportLimits),
    ("The web side", web_limits.WebLimits),
)
HEAD: Final = """# Limits

Every limit of a node. They are constants of the code, `engine/config.py` and `scheduler_project/limits.py`, and not
settings: what can be set is in the [README](../README.md#configuration). The unit is the last word of a name: `_s`
seconds, `_ms` milliseconds, `_bytes` and `_kib` sizes; a name without one counts.

What the local Pub/Sub allows is in `engine/emulator/limits.py`.

This page is written by `python -m tests.tidy.limits_page`; a test compares it with the code.
"""


def render() -> str:
    """The whole page."""
    parts = [HEAD]
    for title, kind in GROUPS:
        rows = [f"| `{name}` | {_shown(name, value)} | {meaning} |" for name, value, meaning in _fields(kind)]
        parts.append("\n".join([f"## {title}", "", "| limit | value | meaning |", "|---|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def _fields(kind: type[Any]) -> Iterator[tuple[str, Any, str]]:
    """(name, default, docstring) of every field; a `min` without words of its own shares those of its `max`."""
    module = ROOT / f"{kind.__module__.replace('.', '/')}.py"
    body = next(
        node.body
        for node in parsed(module.relative_to(ROOT)).body
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__
    )
    words: dict[str, str] = {}
    name = ""
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
        elif name and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            words[name] = " ".join(str(node.value.value).split()).replace("|", "\\|")
    values = kind()
    for field in dataclasses.fields(kind):
        meaning = words.get(field.name) or words.get(field.name.replace("_min", "_max"))
        assert meaning, f"{kind.__name__}.{field.name} has no docstring"
        yield field.name, getattr(values, field.name), meaning


def _shown(name: str, value: Any) -> str:
    if "bytes" in name:
        for size, unit in ((1 << 20, "MiB"), (1 << 10, "KiB")):
            if value >= size and value % size == 0:
                return f"{value // size:,} {unit}"
    unit = {"s": " s", "ms": " ms", "kib": " KiB", "bytes": " bytes"}.get(name.rpartition("_")[2], "")
    if "bytes_max" in name:
        unit = " bytes"
    return f"{value:,}{unit}"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
