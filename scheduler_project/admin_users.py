"""Declared logins in Django's own tables: the same rows on every node, so a session made at one holds at all."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import structlog
from django.contrib.auth.models import Group, User
from django.db import transaction

from scheduler_project.accounts import AdminUser, Role

log = structlog.get_logger(__name__)


def user_key(username: str) -> int:
    """The primary key of a declared login: a session names its user by it, on whatever node."""
    digest = hashlib.sha256(username.encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1 or 1


def store_users(users: Iterable[AdminUser]) -> None:
    """Make the table what was declared; a login that no longer is can't be used any more."""
    declared = list(users)
    with transaction.atomic():
        keys = set()
        for user in declared:
            keys.add(_store(user))
        forgotten = User.objects.filter(is_active=True).exclude(pk__in=keys).update(is_active=False)
    log.info("Admin logins are set.", action="admin_users_set", logins=len(declared), deactivated=forgotten)


def _store(user: AdminUser) -> int:
    key = user_key(user.username)
    User.objects.filter(username=user.username).exclude(pk=key).delete()
    stored, _ = User.objects.update_or_create(
        pk=key,
        defaults={
            "username": user.username,
            "password": user.password_hash,
            "is_active": True,
            "is_staff": True,
            "is_superuser": user.role is Role.ADMIN,
        },
    )
    group, _ = Group.objects.get_or_create(name=user.role.name.lower())
    stored.groups.set([group])
    return key
