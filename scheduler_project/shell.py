"""The REST API from a shell: what the commands `channels`, `messages` and `cluster` share.

Exit codes: 0 ok, 1 error, 2 wrong usage or configuration, 3 partial success, 4 not authorised.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import quote, urlencode, urlsplit

from django.core.management.base import BaseCommand, CommandParser

from engine.errors import ConfigError
from scheduler_project.env import WebConfig, is_loopback
from scheduler_project.secret import Secret

ERROR, USAGE, PARTIAL, NOT_AUTHORISED = 1, 2, 3, 4
_TIMEOUT_S: Final = 30.0
_WILDCARDS: Final = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to


class Refused(Exception):
    """The API's answer is an error, or there is none."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.code = code


class Api:
    """Calls to one node's REST API."""

    def __init__(self, url: str, token: str | None, ca_file: str | None = None) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"--api={url!r}: allowed is an address such as http://127.0.0.1:5569")
        self._url = f"{parts.scheme}://{parts.netloc}"
        self._prefix = parts.path.rstrip("/")
        self._parts = parts
        self._token = token
        self._ca_file = ca_file

    def call(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        """The answer's document; None where there is none. Refused for everything else."""
        sent = {"Accept": "application/json", **(headers or {})}
        if body is not None:
            sent["Content-Type"] = "application/json"
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        connection = self._connection()
        try:
            connection.request(method, self._prefix + path, None if body is None else json.dumps(body), sent)
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise Refused(f"{self._url} does not answer: {error}", ERROR) from error
        finally:
            connection.close()
        if response.status >= 400:
            raise _refusal(response.status, content)
        return json.loads(content) if content else None

    def pages(self, path: str, parameters: Mapping[str, str], limit: int | None = None) -> Iterator[Any]:
        """The entries of a list, page by page, at most `limit`."""
        given = 0
        following: str | None = f"{path}?{urlencode(parameters)}" if parameters else path
        while following is not None:
            answer = self.call("GET", following)
            for entry in answer["results"]:
                if limit is not None and given >= limit:
                    return
                given += 1
                yield entry
            link = answer["next"]
            following = None if link is None else f"{path}?{urlsplit(link).query}"

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "http":
            return http.client.HTTPConnection(host, port or 80, timeout=_TIMEOUT_S)
        context = ssl.create_default_context(cafile=self._ca_file)
        # On this machine the certificate's name is seldom the loopback address; who listens there is us.
        context.check_hostname = not is_loopback(host)
        return http.client.HTTPSConnection(host, port or 443, timeout=_TIMEOUT_S, context=context)


class ApiCommand(BaseCommand):
    """Base of the commands: sub-commands, one method `do_<name>` each, a table or JSON as output."""

    requires_system_checks: list[str] = []  # noqa: RUF012 - Django's own attribute
    json_output = False
    api: Api

    def add_api_arguments(self, parser: CommandParser) -> None:
        """Where the API is, and how the answer is printed."""
        parser.add_argument("--api", help="address of a node's API (default: this node's, from API_HOST and API_PORT)")
        parser.add_argument("--token-file", help="file with the bearer token (default: API_TOKEN or API_TOKEN_FILE)")
        parser.add_argument("--json", action="store_true", help="print JSON, for programs")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Run a sub-command; its refusal is a sentence and an exit code."""
        self.json_output = options["json"]
        self.api = _api(options["api"], options["token_file"])
        try:
            code = getattr(self, "do_" + options["verb"].replace("-", "_"))(options)
        except Refused as refused:
            self.fail(str(refused), refused.code)
        except BrokenPipeError:
            # Whoever read our output has seen enough; the interpreter must not trip over it at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(ERROR)
        sys.exit(code or 0)

    def fail(self, sentence: str, code: int) -> NoReturn:
        """End with a sentence."""
        self.stderr.write(f"error: {sentence}")
        sys.exit(code)

    def show(self, document: Any) -> None:
        """One document: as JSON, or its members one a line."""
        if self.json_output:
            self.stdout.write(json.dumps(document, ensure_ascii=False, indent=2))
            return
        rows = list(_flat(document))
        width = max((len(name) for name, _ in rows), default=0)
        for name, value in rows:
            self.stdout.write(f"{name:<{width}}  {value}")

    def show_list(self, documents: Sequence[Any], columns: Mapping[str, str]) -> None:
        """Many documents: JSON, or a table of `columns` (title → path in the document)."""
        if self.json_output:
            self.stdout.write(json.dumps(list(documents), ensure_ascii=False, indent=2))
            return
        lines = [list(columns), *([_cell(_at(document, path)) for path in columns.values()] for document in documents)]
        widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
        for line in lines:
            self.stdout.write("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())

    def read_document(self, path: str) -> Any:
        """The JSON document in a file, or on standard input for `-`."""
        try:
            return json.loads(sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            self.fail(f"{path}: {error.strerror}", USAGE)
        except ValueError as error:
            self.fail(f"{path} is not JSON: {error}", USAGE)


def channel_path(channel_id: str, *rest: str) -> str:
    """The address of a channel, or of something below it."""
    return "/".join(("/channels", *(quote(part, safe="") for part in (channel_id, *rest))))


def _api(url: str | None, token_file: str | None) -> Api:
    config = WebConfig.from_env(os.environ)
    tls = config.tls_cert_file is not None
    if url is None:
        host = "127.0.0.1" if config.api_host in _WILDCARDS else config.api_host
        url = f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{config.api_port}"
    environ = {"API_TOKEN_FILE": token_file} if token_file else os.environ
    return Api(url, Secret("API_TOKEN", environ).value(), str(config.tls_cert_file) if tls else None)


def _refusal(status: int, content: bytes) -> Refused:
    try:
        problem = json.loads(content)
        sentence = f"{problem['detail']} ({problem['reason']})"
        sentence += "".join(f"\n  {fault['pointer']}: {fault['detail']}" for fault in problem.get("errors", ()))
    except (ValueError, KeyError, TypeError):
        sentence = f"HTTP {status}: {content[:200].decode(errors='replace')}"
    return Refused(sentence, NOT_AUTHORISED if status in (401, 403) else ERROR)


def _flat(document: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(document, Mapping) and document:
        for name, value in document.items():
            yield from _flat(value, f"{prefix}.{name}" if prefix else str(name))
    elif isinstance(document, list) and any(isinstance(item, Mapping) for item in document):
        for place, item in enumerate(document):
            yield from _flat(item, f"{prefix}[{place}]")
    else:
        yield prefix, _cell(document)


def _at(document: Any, path: str) -> Any:
    for step in path.split("."):
        document = document.get(step) if isinstance(document, Mapping) else None
    return document


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
