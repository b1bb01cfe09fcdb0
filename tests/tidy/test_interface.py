"""What the README and the docs say can be called and measured is what is there."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator

from django.urls import Resolver404, URLPattern, URLResolver, get_resolver, resolve

from engine.metrics import COUNTERS, GAUGES, PREFIX, Metrics, Sample
from tests.tidy.limits_page import GROUPS, render
from tests.tidy.tree import PACKAGES, code_spans, parsed, python_files, section, table_rows, text

APPS = ("channels_app.urls", "cluster_app.urls")


def test_every_call_of_the_readme_is_served() -> None:
    missing = []
    for method, path in _documented_calls():
        try:
            view = resolve(path).func
        except Resolver404:
            missing.append(f"{method} {path}")
            continue
        kind = getattr(view, "view_class", None) or getattr(view, "cls", None)
        if kind is not None and not hasattr(kind, method.lower()):
            missing.append(f"{method} {path}")
    assert missing == []


def test_every_path_of_the_api_is_in_the_readme() -> None:
    documented = {resolve(path).url_name for _, path in _documented_calls()}
    served = {
        str(pattern.name)
        for included in get_resolver().url_patterns
        if isinstance(included, URLResolver) and getattr(included.urlconf_module, "__name__", "") in APPS
        for pattern in included.url_patterns
        if isinstance(pattern, URLPattern)
    }
    assert served
    assert sorted(served - documented) == []


def test_every_metric_is_documented_with_its_kind_and_no_other() -> None:
    documented = {code_spans(row[0])[0]: row[1] for row in table_rows(text("docs/metrics.md"))}
    assert documented == dict(_metrics())


def test_the_page_of_limits_is_that_of_the_code() -> None:
    assert text("docs/limits.md") == render(), "run: python -m tests.tidy.limits_page"


def test_every_limit_is_used() -> None:
    """One that nobody looks at limits nothing."""
    used = {
        node.attr
        for path in python_files(*PACKAGES)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute)
    }
    limits = {field.name for _, kind in GROUPS for field in dataclasses.fields(kind)}
    assert sorted(limits - used) == []


def _documented_calls() -> Iterator[tuple[str, str]]:
    """(method, path) of every call in the README's table, with placeholders filled in."""
    for row in table_rows(section(text("README.md"), "## REST")):
        for span in code_spans(row[0]):
            methods, _, path = span.partition(" ")
            path = re.sub(r"\{[a-z_]+\}", "x", path.partition("?")[0])
            for method in methods.split("/"):
                yield method, path


def _metrics() -> Iterator[tuple[str, str]]:
    """(name as it is scraped, kind) of every metric."""
    metrics = Metrics()
    metrics.read_with(lambda: [Sample(name, 1.0) for name in (*GAUGES, *COUNTERS)])
    for family in metrics.registry.collect():
        assert family.name.startswith(PREFIX)
        yield family.name + ("_total" if family.type == "counter" else ""), family.type
