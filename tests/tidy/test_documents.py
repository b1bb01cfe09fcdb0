"""Documents that point at each other and at the code point at what is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pytest

from tests.tidy.tree import PACKAGES, ROOT, code_spans, parsed, python_files, section, table_rows, text, tracked

MARKDOWN: Final = [path for path in tracked() if path.suffix == ".md"]
LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
TEST_NAME: Final = re.compile(r"tests/[\w/]+\.py::\w+")


@pytest.mark.parametrize("path", MARKDOWN, ids=str)
def test_every_link_between_files_leads_somewhere(path: Path) -> None:
    broken = []
    for target in LINK.findall(FENCE.sub("", text(str(path)))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = unquote(target).partition("#")
        there = (ROOT / path.parent / name).resolve() if name else ROOT / path
        if not there.exists() or (anchor and anchor not in _anchors(there)):
            broken.append(target)
    assert broken == []


def test_the_changelog_begins_with_what_is_unreleased() -> None:
    headings = re.findall(r"^## (.+)$", text("CHANGELOG.md"), re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    releases = [re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2}", heading) for heading in headings[1:]]
    assert all(releases), f"not [version] - date: {headings[1:]}"


def test_every_decision_says_context_decision_and_consequences() -> None:
    faults = {}
    for path in sorted((ROOT / "docs" / "adr").glob("[0-9]*.md")):
        headings = re.findall(r"^## (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        if headings != ["Context", "Decision", "Consequences"]:
            faults[path.name] = headings
    assert faults == {}


def test_the_codemap_names_every_module_and_no_other() -> None:
    """Each table below a heading `### engine/state/` has a row for every module of that directory."""
    codemap = section(text("ARCHITECTURE.md"), "## Codemap")
    named = set()
    for directory in re.findall(r"^### `([\w/]+)/`$", codemap, re.MULTILINE):
        for row in table_rows(section(codemap, f"### `{directory}/`")):
            named |= {f"{directory}/{stem}.py" for stem in code_spans(row[0])}
    here = {str(path) for path in python_files(*PACKAGES) if path.stem not in ("__init__", "manage")}
    assert sorted(here - named) == [], "modules without a row in ARCHITECTURE.md"
    assert sorted(name for name in named if not (ROOT / name).is_file()) == [], "rows without a module"


def test_every_test_that_the_architecture_names_exists() -> None:
    missing = []
    for reference in TEST_NAME.findall(text("ARCHITECTURE.md")):
        name, _, function = reference.partition("::")
        if not (ROOT / name).is_file() or function not in _functions(Path(name)):
            missing.append(reference)
    assert missing == []


def _functions(path: Path) -> set[str]:
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(parsed(path)) if isinstance(node, kinds)}


def _anchors(path: Path) -> set[str]:
    """The anchors that a forge makes of headings: lower case, no punctuation, dashes for spaces."""
    headings = re.findall(r"^#{1,6} (.+)$", FENCE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
