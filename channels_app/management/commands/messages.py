"""`manage.py messages`: messages from a shell."""

from __future__ import annotations

from typing import Any, Final

from django.core.management.base import CommandParser

from scheduler_project.shell import ApiCommand, channel_path

_COLUMNS: Final = {
    "DUE": "due",
    "ID": "id",
    "STATE": "state",
    "SIZE": "size",
    "ATTEMPTS": "attempts",
    "SOURCE MESSAGE": "source_message_id",
    "KEY": "key",
    "REASON": "reason",
}
_FILTERS: Final = ("state", "due_from", "due_to", "key", "source_message_id", "ordering_key")


class Command(ApiCommand):
    """list, show."""

    help = "Messages of a channel: list, show."

    def add_arguments(self, parser: CommandParser) -> None:
        """One sub-command for each verb."""
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        found = verbs.add_parser("list", help="the messages of a channel, soonest first")
        self.add_api_arguments(found)
        found.add_argument("channel", help="the channel's id")
        found.add_argument("--state", choices=("pending", "in_flight", "quarantined"))
        found.add_argument("--due-from", help="RFC 3339 or seconds since the epoch")
        found.add_argument("--due-to", help="RFC 3339 or seconds since the epoch, itself not included")
        found.add_argument("--key")
        found.add_argument("--source-message-id")
        found.add_argument("--ordering-key")
        found.add_argument("--limit", type=int, default=100, help="how many at most (%(default)s)")
        one = verbs.add_parser("show", help="one message, whole")
        self.add_api_arguments(one)
        one.add_argument("channel", help="the channel's id")
        one.add_argument("id", help="the message's id")

    def do_list(self, options: dict[str, Any]) -> None:
        """The messages that the filters leave."""
        parameters = {name: options[name] for name in _FILTERS if options[name]}
        parameters["page_size"] = str(max(min(options["limit"], 1000), 1))
        entries = self.api.pages(channel_path(options["channel"], "messages"), parameters, options["limit"])
        self.show_list(list(entries), _COLUMNS)

    def do_show(self, options: dict[str, Any]) -> None:
        """One message."""
        self.show(self.api.call("GET", channel_path(options["channel"], "messages", options["id"])))
