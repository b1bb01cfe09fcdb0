"""Figures as people read them: quantiles, and an aligned table of everything measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

_UNITS: Final = {
    "per_s": ("/s", "{:,.0f}"),
    "ms": ("ms", "{:,.1f}"),
    "s": ("s", "{:,.2f}"),
    "mib": ("MiB", "{:,.0f}"),
}


def quantiles(values: Sequence[float] | Any) -> dict[str, float]:
    """min, p50, p99, p99.9 and max."""
    low, p50, p99, p999, high = np.percentile(values, [0, 50, 99, 99.9, 100])
    return {"min": float(low), "p50": float(p50), "p99": float(p99), "p99_9": float(p999), "max": float(high)}


def rows(results: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str, str, str]]:
    """(measure, figure, value, unit) of every figure, in the order measured."""
    found = []
    for measure, figures in results.items():
        shown = measure
        for name, value in figures.items():
            found.append((shown, *_row(name, value)))
            shown = ""
    return found


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The rows under each other, numbers to the right."""
    lines = [("MEASURE", "FIGURE", "VALUE", "UNIT"), *rows(results)]
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    return "\n".join(
        f"{line[0]:<{widths[0]}}  {line[1]:<{widths[1]}}  {line[2]:>{widths[2]}}  {line[3]}".rstrip() for line in lines
    )


def _row(name: str, value: Any) -> tuple[str, str, str]:
    if name == "cpu_us_per_message":
        parts = [f"{role} {cost:.1f}" for role, cost in value.items()]
        return "CPU per message", " · ".join(parts), "µs"
    if isinstance(value, Mapping):
        words, unit, _ = _named(name)
        parts = [f"{quantile.removesuffix('_ms').replace('_', '.')} {figure:.1f}" for quantile, figure in value.items()]
        return words, " · ".join(parts), unit
    words, unit, form = _named(name)
    if isinstance(value, int):
        form = "{:,}"
    return words, form.format(value), unit


def _named(name: str) -> tuple[str, str, str]:
    for suffix, (unit, form) in _UNITS.items():
        if name == suffix or name.endswith("_" + suffix):
            words = name.removesuffix(suffix).rstrip("_").replace("_", " ")
            return words or "rate", unit, form
    return name.replace("_", " "), "", "{:,.2f}"
