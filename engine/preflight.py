"""What can be known to be wrong before anything is started: `run_scheduler --check`."""

from __future__ import annotations

import os

from engine.config import EngineConfig
from engine.documents import Configuration, parse_channel
from engine.errors import ConfigError, InvalidCommand
from engine.pubsub.credentials import key_file_path, load_key, read_key_file
from engine.pubsub.errors import KeyFileError
from engine.storage import Storage


def default_channel(config: EngineConfig) -> Configuration | None:
    """The channel that the environment describes, if any; ConfigError when it is not valid."""
    if config.default_channel is None:
        return None
    try:
        return parse_channel(config.default_channel, bare_key_files=config.key_files_dir is not None)
    except InvalidCommand as error:
        sentence = "; ".join(f"{fault.pointer}: {fault.detail}" for fault in error.errors)
        raise ConfigError(
            f"PUBSUB_LISTENER_… and PUBSUB_PUBLISHER_… do not describe a valid channel: {sentence}"
        ) from error


def check(config: EngineConfig) -> list[str]:
    """Everything that would keep a node from working, as sentences; starts nothing and leaves nothing behind."""
    problems: list[str] = []
    try:
        default = default_channel(config)
    except ConfigError as error:
        default = None
        problems.append(str(error))
    problems.extend(_storage_problems(config))
    if default is not None:
        for config_side in (default.source.config, default.destination.config):
            try:
                path = key_file_path(config_side.key_file, config.key_files_dir)
                if path is not None:
                    load_key(read_key_file(path), path)
            except KeyFileError as error:
                problems.append(str(error))
    return problems


def _storage_problems(config: EngineConfig) -> list[str]:
    path = config.storage_path
    if path.exists():
        storage = Storage(path, config.limits.state)
        try:
            storage.open()
        except ConfigError as error:
            return [str(error)]
        finally:
            storage.close()
        return []
    parent = next(parent for parent in path.absolute().parents if parent.exists())
    if not os.access(parent, os.W_OK | os.X_OK):
        return [f"STORAGE_PATH={str(path)!r} does not exist and cannot be created in {str(parent)!r}"]
    return []
