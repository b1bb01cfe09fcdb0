"""`manage.py cluster`: the cluster from a shell."""

from __future__ import annotations

from typing import Any, Final

from django.core.management.base import CommandParser

from scheduler_project.shell import ApiCommand

_COLUMNS: Final = {
    "NODE": "node_addr",
    "STATE": "state",
    "APPLIED": "applied_index",
    "LAG": "lag",
    "API": "api_addr",
    "VERSION": "version",
    "LAST SEEN": "last_seen",
}


class Command(ApiCommand):
    """status."""

    help = "The cluster: status."

    def add_arguments(self, parser: CommandParser) -> None:
        """One sub-command for each verb."""
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        self.add_api_arguments(verbs.add_parser("status", help="who leads, and how each member does"))

    def do_status(self, _options: dict[str, Any]) -> None:
        """The cluster as this node sees it."""
        cluster = self.api.call("GET", "/cluster")
        if self.json_output:
            self.show(cluster)
            return
        self.show({name: value for name, value in cluster.items() if name != "nodes"})
        self.stdout.write("")
        self.show_list(cluster["nodes"], _COLUMNS)
