"""gunicorn's configuration: a fixed, small number of workers, on a leash to the node that started them.

Loaded by name (``-c python:scheduler_project.gunicorn``) in gunicorn's own process, which the node executes and never
forks from its threads. When the node dies, by whatever signal, the kernel ends the arbiter and the workers with it.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from scheduler_project import logs
from scheduler_project.env import NODE_PID, WebConfig
from scheduler_project.limits import LIMITS

_PR_SET_PDEATHSIG: Final = 1
_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - the heartbeat's files are nameless there.


def _die_with(parent_pid: int) -> None:
    """Ask the kernel to end this process when its parent ends; leave at once if that has happened already."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent_pid:
        sys.exit(1)


def _heartbeat_directory(storage_path: Path) -> str:
    """Where workers touch their heartbeat files: in memory, since a slow disk must not look like a hung worker."""
    try:
        with tempfile.TemporaryFile(dir=_SHARED_MEMORY):
            return str(_SHARED_MEMORY)
    except OSError:
        directory = storage_path / "web"
        directory.mkdir(parents=True, exist_ok=True)
        return str(directory)


if NODE_PID in os.environ:
    _die_with(int(os.environ[NODE_PID]))

_config = WebConfig.from_env(os.environ)
_verbose = _config.log_level in ("trace", "debug")
logs.configure(_config.log_format, _config.log_level, "stdout")

bind = _config.bind
certfile = str(_config.tls_cert_file) if _config.tls_cert_file else None
keyfile = str(_config.tls_key_file) if _config.tls_key_file else None
workers = LIMITS.workers
worker_class = "scheduler_project.worker.ProbeFirstWorker"
threads = LIMITS.threads
worker_connections = LIMITS.connections
keepalive = LIMITS.keepalive_s
timeout = LIMITS.worker_timeout_s
graceful_timeout = max(math.floor(_config.shutdown_grace_s * LIMITS.web_stop_share), 1)
max_requests = LIMITS.worker_requests_max
max_requests_jitter = LIMITS.worker_requests_max // 10
worker_tmp_dir = _heartbeat_directory(_config.storage_path)
control_socket_disable = True
preload_app = False
# Proxies are TRUSTED_PROXIES' affair, in `scheduler_project.edge`.
forwarded_allow_ips = ""
proc_name = "event-scheduler-web"
errorlog = "-"
accesslog = "-" if _verbose else None
loglevel = "debug" if _verbose else "info"
logconfig_dict = logs.dict_config(_config.log_format, _config.log_level, "stdout")


def post_fork(_arbiter: Any, worker: Any) -> None:
    """A worker dies with its arbiter."""
    _die_with(worker.ppid)
