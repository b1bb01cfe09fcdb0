"""The paths of channels and messages, with and without a trailing slash."""

from __future__ import annotations

from django.urls import re_path

from channels_app import message_views, views

_CHANNEL = r"^channels/(?P<channel_id>[^/]+)"
urlpatterns = [
    re_path(r"^channels/?$", views.ChannelList.as_view(), name="channels"),
    re_path(rf"{_CHANNEL}/?$", views.ChannelDetail.as_view(), name="channel"),
    re_path(rf"{_CHANNEL}/pause/?$", views.ChannelPause.as_view(), name="channel-pause"),
    re_path(rf"{_CHANNEL}/resume/?$", views.ChannelResume.as_view(), name="channel-resume"),
    re_path(rf"{_CHANNEL}/messages/?$", message_views.MessageList.as_view(), name="messages"),
    re_path(rf"{_CHANNEL}/messages/(?P<message_id>[^/]+)/?$", message_views.MessageDetail.as_view(), name="message"),
]
