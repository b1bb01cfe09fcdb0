"""Declared tokens and logins."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.hashers import check_password, make_password

from engine.errors import ConfigError
from scheduler_project import secret
from scheduler_project.accounts import AdminUsers, Role, Tokens, parse_tokens, parse_users
from scheduler_project.admin_users import user_key
from scheduler_project.limits import WebLimits


@pytest.fixture(autouse=True)
def quick_hash(settings: Any) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


def token_file(tmp_path: Path, *entries: dict[str, Any]) -> str:
    path = tmp_path / "tokens.yaml"
    path.write_text(json.dumps(list(entries)))
    return str(path)


def entry(token: str, role: str) -> dict[str, str]:
    return {"name": f"{token}'s", "sha256": hashlib.sha256(token.encode()).hexdigest(), "role": role}


def test_each_token_has_its_name_and_role(tmp_path: Path) -> None:
    path = token_file(tmp_path, entry("a", "viewer"), entry("b", "operator"))
    tokens = Tokens({"API_TOKEN": "c", "API_TOKENS_FILE": path})
    assert tokens.configured
    found = [tokens.find(value) for value in ("a", "b", "c")]
    assert [token.role for token in found if token] == [Role.VIEWER, Role.OPERATOR, Role.ADMIN]
    assert [token.name for token in found if token] == ["a's", "b's", "api-token"]
    assert tokens.find("d") is None
    assert tokens.find("") is None


def test_an_empty_file_of_tokens_still_asks_for_one(tmp_path: Path) -> None:
    tokens = Tokens({"API_TOKENS_FILE": token_file(tmp_path)})
    assert tokens.configured
    assert not Tokens({}).configured


def test_tokens_can_be_written_as_yaml() -> None:
    digest = "0" * 64
    (token,) = parse_tokens(f"- name: x\n  sha256: '{digest}'\n  role: admin\n".encode())
    assert (token.name, token.role) == ("x", Role.ADMIN)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "neither YAML nor JSON"),
        (b"name: x", "not a list"),
        (b"[1]", "not a list of entries"),
        (b'[{"sha256": "x", "role": "admin"}]', "entry 1: name is missing"),
        (b'[{"name": "x", "sha256": "abc", "role": "admin"}]', "64 hexadecimal digits"),
        (b'[{"name": "x", "sha256": "' + b"0" * 64 + b'", "role": "root"}]', "viewer, operator, admin"),
        (b'[{"name": "x", "sha256": "' + b"0" * 64 + b'", "role": "admin", "a": 1}]', "unknown a"),
    ],
)
def test_a_wrong_list_of_tokens_says_what_is_wrong(content: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_tokens(content)


def test_the_same_password_has_the_same_hash_on_every_node() -> None:
    environ = {"ADMIN_USERNAME": "root", "ADMIN_PASSWORD": "secret"}
    (one,), (other,) = AdminUsers(environ).get(), AdminUsers(environ).get()
    assert one == other
    assert check_password("secret", one.password_hash)
    assert one.role is Role.ADMIN


def test_a_ready_hash_is_taken_as_it_is() -> None:
    ready = make_password("secret")
    (user,) = AdminUsers({"ADMIN_USERNAME": "root", "ADMIN_PASSWORD_HASH": ready}).get()
    assert user.password_hash == ready


@pytest.mark.parametrize(
    ("environ", "reason"),
    [
        ({"ADMIN_USERNAME": "root"}, "ADMIN_USERNAME='root' is set without a password"),
        ({"ADMIN_PASSWORD": "x"}, "without ADMIN_USERNAME"),
        ({"ADMIN_USERNAME": "root", "ADMIN_PASSWORD_HASH": "plain"}, "ADMIN_PASSWORD_HASH: not a password hash"),
        ({"ADMIN_USERNAME": "a", "ADMIN_PASSWORD": "x", "ADMIN_PASSWORD_HASH": "y"}, "are both set"),
    ],
)
def test_half_a_login_is_refused(environ: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        AdminUsers(environ)


def test_a_list_of_logins_is_read_with_roles() -> None:
    ready = make_password("x")
    content = json.dumps([{"username": "a", "password_hash": ready, "role": "viewer"}]).encode()
    (user,) = parse_users(content)
    assert (user.username, user.role) == ("a", Role.VIEWER)
    with pytest.raises(ValueError, match="appears twice"):
        parse_users(content[:-1] + b"," + content[1:])


def test_a_logins_key_is_fixed_and_fits_every_database() -> None:
    keys = {user_key(f"user-{number}") for number in range(1000)}
    assert len(keys) == 1000
    assert all(0 < key < 2**31 for key in keys)
    assert user_key("root") == user_key("root")


def test_a_hash_that_turns_wrong_while_running_locks_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret, "LIMITS", WebLimits(secret_check_s=0.0))
    path = tmp_path / "hash"
    path.write_text(make_password("secret"))
    users = AdminUsers({"ADMIN_USERNAME": "root", "ADMIN_PASSWORD_HASH_FILE": str(path)})
    before = users.get()
    path.write_text("half a ha")
    assert users.get() == before
    path.write_text(make_password("fresh"))
    (user,) = users.get()
    assert check_password("fresh", user.password_hash)
