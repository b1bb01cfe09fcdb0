"""Modules and functions stay small enough to be read in one go."""

from __future__ import annotations

import ast
from typing import Final

from tests.tidy.tree import ROOT, parsed, python_files

MODULE_LINES_MAX: Final = 400
FUNCTION_LINES_MAX: Final = 70


def test_no_module_has_more_than_400_lines() -> None:
    lengths = {str(path): len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in python_files()}
    assert {path: lines for path, lines in lengths.items() if lines > MODULE_LINES_MAX} == {}


def test_no_function_has_more_than_70_lines() -> None:
    long = []
    for path in python_files():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                lines = node.end_lineno - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    long.append(f"{path}:{node.lineno} {node.name} has {lines} lines")
    assert long == []
