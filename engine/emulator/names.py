"""Resource names: projects/{project}/{topics|subscriptions|snapshots}/{id}, by the service's rule."""

from __future__ import annotations

import re

from engine.emulator.errors import Refused, invalid

DELETED_TOPIC = "_deleted-topic_"

_ID = re.compile(r"[A-Za-z][A-Za-z0-9\-_.~+%]{2,254}", re.ASCII)
_NAME = re.compile(r"projects/([^/\s]+)/([a-z]+)/([^/]+)", re.ASCII)
_PROJECT = re.compile(r"projects/([^/\s]+)", re.ASCII)


def _bad_name(name: str) -> Refused:
    return invalid(
        f"Invalid resource name given (name={name}). Refer to https://cloud.google.com/pubsub/docs/admin"
        f"#resource_names for more information."
    )


def check_name(name: str, kind: str) -> None:
    """Refuse a name that is not projects/P/`kind`/ID with a legal ID (`kind` is plural.

    Topics, subscriptions, snapshots).
    """
    match = _NAME.fullmatch(name)
    if match is None or match[2] != kind or _ID.fullmatch(match[3]) is None or match[3].startswith("goog"):
        raise _bad_name(name)


def check_project(project: str) -> str:
    """The prefix that all names of `project` (projects/P) begin with."""
    if _PROJECT.fullmatch(project) is None:
        raise _bad_name(project)
    return project + "/"


def project_of(name: str) -> str:
    """The project id in a full resource name."""
    return name.split("/")[1]


def id_of(name: str) -> str:
    """The last part of a full resource name."""
    return name.rpartition("/")[2]
