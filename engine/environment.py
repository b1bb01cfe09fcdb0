"""Values of environment variables, read strictly: ConfigError names the variable, its value and what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from engine.errors import ConfigError

DRIVERS: Final = ("pubsub",)
"""Known listener and publisher drivers."""


def default_channel(environ: Mapping[str, str]) -> Mapping[str, Any] | None:
    """The channel that `PUBSUB_LISTENER_…` and `PUBSUB_PUBLISHER_…` describe; None when none of them is set."""
    for variable in ("LISTENER_DRIVER", "PUBLISHER_DRIVER"):
        driver = environ.get(variable) or DRIVERS[0]
        if driver not in DRIVERS:
            raise ConfigError(f"{variable}={driver!r} is unknown; known drivers: {', '.join(DRIVERS)}")
    required = (
        "PUBSUB_LISTENER_PROJECT_ID",
        "PUBSUB_LISTENER_SUBSCRIPTION_ID",
        "PUBSUB_PUBLISHER_PROJECT_ID",
        "PUBSUB_PUBLISHER_TOPIC_ID",
    )
    missing = [variable for variable in required if not environ.get(variable)]
    if len(missing) == len(required):
        return None
    if missing:
        raise ConfigError(
            f"{', '.join(missing)} must be set too: the channel `default` needs all of {', '.join(required)}"
        )
    return {
        "id": "default",
        "source": {
            "driver": environ.get("LISTENER_DRIVER") or DRIVERS[0],
            "config": {
                "project_id": environ["PUBSUB_LISTENER_PROJECT_ID"],
                "subscription_id": environ["PUBSUB_LISTENER_SUBSCRIPTION_ID"],
                "key_file": environ.get("PUBSUB_LISTENER_KEY_FILE") or None,
            },
        },
        "destination": {
            "driver": environ.get("PUBLISHER_DRIVER") or DRIVERS[0],
            "config": {
                "project_id": environ["PUBSUB_PUBLISHER_PROJECT_ID"],
                "topic_id": environ["PUBSUB_PUBLISHER_TOPIC_ID"],
                "key_file": environ.get("PUBSUB_PUBLISHER_KEY_FILE") or None,
            },
        },
    }


def port_of(environ: Mapping[str, str], variable: str, default: int) -> int:
    """A TCP port, or the default when the variable is not set."""
    text = environ.get(variable)
    if not text:
        return default
    if text.startswith("tcp://"):
        raise ConfigError(
            f"{variable}={text!r} was set by Kubernetes for a Service of that name: set enableServiceLinks: false in"
            " the pod, or the variable to a port"
        )
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise ConfigError(f"{variable}={text!r} is no port: a number from 1 to 65535")
    return int(text)


def seconds_of(environ: Mapping[str, str], variable: str, default: float) -> float:
    """More than 0 and at most an hour, or the default when the variable is not set."""
    text = environ.get(variable)
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= 3600:
        raise ConfigError(f"{variable}={text!r} is no number of seconds: more than 0, at most 3600")
    return value
