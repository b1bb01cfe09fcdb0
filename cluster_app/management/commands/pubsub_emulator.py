"""`manage.py pubsub_emulator`: the local Pub/Sub alone."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser


class Command(BaseCommand):
    """Serves google.pubsub.v1 from memory until SIGTERM or SIGINT."""

    help = "Run the local Pub/Sub in the foreground; clients reach it through PUBSUB_EMULATOR_HOST."
    requires_system_checks: list[str] = []  # noqa: RUF012 - Django's own attribute

    def add_arguments(self, parser: CommandParser) -> None:
        """Where to listen."""
        parser.add_argument("--host-port", default="127.0.0.1:8085", help="address to listen on (%(default)s)")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Serve."""
        from engine.emulator import serve

        sys.exit(serve(options["host_port"]))
