"""The members of the cluster as they stand in state.db."""

from __future__ import annotations

from django.db import models

from scheduler_project.replica.models import ReplicaModel


class Member(ReplicaModel):
    """A node that belongs to the cluster; how it does at the moment comes from the engine."""

    name = models.TextField(primary_key=True)
    addr = models.TextField()

    class Meta:
        managed = False
        db_table = "nodes"
        verbose_name = "cluster"
        verbose_name_plural = "cluster"

    def __str__(self) -> str:
        return self.addr
