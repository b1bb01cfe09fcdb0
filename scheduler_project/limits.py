"""Every limit of the web side, by name, with its unit and reason; the engine's are in `engine.config`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WebLimits:
    """What one caller, one page and one process may use."""

    body_bytes_max: int = 15 * 1024 * 1024
    """A request's body: a 10 MB message in base64 and its attributes fit; below the control socket's frame limit."""
    page_size: int = 100
    """Entries of a page when the caller asks for none in particular."""
    page_size_max: int = 1000
    """A larger `page_size` is cut to this."""
    page_bytes_max: int = 16 * 1024 * 1024
    """Payload bytes read for one page; a page of large messages ends early, with a link to the next."""
    admin_page_size: int = 50
    """Rows of one page in the admin."""
    preview_bytes_max: int = 64 * 1024
    """Bytes of a message's body that the admin shows."""
    idempotency_key_max: int = 255
    """Characters of an Idempotency-Key."""
    read_time_limit_s: float = 5.0
    """A statement on state.db is interrupted after this long: a reader that goes on pins the write-ahead log."""
    busy_timeout_s: float = 2.0
    """How long a reader waits for SQLite's lock."""
    health_timeout_s: float = 2.0
    """A probe's call to the engine: an engine that answers no sooner is as good as stopped."""
    secret_check_s: float = 1.0
    """A watched file's time stamp is looked at no more often than this."""
    secret_bytes_max: int = 1024 * 1024
    """A secret or a list of users is never larger."""
    workers: int = 2
    """Processes of gunicorn: fixed, since a pod's cores are not the machine's."""
    threads: int = 4
    """Requests that one process serves at once."""
    probe_threads: int = 1
    """Threads of a process that serve the probes alone, so that busy ones never make a node look dead."""
    connections: int = 500
    """Connections that one process keeps open; more wait in the listen queue."""
    keepalive_s: int = 5
    """An idle connection is closed after this long."""
    worker_timeout_s: int = 60
    """A process whose loop has not moved for this long is replaced."""
    worker_requests_max: int = 20_000
    """A process is replaced after about this many requests, so that a slow leak never matters."""
    web_stop_share: float = 0.25
    """Part of SHUTDOWN_GRACE_SECONDS that the web side may take to finish its requests; the engine has the rest."""
    web_failures_max: int = 5
    """The node ends when the web side dies this often in a row."""
    web_backoff_min_s: float = 0.5
    web_backoff_max_s: float = 8.0
    """Time before the web side is started again, doubled at each failure."""
    web_healthy_s: float = 30.0
    """A web side that ran this long was healthy: its next death is the first of a row."""
    port_patience_s: float = 5.0
    """How long a starting node waits for a port that the last one's children may still hold."""
    tables_retry_s: float = 5.0
    """Time between attempts to make Django's own tables."""
    hurry_s: float = 2.0
    """What is left of a stop after a second signal."""


LIMITS = WebLimits()
