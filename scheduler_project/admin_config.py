"""Django's admin as an app, with our site."""

from __future__ import annotations

from django.contrib.admin.apps import SimpleAdminConfig


class SchedulerAdminConfig(SimpleAdminConfig):
    """The admin; its site is ours. Its pages are loaded with the URLs: a node's engine needs none of them."""

    default_site = "scheduler_project.site.SchedulerAdminSite"
