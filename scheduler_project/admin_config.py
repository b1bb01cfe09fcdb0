"""Django's admin as an app, with our site."""

from __future__ import annotations

from django.contrib.admin.apps import AdminConfig


class SchedulerAdminConfig(AdminConfig):
    """The admin; its site is ours."""

    default_site = "scheduler_project.site.SchedulerAdminSite"
