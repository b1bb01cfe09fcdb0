"""The table of environment variables in the README is the code's."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import Final

from tests.tidy.tree import PACKAGES, code_spans, parsed, python_files, section, table_rows, text

INTERNAL: Final = frozenset(
    {
        "DJANGO_SETTINGS_MODULE",  # set by manage.py and wsgi.py themselves
        "EVENT_SCHEDULER_DEVELOPMENT",  # set by `run_scheduler --dev` for its web child
        "EVENT_SCHEDULER_NODE_PID",  # set by a node for its web child
    }
)

ENVIRONS: Final = ("environ", "os.environ", "self._environ")


def test_every_variable_that_the_code_reads_is_in_the_readme() -> None:
    assert sorted(_read() - INTERNAL - _documented()) == []


def test_every_variable_of_the_readme_is_read() -> None:
    assert sorted(_documented() - _read()) == []


def test_the_search_finds_a_variable_of_each_kind() -> None:
    """A mapping's method, a subscript, a helper, a secret with its file, a name kept in a constant."""
    kinds = {"STORAGE_PATH", "PUBSUB_PUBLISHER_TOPIC_ID", "LOG_FORMAT", "API_TOKEN_FILE", "EVENT_SCHEDULER_NODE_PID"}
    assert kinds <= _read()


def _documented() -> set[str]:
    rows = table_rows(section(text("README.md"), "## Configuration"))
    return {name for row in rows for name in code_spans(row[0])}


@lru_cache(maxsize=1)
def _read() -> frozenset[str]:
    """Names that are looked up in something called `environ`, or handed to a function together with it."""
    found: set[str] = set()
    constants = _constants()
    for path in python_files(*PACKAGES):
        for node in ast.walk(parsed(path)):
            found |= {name for name in map(constants.get, _lookups(node), _lookups(node)) if name.isupper()}
    return frozenset(found)


def _lookups(node: ast.AST) -> list[str]:
    """The constants, or names of constants, that this expression looks up."""
    if isinstance(node, ast.Subscript) and _is_environ(node.value):
        return [_word(node.slice)]
    if isinstance(node, ast.Compare) and any(_is_environ(operand) for operand in node.comparators):
        return [_word(node.left)]
    if isinstance(node, ast.Call):
        words = [_word(argument) for argument in node.args]
        if ast.unparse(node.func).split(".")[-1] == "Secret":
            return [words[0], f"{words[0]}_FILE"]
        method_of_environ = isinstance(node.func, ast.Attribute) and _is_environ(node.func.value)
        if method_of_environ:
            return words[:1]
        if len(node.args) > 1 and _is_environ(node.args[0]):
            return words[1:2]
    return []


def _is_environ(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node) in ENVIRONS


def _word(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    return node.id if isinstance(node, ast.Name) else ""


def _constants() -> dict[str, str]:
    """Values of the modules' text constants, by name."""
    constants = {}
    for path in python_files(*PACKAGES):
        for node in parsed(path).body:
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            value = getattr(node, "value", None)
            if isinstance(target, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                constants[target.id] = value.value
    return constants
