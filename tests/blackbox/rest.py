"""A REST caller without anything of ours below it: http.client and JSON."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Status, headers (lower-case names) and the decoded body: a document, text, or None."""

    status: int
    headers: Mapping[str, str]
    body: Any

    def ok(self, *statuses: int) -> Any:
        """The body, if the status is one of `statuses` (any 2xx when none are given)."""
        good = self.status in statuses if statuses else 200 <= self.status < 300
        assert good, f"answered {self.status}: {self.body}"
        return self.body


class Rest:
    """Calls to one node; a connection each, so that nothing is left open across a restart."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._host, self._port = host, port

    def call(
        self,
        method: str,
        path: str,
        document: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 15.0,
    ) -> Answer:
        """One request; OSError when nobody answers."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        sent = {"Accept": "application/json", **(headers or {})}
        body = None
        if document is not None:
            body = json.dumps(document).encode()
            sent["Content-Type"] = "application/json"
        try:
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            raw = response.read()
        except http.client.HTTPException as error:
            raise ConnectionError(f"{method} {path}: {error!r}") from error
        finally:
            connection.close()
        found = {name.lower(): value for name, value in response.getheaders()}
        text = raw.decode()
        decoded = json.loads(text) if text and "json" in found.get("content-type", "") else text or None
        return Answer(status=response.status, headers=found, body=decoded)

    def get(self, path: str, **more: Any) -> Answer:
        return self.call("GET", path, **more)

    def post(self, path: str, document: Any = None, **more: Any) -> Answer:
        return self.call("POST", path, document, **more)

    def patch(self, path: str, document: Any, **more: Any) -> Answer:
        return self.call("PATCH", path, document, **more)

    def delete(self, path: str, **more: Any) -> Answer:
        return self.call("DELETE", path, **more)

    def is_ready(self) -> bool:
        """Whether `/readyz` answers 200."""
        try:
            return self.get("/readyz", timeout_s=2.0).status == 200
        except OSError:
            return False
