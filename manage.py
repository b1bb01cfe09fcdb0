#!/usr/bin/env python
"""The command line of the Event Scheduler; `manage.py help` lists the commands."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run a command; a configuration that cannot work is one sentence and exit code 2."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "scheduler_project.settings")
    from django.core.management import execute_from_command_line

    from engine.errors import ConfigError
    from scheduler_project import logs
    from scheduler_project.env import WebConfig

    try:
        config = WebConfig.from_env(os.environ)
        logs.configure(config.log_format, config.log_level)
        execute_from_command_line(sys.argv)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
