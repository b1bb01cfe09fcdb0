"""What must not appear: ways to run bytes as code, names of this machine, words for unfinished work."""

from __future__ import annotations

import ast
import os
import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tests.tidy.tree import PACKAGES, ROOT, parsed, python_files, text, tracked

UNSAFE_MODULES: Final = frozenset({"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle"})
UNSAFE_CALLS: Final = frozenset({"eval", "exec", "compile", "__import__"})
UNSAFE_METHODS: Final = frozenset({"yaml.load", "yaml.full_load", "yaml.unsafe_load", "os.system", "os.popen"})
MACHINE_PATHS: Final = re.compile(r"(?<![\w.$}])/(?:home|Users|root|workspace)/[A-Za-z0-9_.-]")
PACKAGE_INDEX: Final = re.compile(r"--(?:index-url|extra-index-url|find-links|trusted-host)\b|^-[if] ", re.MULTILINE)
UNFINISHED: Final = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")


def test_nothing_turns_received_bytes_into_code() -> None:
    faults = []
    for path in python_files(*PACKAGES):
        faults += [f"{path}: {fault}" for node in ast.walk(parsed(path)) for fault in _unsafe(node)]
    assert faults == []


def test_no_file_names_this_machine() -> None:
    """Its checkout, its home directory, the hosts and directories that its package manager takes packages from."""
    settings = " ".join(value for name, value in os.environ.items() if re.match(r"(PIP|UV)_.*(INDEX|LINKS|HOST)", name))
    hosts = {urlsplit(word).hostname or word for word in settings.split()} - {"pypi.org"}
    places = {str(path) for path in (ROOT, Path.home()) if len(path.parts) > 1}
    own = re.compile("|".join(rf"(?<![\w.-]){re.escape(word)}(?![\w-])" for word in hosts | places) or "(?!)")
    faults = []
    for name, content in _texts():
        found = own.search(content) or MACHINE_PATHS.search(content)
        if found:
            faults.append(f"{name}: {found[0]}")
    assert faults == []


def test_no_requirements_file_names_a_package_index() -> None:
    named = {name for name, content in _texts() if name.startswith("requirements") and PACKAGE_INDEX.search(content)}
    assert named == set()


def test_everything_that_a_node_imports_is_installed_with_it() -> None:
    """And not only beside it, for tests."""
    named = set(re.findall(r"^([a-z0-9-]+)==", text("requirements.txt"), re.MULTILINE))
    installed = packages_distributions()
    missing = set()
    for path in python_files(*PACKAGES):
        for module in _imported(parsed(path)) - set(sys.stdlib_module_names) - {*PACKAGES, "google"}:
            distributions = {re.sub(r"[-_.]+", "-", name).lower() for name in installed.get(module, [module])}
            if not distributions & named:
                missing.add(module)
    assert sorted(missing) == []


def test_nothing_is_marked_as_unfinished() -> None:
    faults = []
    for name, content in _texts():
        faults += [f"{name}: {found}" for found in UNFINISHED.findall(content)]
    assert faults == []


def _imported(tree: ast.Module) -> set[str]:
    """Top-level names of the modules that a module imports."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").split(".")[0])
    return found


def _unsafe(node: ast.AST) -> list[str]:
    """What in this expression or statement could run what came from outside."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names if alias.name.split(".")[0] in UNSAFE_MODULES]
    if isinstance(node, ast.ImportFrom):
        return [str(node.module)] if (node.module or "").split(".")[0] in UNSAFE_MODULES else []
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        shell = any(keyword.arg == "shell" for keyword in node.keywords)
        if name in UNSAFE_CALLS or name in UNSAFE_METHODS or shell:
            return [f"{name}() in line {node.lineno}"]
    return []


def _texts() -> list[tuple[str, str]]:
    """Every tracked file that is text."""
    found = []
    for path in tracked():
        try:
            found.append((str(path), (ROOT / path).read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue
    return found
