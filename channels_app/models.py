"""Channels and messages as they stand in state.db: read here, written by the engine alone."""

from __future__ import annotations

from django.db import models

from scheduler_project.replica.models import ReplicaModel


class Channel(ReplicaModel):
    """A channel's row; its configuration, state and figures come from the engine, as one document."""

    id = models.TextField(primary_key=True)
    uid = models.BigIntegerField(unique=True)
    name = models.TextField()
    source_project_id = models.TextField()
    source_subscription_id = models.TextField()
    destination_project_id = models.TextField()
    destination_topic_id = models.TextField()
    revision = models.BigIntegerField()

    class Meta:
        managed = False
        db_table = "channels"
        ordering = ("id",)

    def __str__(self) -> str:
        return self.name or self.id


class HeldMessage(ReplicaModel):
    """What pending and quarantined messages have in common."""

    seq = models.BigIntegerField(primary_key=True)
    channel_uid = models.BigIntegerField()
    source_id = models.TextField()
    publish_us = models.BigIntegerField()
    ordering_key = models.TextField()
    key = models.TextField(null=True)  # noqa: DJ001 - none and empty are different keys.
    size = models.BigIntegerField()
    accepted_ms = models.BigIntegerField()
    attempts = models.IntegerField()
    revision = models.IntegerField()
    payload = models.BinaryField()

    class Meta:
        abstract = True
        managed = False

    def __str__(self) -> str:
        return str(self.seq)


class Message(HeldMessage):
    """A message that waits for its time."""

    slot = models.BigIntegerField()
    due_ms = models.BigIntegerField()
    original_due_ms = models.BigIntegerField()

    class Meta:
        managed = False
        db_table = "messages"
        verbose_name = "pending message"


class QuarantinedMessage(HeldMessage):
    """A message that was set aside, and why."""

    due_ms = models.BigIntegerField(null=True)
    quarantined_ms = models.BigIntegerField()
    code = models.TextField()
    reason = models.TextField()

    class Meta:
        managed = False
        db_table = "quarantine"
        verbose_name = "quarantined message"
