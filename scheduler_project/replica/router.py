"""Which database holds what: the relay's state in `state`, Django's own tables in `default`."""

from __future__ import annotations

from typing import Any

from django.db.models import Model

from scheduler_project.replica.models import ReplicaModel


class ReplicaRouter:
    """Reads of the replica's models go to `state`; nothing is ever written or migrated there.

    A write of such a model is refused by the model itself. `db_for_write` names `default` so that the transaction that
    the admin puts around a form covers Django's own tables and pins no snapshot of state.db.
    """

    def db_for_read(self, model: type[Model], **_hints: Any) -> str | None:
        return "state" if issubclass(model, ReplicaModel) else None

    def db_for_write(self, model: type[Model], **_hints: Any) -> str | None:
        return "default" if issubclass(model, ReplicaModel) else None

    def allow_relation(self, first: Model, second: Model, **_hints: Any) -> bool | None:
        return isinstance(first, ReplicaModel) == isinstance(second, ReplicaModel) or None

    def allow_migrate(self, db: str, _app_label: str, model: type[Model] | None = None, **_hints: Any) -> bool | None:
        if db == "state" or (model is not None and issubclass(model, ReplicaModel)):
            return False
        return None
