"""The project as an app: templates and static files that both apps share."""

from __future__ import annotations

from django.apps import AppConfig


class ProjectConfig(AppConfig):
    """No models of its own."""

    name = "scheduler_project"
