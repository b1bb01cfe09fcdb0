"""`manage.py demo`: what `make demo` runs."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from cluster_app.demo import DemoError, run


class Command(BaseCommand):
    """One node, the local Pub/Sub and some traffic; `DEMO_SECONDS=n` ends it n seconds after it is ready."""

    help = "One node with the local Pub/Sub, a sample channel and messages due at different times, until Ctrl-C."
    requires_system_checks: list[str] = []  # noqa: RUF012 - Django's own attribute

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until Ctrl-C, SIGTERM or the time is up."""
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            run(os.environ, self._write, _seconds(os.environ.get("DEMO_SECONDS")))
        except KeyboardInterrupt:
            self._write("\n  Stopped.")
        except DemoError as error:
            raise CommandError(f"The demo failed: {error}") from error

    def _write(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


def _seconds(text: str | None) -> float | None:
    """DEMO_SECONDS; exits with 2 when it is no number."""
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        sys.stderr.write(f"DEMO_SECONDS={text!r} is no number of seconds above 0\n")
        sys.exit(2)
    return seconds
