"""Django's SECRET_KEY: from the environment, else from the cluster, asked for when it is first needed.

Commands that sign nothing work without an engine. Both objects are read by Django at each signature, so a rotated
SECRET_KEY_FILE takes effect without a restart.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.errors import RequestError, Unavailable
from scheduler_project.secret import Secret


class SigningKey:
    """Stands where Django expects a string: signing takes `str()` of it, `check --deploy` looks at its characters."""

    def __init__(self, secret: Secret) -> None:
        self._secret = secret
        self._founded = ""

    def __str__(self) -> str:
        return self._secret.value() or self._from_cluster()

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(str(self))

    def __len__(self) -> int:
        return len(str(self))

    def startswith(self, prefix: str) -> bool:
        """As of a string."""
        return str(self).startswith(prefix)

    def _from_cluster(self) -> str:
        if not self._founded:
            from scheduler_project.client import get_client

            try:
                self._founded = get_client().secret_key()
            except RequestError as error:
                raise Unavailable(
                    f"SECRET_KEY is not set, and the engine has none yet ({error.detail}): set SECRET_KEY, or wait for"
                    " the cluster to be founded",
                    reason="NO_SECRET_KEY",
                ) from error
        return self._founded


class FallbackKeys(list[str]):
    """The former keys, still accepted: a list, as Django demands, whose content is the secret's at each look."""

    def __init__(self, secret: Secret) -> None:
        super().__init__()
        self._secret = secret

    def __iter__(self) -> Iterator[str]:
        return iter(self._secret.lines()[1:])

    def __len__(self) -> int:
        return max(len(self._secret.lines()) - 1, 0)
