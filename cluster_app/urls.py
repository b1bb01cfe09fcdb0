"""The paths of the cluster, the probes and the metrics, with and without a trailing slash."""

from __future__ import annotations

from django.urls import re_path

from cluster_app import probes, views

urlpatterns = [
    re_path(r"^cluster/?$", views.ClusterDetail.as_view(), name="cluster"),
    re_path(r"^version/?$", views.VersionDetail.as_view(), name="version"),
    re_path(r"^livez/?$", probes.livez, name="livez"),
    re_path(r"^readyz/?$", probes.readyz, name="readyz"),
    re_path(r"^metrics/?$", probes.metrics, name="metrics"),
]
