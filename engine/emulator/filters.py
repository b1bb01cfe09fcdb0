"""The filter language of subscriptions: parsed once, then a function of a message's attributes.

    expression := unary {"AND" unary} | unary {"OR" unary}      AND and OR do not mix without parentheses
    unary      := {"NOT" | "-"} primary                         NOT binds tightest
    primary    := "(" expression ")"
                | "attributes" ":" key                          has the key
                | "attributes" "." key ("=" | "!=") string
                | "hasPrefix" "(" "attributes" "." key "," string ")"
    key        := [A-Za-z0-9_-]+ | string

Operators are upper case; keys and values match exactly. `attributes.k != "v"` also holds where k is absent, as it is
NOT attributes.k = "v". At most 256 bytes. The rules are those of the service's documentation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from engine.emulator import limits
from engine.emulator.errors import Refused, invalid

Filter = Callable[[Mapping[str, str]], bool]

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<ne>!=)
      | (?P<mark>[()=:.,])
      | (?P<word>[A-Za-z0-9_][A-Za-z0-9_-]*)
      | (?P<minus>-)
    )""",
    re.VERBOSE | re.ASCII,
)
_KEY = re.compile(r"\s*(?P<word>[A-Za-z0-9_-]+)", re.ASCII)
"""A bare key, where one is due: there a minus at its start belongs to it."""
_ESCAPE = re.compile(
    r"\\(?:(?P<simple>[abfnrtv\\'\"?`])|u(?P<u4>[0-9A-Fa-f]{4})|U(?P<u8>[0-9A-Fa-f]{8})|[xX](?P<hex>[0-9A-Fa-f]{2})"
    r"|(?P<octal>[0-3][0-7]{2})|(?P<bad>.))",
    re.DOTALL,
)
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def parse(text: str) -> Filter:
    """The function that `text` (not empty) describes; INVALID_ARGUMENT for what the language does not allow."""
    if len(text.encode()) > limits.FILTER_BYTES_MAX:
        raise _error(text, f"it is longer than {limits.FILTER_BYTES_MAX} bytes")
    return _Parser(text).whole()


def _error(text: str, reason: str) -> Refused:
    return invalid(f"Invalid filter expression: {text!r}: {reason}.")


def _unescape(text: str, literal: str) -> str:
    """The value of a quoted string; bytes given as \\xHH or \\ooo are code points."""

    def value(match: re.Match[str]) -> str:
        if match["simple"]:
            return _SIMPLE.get(match["simple"], match["simple"])
        if match["bad"] is not None:
            raise _error(text, f"unknown escape \\{match['bad']}")
        digits = match["u4"] or match["u8"] or match["hex"]
        code = int(digits, 16) if digits else int(match["octal"], 8)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise _error(text, f"\\{match[0][1:]} is no character")
        return chr(code)

    return _ESCAPE.sub(value, literal[1:-1])


class _Parser:
    """Recursive descent over the tokens of one filter."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        self._at = 0
        self._depth = 0
        position = 0
        end = len(text.rstrip())
        while position < end:
            keyed = bool(self._tokens) and self._tokens[-1] in (("mark", ":"), ("mark", "."))
            match = (keyed and _KEY.match(text, position)) or _TOKEN.match(text, position)
            if match is None:
                raise _error(text, f"unexpected character at position {position}")
            kind = str(match.lastgroup)
            self._tokens.append((kind, match[kind]))
            position = match.end()

    def whole(self) -> Filter:
        result = self._expression()
        if self._at < len(self._tokens):
            raise self._unexpected()
        return result

    def _expression(self) -> Filter:
        terms = [self._unary()]
        operator = self._peek()[1] if self._peek() in (("word", "AND"), ("word", "OR")) else ""
        while operator and self._peek() in (("word", "AND"), ("word", "OR")):
            if self._next()[1] != operator:
                raise _error(self._text, "AND and OR need parentheses where both are used")
            terms.append(self._unary())
        if operator == "AND":
            return lambda attributes: all(term(attributes) for term in terms)
        if operator == "OR":
            return lambda attributes: any(term(attributes) for term in terms)
        return terms[0]

    def _unary(self) -> Filter:
        negations = 0
        while self._peek() in (("word", "NOT"), ("minus", "-")):
            self._next()
            negations += 1
        primary = self._primary()
        if negations % 2:
            return lambda attributes: not primary(attributes)
        return primary

    def _primary(self) -> Filter:
        kind, value = self._next()
        if (kind, value) == ("mark", "("):
            self._depth += 1
            if self._depth > limits.FILTER_DEPTH_MAX:
                raise _error(self._text, "too many nested parentheses")
            inner = self._expression()
            self._expect(")")
            self._depth -= 1
            return inner
        if (kind, value) == ("word", "hasPrefix"):
            return self._prefix()
        if (kind, value) != ("word", "attributes"):
            self._at -= 1
            raise self._unexpected()
        _, mark = self._next()
        if mark == ":":
            key = self._key()
            return lambda attributes: key in attributes
        if mark != ".":
            self._at -= 1
            raise self._unexpected()
        return self._comparison()

    def _comparison(self) -> Filter:
        key = self._key()
        _, operator = self._next()
        if operator not in ("=", "!="):
            self._at -= 1
            raise self._unexpected()
        wanted = self._string()
        if operator == "=":
            return lambda attributes: attributes.get(key) == wanted
        return lambda attributes: attributes.get(key) != wanted

    def _prefix(self) -> Filter:
        self._expect("(")
        if self._next() != ("word", "attributes"):
            self._at -= 1
            raise self._unexpected()
        self._expect(".")
        key = self._key()
        self._expect(",")
        prefix = self._string()
        self._expect(")")

        def has_prefix(attributes: Mapping[str, str]) -> bool:
            value = attributes.get(key)
            return value is not None and value.startswith(prefix)

        return has_prefix

    def _key(self) -> str:
        kind, value = self._next()
        if kind == "string":
            return _unescape(self._text, value)
        if kind != "word":
            self._at -= 1
            raise self._unexpected()
        return value

    def _string(self) -> str:
        kind, value = self._next()
        if kind != "string":
            self._at -= 1
            raise self._unexpected()
        return _unescape(self._text, value)

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "")

    def _next(self) -> tuple[str, str]:
        token = self._peek()
        self._at += 1
        return token

    def _expect(self, mark: str) -> None:
        if self._next() != ("mark", mark):
            self._at -= 1
            raise self._unexpected()

    def _unexpected(self) -> Refused:
        kind, value = self._peek()
        if kind == "end":
            return _error(self._text, "it ends too early")
        return _error(self._text, f"unexpected {value!r}")
