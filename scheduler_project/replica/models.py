"""What all models over state.db have in common: they are read with the ORM and written through the engine alone."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.db import models

M = TypeVar("M", bound=models.Model)


class ReadOnlyState(ImproperlyConfigured):
    """Someone tried to write state.db through the ORM."""


def _refuse(*_args: Any, **_kwargs: Any) -> NoReturn:
    raise ReadOnlyState("state.db is written by the engine alone: send a command through scheduler_project.client")


class ReadOnlyQuerySet(models.QuerySet[M]):
    """A query set that reads."""

    create = update = delete = bulk_create = bulk_update = get_or_create = update_or_create = _refuse
    acreate = aupdate = adelete = abulk_create = abulk_update = aget_or_create = aupdate_or_create = _refuse
    _raw_delete = _update = _refuse


class ReplicaModel(models.Model):
    """Base of the models over state.db."""

    objects = ReadOnlyQuerySet.as_manager()

    class Meta:
        abstract = True
        managed = False

    save = delete = save_base = asave = adelete = _refuse
