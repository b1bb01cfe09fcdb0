"""`manage.py channels`: channels from a shell."""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import urlencode

from django.core.management.base import CommandParser

from scheduler_project.shell import USAGE, ApiCommand, channel_path

_COLUMNS: Final = {
    "ID": "id",
    "NAME": "name",
    "STATE": "state",
    "PENDING": "stats.pending",
    "QUARANTINED": "stats.quarantined",
    "NEXT DUE": "stats.next_due",
    "SUBSCRIPTION": "source.config.subscription_id",
    "TOPIC": "destination.config.topic_id",
}
_SIDES: Final = ("listen", "release", "both")


class Command(ApiCommand):
    """list, show, create, update, delete, pause, resume."""

    help = "Channels: list, show, create, update, delete, pause, resume."

    def add_arguments(self, parser: CommandParser) -> None:
        """One sub-command for each verb."""
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

        def verb(name: str, help_text: str, *, channel: bool = True) -> CommandParser:
            added: CommandParser = verbs.add_parser(name, help=help_text)
            self.add_api_arguments(added)
            if channel:
                added.add_argument("id", help="the channel's id")
            return added

        verb("list", "all channels", channel=False)
        verb("show", "one channel")
        create = verb("create", "a new channel, from a document or from options", channel=False)
        create.add_argument("--file", help="JSON document of the channel, - for standard input")
        create.add_argument("--id", help="its id; a random one without")
        create.add_argument("--name")
        create.add_argument("--project", help="project of both sides")
        create.add_argument("--subscription", help="where messages come from")
        create.add_argument("--topic", help="where messages go")
        self._add_settings(create)
        update = verb("update", "change parts of a channel")
        update.add_argument("--file", help="JSON merge patch, - for standard input")
        update.add_argument("--revision", type=int, help="only if this is its revision")
        self._add_settings(update)
        delete = verb("delete", "delete a channel")
        delete.add_argument("--pending", choices=("discard", "drain"), help="what happens to the messages it holds")
        delete.add_argument("--revision", type=int, help="only if this is its revision")
        pause = verb("pause", "stop a side or both")
        pause.add_argument("--side", choices=_SIDES, default="both")
        pause.add_argument("--until", help="RFC 3339 or seconds since the epoch")
        pause.add_argument("--reason", default="")
        verb("resume", "let a side or both go on").add_argument("--side", choices=_SIDES, default="both")

    @staticmethod
    def _add_settings(parser: CommandParser) -> None:
        parser.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="PATH=VALUE",
            help="a member by its path, such as policy.max_delay=30d; the value is JSON or, failing that, text",
        )

    def do_list(self, _options: dict[str, Any]) -> None:
        """All channels."""
        self.show_list(list(self.api.pages("/channels", {"page_size": "1000"})), _COLUMNS)

    def do_show(self, options: dict[str, Any]) -> None:
        """One channel."""
        self.show(self.api.call("GET", channel_path(options["id"])))

    def do_create(self, options: dict[str, Any]) -> None:
        """A new channel."""
        document = self.read_document(options["file"]) if options["file"] else {}
        if not isinstance(document, dict):
            self.fail(f"{options['file']} holds no JSON object", USAGE)
        for member in ("id", "name"):
            if options[member]:
                document[member] = options[member]
        if options["project"]:
            self._put(document, "source.config.project_id", options["project"])
            self._put(document, "destination.config.project_id", options["project"])
        if options["subscription"]:
            self._put(document, "source.config.subscription_id", options["subscription"])
        if options["topic"]:
            self._put(document, "destination.config.topic_id", options["topic"])
        self._apply(document, options["set"])
        for side in ("source", "destination"):
            if isinstance(document.get(side), dict):
                document[side].setdefault("driver", "pubsub")
        self.show(self.api.call("POST", "/channels", document))

    def do_update(self, options: dict[str, Any]) -> None:
        """Merge a patch."""
        patch = self.read_document(options["file"]) if options["file"] else {}
        if not isinstance(patch, dict):
            self.fail(f"{options['file']} holds no JSON object", USAGE)
        self._apply(patch, options["set"])
        if not patch:
            self.fail("nothing to change: give --file or --set", USAGE)
        self.show(self.api.call("PATCH", channel_path(options["id"]), patch, _if_match(options)))

    def do_delete(self, options: dict[str, Any]) -> None:
        """Delete, and say whether it is gone or closing."""
        query = "?" + urlencode({"pending": options["pending"]}) if options["pending"] else ""
        closing = self.api.call("DELETE", channel_path(options["id"]) + query, headers=_if_match(options))
        if closing is not None:
            self.show(closing)
        elif not self.json_output:
            self.stdout.write(f"{options['id']} is deleted.")

    def do_pause(self, options: dict[str, Any]) -> None:
        """Stop a side or both."""
        body = {"side": options["side"], "until": options["until"], "reason": options["reason"]}
        self.show(self.api.call("POST", channel_path(options["id"], "pause"), body))

    def do_resume(self, options: dict[str, Any]) -> None:
        """Let a side or both go on."""
        self.show(self.api.call("POST", channel_path(options["id"], "resume"), {"side": options["side"]}))

    def _apply(self, document: dict[str, Any], settings: list[str]) -> None:
        for setting in settings:
            path, equals, text = setting.partition("=")
            if not equals or not all(path.split(".")):
                self.fail(f"--set {setting!r}: allowed is PATH=VALUE, such as policy.max_delay=30d", USAGE)
            try:
                value = json.loads(text)
            except ValueError:
                value = text
            self._put(document, path, value)

    def _put(self, document: dict[str, Any], path: str, value: Any) -> None:
        *steps, last = path.split(".")
        for step in steps:
            document = document.setdefault(step, {})
            if not isinstance(document, dict):
                self.fail(f"{path}: {step} is no object", USAGE)
        document[last] = value


def _if_match(options: dict[str, Any]) -> dict[str, str]:
    return {} if options["revision"] is None else {"If-Match": f'"{options["revision"]}"'}
