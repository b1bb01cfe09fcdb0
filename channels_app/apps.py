"""Channels and their messages as an app."""

from __future__ import annotations

from django.apps import AppConfig


class ChannelsConfig(AppConfig):
    """What people see above the pages of channels and messages."""

    name = "channels_app"
    verbose_name = "Channels and messages"
