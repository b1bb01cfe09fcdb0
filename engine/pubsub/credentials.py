"""Credentials of a channel: a key file, or what the machine offers (ADC, Workload Identity) through google-auth."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import google.auth
from google.auth import aws, identity_pool, impersonated_credentials
from google.auth import exceptions as auth
from google.auth.transport.requests import Request
from google.oauth2 import credentials as oauth2
from google.oauth2 import service_account

from engine.pubsub.errors import KeyFileError

SCOPES: Final = ("https://www.googleapis.com/auth/pubsub",)
KEY_FILE_BYTES_MAX: Final = 1 << 20
"""Key files have two or three KiB; whatever is larger is none."""


def key_file_path(key_file: str | None, key_files_dir: Path | None) -> Path | None:
    """Where the key file of a channel is; None for the machine's own credentials.

    With `KEY_FILES_DIR` set a channel may only name a file inside it: who may edit channels may not read other files.
    """
    if not key_file:
        return None
    if key_files_dir is None:
        return Path(key_file)
    if key_file in {".", ".."} or "/" in key_file or "\0" in key_file:
        raise KeyFileError(
            f"The key file {key_file!r} is not allowed: KEY_FILES_DIR is set, so key_file must be a plain file name "
            f"inside {key_files_dir}."
        )
    return key_files_dir / key_file


def machine_key_file() -> Path | None:
    """The file that the machine's own credentials come from, where they come from one."""
    named = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    return Path(named) if named else None


def read_key_file(path: Path) -> bytes:
    """Content of a key file; raises KeyFileError with a sentence."""
    try:
        with path.open("rb") as file:
            content = file.read(KEY_FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise KeyFileError(f"The key file {path} is missing: put it there, or correct key_file.") from None
    except IsADirectoryError:
        raise KeyFileError(f"The key file {path} is a directory: name a file in it.") from None
    except PermissionError:
        raise KeyFileError(f"The key file {path} may not be read: let the scheduler's user read it.") from None
    except (OSError, ValueError) as error:
        raise KeyFileError(f"The key file {path} cannot be read: {error}.") from error
    if len(content) > KEY_FILE_BYTES_MAX:
        raise KeyFileError(f"The key file {path} is larger than {KEY_FILE_BYTES_MAX} bytes: that is no key.")
    return content


def digest(content: bytes) -> str:
    """Identity of a key file's content."""
    return hashlib.sha256(content).hexdigest()


def load_key(content: bytes, path: Path) -> Any:
    """Credentials of a key file's content; raises KeyFileError with a sentence."""
    try:
        document = json.loads(content)
    except ValueError as error:
        raise KeyFileError(f"The key file {path} is not JSON ({error}): download the key again.") from error
    kind = document.get("type") if isinstance(document, dict) else None
    load = _LOADERS.get(kind) if isinstance(kind, str) else None
    if load is None:
        raise KeyFileError(
            f"The key file {path} has the type {kind!r}: it must be the JSON key of a service account "
            f"(or one of {', '.join(sorted(_LOADERS))})."
        )
    try:
        return load(document)
    except (auth.GoogleAuthError, ValueError, KeyError, TypeError, AttributeError) as error:
        text = " ".join(str(error).split())[:200]
        raise KeyFileError(f"The key file {path} is not a usable key: {text}. Download the key again.") from error


def _service_account(document: dict[str, Any]) -> Any:
    from_info: Any = service_account.Credentials.from_service_account_info
    return from_info(document, scopes=SCOPES)


def _authorized_user(document: dict[str, Any]) -> Any:
    from_info: Any = oauth2.Credentials.from_authorized_user_info
    return from_info(document, scopes=SCOPES)


def _external_account(document: dict[str, Any]) -> Any:
    source = document.get("credential_source") or {}
    module: Any = aws if str(source.get("environment_id", "")).startswith("aws") else identity_pool
    return module.Credentials.from_info(document, scopes=SCOPES)


def _impersonated(document: dict[str, Any]) -> Any:
    from_info: Any = impersonated_credentials.Credentials.from_impersonated_service_account_info
    return from_info(document, scopes=SCOPES)


_LOADERS: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    "service_account": _service_account,
    "authorized_user": _authorized_user,
    "external_account": _external_account,
    "impersonated_service_account": _impersonated,
}


def key_file_problem(key_file: str, key_files_dir: Path | None) -> str | None:
    """What keeps a key file from being used, as a sentence; None when it is fine. Asks nobody but the disk."""
    try:
        path = key_file_path(key_file, key_files_dir)
        if path is not None:
            load_key(read_key_file(path), path)
    except KeyFileError as error:
        return str(error)
    return None


def machine_credentials() -> Any:
    """Application Default Credentials; may ask the metadata server, so it can take seconds."""
    credentials, _project = google.auth.default(scopes=SCOPES)
    return credentials


def try_local_token(credentials: Any) -> None:
    """Fetch a token if the key's token endpoint is on this machine, that is, a double.

    An emulator takes no credentials, and no token of a real key is fetched for one; but a key with a local endpoint was
    made to try what a refused key does, so it shall do it.
    """
    host = urlsplit(str(getattr(credentials, "_token_uri", "") or "")).hostname or ""
    if _is_loopback(host):
        credentials.refresh(Request())


def _is_loopback(host: str) -> bool:
    """Whether a host name is this machine's."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
