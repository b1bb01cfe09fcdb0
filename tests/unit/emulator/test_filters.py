"""The filter language: a table of what matches, what is refused, and random filters against a slow oracle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.emulator.errors import Refused
from engine.emulator.filters import parse

MESSAGES = [
    {"id": "0"},
    {"id": "1", "name": "com"},
    {"id": "2", "name": "net", "lang": "en"},
    {"id": "3", "lang": "en-us", "a/b": "x"},
    {"id": "4", "is-even": "1", "みんな": "all"},
]

MATCHES = {
    "attributes:name": "12",
    "NOT attributes:name": "034",
    "-attributes:name": "034",
    'attributes.name = "com"': "1",
    'attributes.name="com"': "1",
    'attributes.name != "com"': "0234",
    'NOT attributes.name = "com"': "0234",
    "attributes:name AND attributes:lang": "2",
    "attributes:name OR attributes:lang": "123",
    'hasPrefix(attributes.lang, "en")': "23",
    'hasPrefix(attributes.lang,"en-")': "3",
    'NOT hasPrefix(attributes.lang, "en")': "014",
    '(attributes:name OR attributes:lang) AND NOT attributes.name = "com"': "23",
    "attributes:is-even": "4",
    "-attributes:is-even": "0123",
    'attributes:"a/b"': "3",
    'attributes."a/b" = "x"': "3",
    'attributes:"みんな"': "4",
    'attributes."みんな" = "all"': "4",
    'attributes.name = "c\\u006fm"': "1",
    "attributes:name AND attributes:lang AND attributes:id": "2",
    "NOT (attributes:name OR attributes:lang)": "04",
    'attributes.Name = "com"': "",
}
MORE_MATCHES = {
    "attributes : name": "12",
    'attributes.name\t=\n"com"': "1",
    "attributes:-x": "",
    "NOT NOT attributes:name": "12",
    "--attributes:name": "12",
    "NOT -attributes:name": "12",
    "((attributes:name))": "12",
    "attributes:AND": "",
    'attributes.name = "\\x63\\157m"': "1",
    'attributes.name = "c\\"om"': "",
}


@pytest.mark.parametrize("text", [*MATCHES, *MORE_MATCHES])
def test_a_filter_matches(text: str) -> None:
    matches = parse(text)
    found = [message["id"] for message in MESSAGES if matches(message)]
    assert "".join(found) == {**MATCHES, **MORE_MATCHES}[text]


NO_FILTERS = [
    "attributes",
    "attributes:",
    "attributes:name AND",
    "attributes:name and attributes:lang",
    "not attributes:name",
    '"com" = attributes.name',
    "attributes.a = attributes.b",
    'attributes.name = "com" AND ("net" OR "org")',
    "attributes:\\u307F",
    "attributes:a AND attributes:b OR attributes:c",
    "attributes.name = com",
    'attributes.name = "com',
    'attributes.name > "com"',
    "(attributes:name",
    "attributes:name)",
    'hasPrefix(attributes:name, "x")',
    'hasSuffix(attributes.name, "x")',
    'attributes.name = "' + "x" * 256 + '"',
]


@pytest.mark.parametrize("text", [*NO_FILTERS, "(" * 100 + "attributes:a" + ")" * 100, 'attributes:a = "b"', "a", "()"])
def test_what_is_no_filter_is_refused(text: str) -> None:
    with pytest.raises(Refused) as refused:
        parse(text)
    assert refused.value.code.name == "INVALID_ARGUMENT"


# Random filters: a tree is written as text, and evaluated on its own, without the parser.

KEYS = ["a", "b-c", "x/y", "AND", "ключ", "-lead", "1"]
VALUES = ["", "v", 'q"uo\\te', "vw", "значение"]
Tree = tuple

LEAVES = st.one_of(
    st.tuples(st.just("has"), st.sampled_from(KEYS)),
    st.tuples(st.sampled_from(["=", "!=", "prefix"]), st.sampled_from(KEYS), st.sampled_from(VALUES)),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["NOT", "-"]), inner),
        st.tuples(st.sampled_from(["AND", "OR"]), st.lists(inner, min_size=2, max_size=3)),
    ),
    max_leaves=5,
)


def key_text(key: str) -> str:
    bare = key.isascii() and all(letter.isalnum() or letter in "_-" for letter in key)
    return key if bare else string_text(key)


def string_text(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def text_of(tree: Tree) -> str:
    """The tree in the filter language; every compound in parentheses where it is an operand."""
    kind, first, *rest = tree
    if kind == "has":
        return f"attributes:{key_text(first)}"
    if kind in ("=", "!="):
        return f"attributes.{key_text(first)} {kind} {string_text(rest[0])}"
    if kind == "prefix":
        return f"hasPrefix(attributes.{key_text(first)}, {string_text(rest[0])})"
    if kind in ("NOT", "-"):
        return f"{kind} {operand_text(first)}"
    return f" {kind} ".join(operand_text(inner) for inner in first)


def operand_text(tree: Tree) -> str:
    return f"({text_of(tree)})" if tree[0] in ("AND", "OR") else text_of(tree)


def oracle(tree: Tree, attributes: dict[str, str]) -> bool:
    kind, first, *rest = tree
    if kind in ("NOT", "-"):
        return not oracle(first, attributes)
    if kind in ("AND", "OR"):
        results = [oracle(inner, attributes) for inner in first]
        return min(results) if kind == "AND" else max(results)
    value = attributes.get(first)
    if kind == "has":
        return value is not None
    if kind == "=":
        return value == rest[0]
    if kind == "!=":
        return value != rest[0]
    return value is not None and value[: len(rest[0])] == rest[0]


@given(tree=TREES, attributes=st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES)))
def test_random_filters_match_what_the_oracle_says(tree: Tree, attributes: dict[str, str]) -> None:
    text = text_of(tree)
    if len(text.encode()) <= 256:
        assert parse(text)(attributes) == oracle(tree, attributes)


@given(text=st.text(alphabet='attributes:.=!"()-\\ ANDORNOT,hasPrefix\n\x00é', max_size=60))
def test_random_text_is_parsed_or_refused_and_nothing_else(text: str) -> None:
    try:
        result = parse(text)
    except Refused:
        return
    assert result({}) in (True, False)
