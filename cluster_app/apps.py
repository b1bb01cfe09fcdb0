"""Nodes, health and metrics as an app."""

from __future__ import annotations

from django.apps import AppConfig


class ClusterConfig(AppConfig):
    """What people see above the pages of the cluster."""

    name = "cluster_app"
    verbose_name = "Cluster"
