"""Who may call: bearer tokens and admin logins, declared in the environment or in files, with a role each."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import yaml
from django.contrib.auth.hashers import identify_hasher, make_password

from engine.errors import ConfigError
from scheduler_project.secret import Secret, WatchedFile


class Role(IntEnum):
    """What a caller may do; each includes the ones before it."""

    VIEWER = 1
    """Read."""
    OPERATOR = 2
    """Messages, pause and resume."""
    ADMIN = 3
    """Everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A bearer token, known by its digest."""

    name: str
    sha256: bytes
    role: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminUser:
    """A declared login of the admin."""

    username: str
    password_hash: str
    role: Role


class Tokens:
    """The accepted bearer tokens: API_TOKEN, with all rights, and those of API_TOKENS_FILE."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._single = Secret("API_TOKEN", environ)
        path = environ.get("API_TOKENS_FILE")
        self._file = WatchedFile("API_TOKENS_FILE", Path(path), parse_tokens) if path else None

    @property
    def configured(self) -> bool:
        """Whether any credential is asked for; an empty file asks for one, too, that nobody has."""
        return self._file is not None or bool(self._single.lines())

    def find(self, value: str) -> Token | None:
        """The token whose value this is; every candidate is compared in constant time."""
        digest = hashlib.sha256(value.encode("utf-8", "surrogateescape")).digest()
        candidates = [
            Token(name="api-token", sha256=hashlib.sha256(line.encode()).digest(), role=Role.ADMIN)
            for line in self._single.lines()
        ]
        if self._file is not None:
            candidates += self._file.get()
        found = None
        for token in candidates:
            if hmac.compare_digest(token.sha256, digest):
                found = token
        return found


class AdminUsers:
    """The declared logins: ADMIN_USERNAME with its password or hash, and those of ADMIN_USERS_FILE."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._username = environ.get("ADMIN_USERNAME", "")
        self._password = Secret("ADMIN_PASSWORD", environ)
        self._hash = Secret("ADMIN_PASSWORD_HASH", environ)
        path = environ.get("ADMIN_USERS_FILE")
        self._file = WatchedFile("ADMIN_USERS_FILE", Path(path), parse_users) if path else None
        self._hashed: tuple[str, str] | None = None
        self._last_ready = ""
        secrets = [
            name for name, s in (("ADMIN_PASSWORD", self._password), ("ADMIN_PASSWORD_HASH", self._hash)) if s.lines()
        ]
        if len(secrets) == 2:
            raise ConfigError("ADMIN_PASSWORD and ADMIN_PASSWORD_HASH are both set: set one of them")
        if secrets and not self._username:
            raise ConfigError(f"{secrets[0]} is set without ADMIN_USERNAME: set both")
        if self._username and not secrets:
            raise ConfigError(
                f"ADMIN_USERNAME={self._username!r} is set without a password:"
                " set ADMIN_PASSWORD_HASH or ADMIN_PASSWORD"
            )
        if self._hash.value() is not None:
            self._own_hash()

    def get(self) -> tuple[AdminUser, ...]:
        """The logins as they are declared now, the last good ones where a file has turned wrong."""
        users = self._file.get() if self._file is not None else ()
        if not self._username:
            return users
        first = AdminUser(username=self._username, password_hash=self._own_hash(), role=Role.ADMIN)
        return (first, *(user for user in users if user.username != first.username))

    def _own_hash(self) -> str:
        ready = self._hash.value()
        if ready is not None:
            if ready != self._last_ready:
                fault = _hash_fault(ready)
                if fault and not self._last_ready:
                    raise ConfigError(f"ADMIN_PASSWORD_HASH: {fault}")
                # A file that turned wrong while we run does not lock anybody out.
                self._last_ready = self._last_ready if fault else ready
            return self._last_ready
        password = self._password.value() or ""
        if self._hashed is None or self._hashed[0] != password:
            # The same salt on every node gives the same hash: a login made at one node holds at the others.
            salt = hashlib.sha256(b"event-scheduler admin " + self._username.encode()).hexdigest()[:22]
            self._hashed = (password, make_password(password, salt=salt))
        return self._hashed[1]


def parse_tokens(content: bytes) -> tuple[Token, ...]:
    """The list of API_TOKENS_FILE; ValueError with a sentence."""
    tokens = []
    for place, entry in enumerate(_entries(content), 1):
        name, digest = _text(entry, "name", place), _text(entry, "sha256", place).lower()
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise ValueError(f"entry {place}: sha256 is not 64 hexadecimal digits (printf %s TOKEN | sha256sum)")
        _only(entry, ("name", "sha256", "role"), place)
        tokens.append(Token(name=name, sha256=bytes.fromhex(digest), role=_role(entry, place)))
    return tuple(tokens)


def parse_users(content: bytes) -> tuple[AdminUser, ...]:
    """The list of ADMIN_USERS_FILE; ValueError with a sentence."""
    users: dict[str, AdminUser] = {}
    for place, entry in enumerate(_entries(content), 1):
        username, password_hash = _text(entry, "username", place), _text(entry, "password_hash", place)
        fault = _hash_fault(password_hash)
        if fault:
            raise ValueError(f"entry {place}: password_hash: {fault}")
        if username in users:
            raise ValueError(f"entry {place}: username {username!r} appears twice")
        _only(entry, ("username", "password_hash", "role"), place)
        users[username] = AdminUser(username=username, password_hash=password_hash, role=_role(entry, place))
    return tuple(users.values())


def _entries(content: bytes) -> list[dict[str, Any]]:
    try:
        document = yaml.safe_load(content.decode())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"neither YAML nor JSON: {' '.join(str(error).split())}") from error
    if document is None:
        return []
    if not isinstance(document, list) or not all(isinstance(entry, dict) for entry in document):
        raise ValueError("not a list of entries")
    return document


def _text(entry: Mapping[str, Any], key: str, place: int) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value:
        raise ValueError(f"entry {place}: {key} is missing or no text")
    return value


def _only(entry: Mapping[str, Any], allowed: tuple[str, ...], place: int) -> None:
    unknown = [str(key) for key in entry if key not in allowed]
    if unknown:
        raise ValueError(f"entry {place}: unknown {', '.join(unknown)}; known are {', '.join(allowed)}")


def _role(entry: Mapping[str, Any], place: int) -> Role:
    value = entry.get("role")
    names = {role.name.lower(): role for role in Role}
    if value not in names:
        raise ValueError(f"entry {place}: role {value!r} is not one of {', '.join(names)}")
    return names[value]


def _hash_fault(password_hash: str) -> str | None:
    try:
        identify_hasher(password_hash)
    except ValueError:
        return (
            "not a password hash of Django's (make one with: python -c \"from django.contrib.auth.hashers import"
            ' PBKDF2PasswordHasher as H; h = H(); print(h.encode(input(), h.salt()))"); mind that Compose and shells'
            " expand the dollar signs"
        )
    return None
