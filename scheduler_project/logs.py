"""Logging: structlog and the standard library through one format, chosen by LOG_FORMAT and LOG_LEVEL.

A line is a sentence, a machine name in `action`, and ids. `text` is for people, `json` for collectors, `gcp` for Cloud
Logging, which reads `severity`, `message`, `time` and `stack_trace`.
"""

from __future__ import annotations

import logging
import logging.config
import os
import re
import sys
from typing import Any, Final

import structlog
from structlog.types import EventDict, Processor, WrappedLogger

_TRACE: Final = 1
LEVELS: Final[dict[str, int]] = {
    "trace": _TRACE,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
    "panic": logging.CRITICAL,
}
_OURS: Final = ("engine", "channels_app", "cluster_app", "scheduler_project")
_SECRET: Final = re.compile(r"(?i)(^|_)(token|secret|secret_key|password|password_hash|authorization|cookie)$")
_HIDDEN: Final = "[hidden]"


def configure(log_format: str, log_level: str, stream: str = "stderr") -> None:
    """Send every logger of this process to `stream` (`stdout` or `stderr`)."""
    level = LEVELS[log_level]
    logging.config.dictConfig(dict_config(log_format, log_level, stream))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_shared(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level if level > _TRACE else logging.NOTSET),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def dict_config(log_format: str, log_level: str, stream: str) -> dict[str, Any]:
    """The standard library's half, in the shape of `logging.config`; gunicorn takes the same."""
    level = LEVELS[log_level]
    # At `debug` other people's libraries stay at info: their details are for `trace`.
    others = max(level, logging.INFO) if level > _TRACE else level
    access = level if level <= logging.DEBUG else logging.WARNING
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"ours": {"()": formatter, "log_format": log_format, "stream": stream}},
        "handlers": {
            "stream": {"class": "logging.StreamHandler", "formatter": "ours", "stream": f"ext://sys.{stream}"}
        },
        "root": {"level": others, "handlers": ["stream"]},
        "loggers": {
            **{name: {"level": level} for name in _OURS},
            # A refused request is its caller's affair; what is ours is logged where it is caught.
            "django.request": {"level": max(others, logging.ERROR), "handlers": [], "propagate": True},
            "django.security.DisallowedHost": {"level": logging.CRITICAL, "handlers": [], "propagate": True},
            "django.server": {"handlers": [], "propagate": True},
            "gunicorn.error": {"level": level, "handlers": [], "propagate": True},
            "gunicorn.access": {"level": access, "handlers": [], "propagate": True},
        },
    }


def formatter(log_format: str, stream: str) -> logging.Formatter:
    """The formatter of all lines; those of foreign libraries get the same fields as ours."""
    strip: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if log_format == "text":
        coloured = getattr(sys, stream).isatty() and not os.environ.get("NO_COLOR")
        tail: list[Processor] = [
            structlog.dev.ConsoleRenderer(
                colors=coloured, pad_event_to=0, exception_formatter=structlog.dev.plain_traceback
            )
        ]
    else:
        tail = [structlog.processors.format_exc_info, _gcp if log_format == "gcp" else _json, _RENDER]
    return structlog.stdlib.ProcessorFormatter(foreign_pre_chain=_shared(), processors=[*strip, *tail])


def _shared() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.stdlib.ExtraAdder(),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _hide_secrets,
    ]


def _hide_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    for name in event:
        if _SECRET.search(name):
            event[name] = _HIDDEN
    return event


def _json(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    return {"time": event.pop("timestamp"), "level": event.pop("level"), "message": event.pop("event"), **event}


def _gcp(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    severity = str(event.pop("level")).upper()
    if "exception" in event:
        event["stack_trace"] = event.pop("exception")
    return {"severity": severity, "time": event.pop("timestamp"), "message": event.pop("event"), **event}


_RENDER: Final = structlog.processors.JSONRenderer(default=str)
