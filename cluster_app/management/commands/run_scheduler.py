"""`manage.py run_scheduler`: one node, configured by the environment."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, NoReturn

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandParser

from cluster_app.development import development
from cluster_app.preflight import web_problems
from engine.config import EngineConfig
from engine.errors import ConfigError, DamagedError
from scheduler_project import logs
from scheduler_project.env import WebConfig
from scheduler_project.limits import LIMITS


class Command(BaseCommand):
    """Exit codes: 0 after SIGTERM or SIGINT, 1 for a failure, 2 for a configuration that cannot work."""

    help = "Run one node: the engine in this process, the web side below it. Configured by the environment."
    requires_system_checks: list[str] = []  # noqa: RUF012 - Django's own attribute

    def add_arguments(self, parser: CommandParser) -> None:
        """The two modes."""
        parser.add_argument(
            "--dev", action="store_true", help="with the local Pub/Sub inside, a generated admin login, debug pages"
        )
        parser.add_argument("--check", action="store_true", help="validate the configuration and start nothing")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Run, or only check."""
        try:
            code = self._check() if options["check"] else self._run(dev=options["dev"])
        except (ConfigError, DamagedError) as error:
            self._refuse([str(error)])
        except ImproperlyConfigured as error:
            self._refuse([" ".join(str(error).split())])
        sys.exit(code)

    def _check(self) -> int:
        from engine.preflight import check

        web = WebConfig.from_env(os.environ)
        problems = web_problems(web, os.environ) + check(EngineConfig.from_env(os.environ))
        if problems:
            self._refuse(problems)
        self.stdout.write("The configuration is valid.")
        return 0

    def _run(self, *, dev: bool) -> int:
        from cluster_app.runner import Runner

        with contextlib.ExitStack() as stack:
            lines = stack.enter_context(development(os.environ)) if dev else []
            web = WebConfig.from_env(os.environ)
            logs.configure(web.log_format, web.log_level, "stdout")
            problems = web_problems(web, os.environ, port_patience_s=LIMITS.port_patience_s)
            if problems:
                self._refuse(problems[:1])
            runner = Runner(EngineConfig.from_env(os.environ), web, os.environ)
            scheme = "https" if web.tls_cert_file else "http"
            for line in [*lines, f"admin: {scheme}://{web.bind}/admin/"] if dev else []:
                self.stdout.write(line)
            self.stdout.flush()
            return runner.run()

    def _refuse(self, problems: list[str]) -> NoReturn:
        for problem in problems:
            self.stderr.write(f"error: {problem}")
        self.stderr.flush()
        sys.exit(2)
