"""Every path of the web side. The API's paths are served with and without a trailing slash."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path, re_path
from django.views.generic import RedirectView

from scheduler_project import problems

admin.autodiscover()
urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("", include("channels_app.urls")),
    path("", include("cluster_app.urls")),
    # A problem document for every other path, with debug pages as well as without.
    re_path("", problems.not_found),
]
handler400 = "scheduler_project.problems.bad_request"
handler403 = "scheduler_project.problems.permission_denied"
handler404 = "scheduler_project.problems.not_found"
handler500 = "scheduler_project.problems.server_error"
