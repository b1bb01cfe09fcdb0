"""Everything that can go wrong at the engine's door, as one small tree.

::

    SchedulerError
    ├── ConfigError               the start is refused: exit code 2 and one sentence
    ├── DamagedError              files on disk are not what this node wrote: the start is refused
    ├── StorageError              a write or a sync failed: fail-stop
    └── RequestError              an answer to a caller; `reason` is stable, upper case
        ├── InvalidCommand        400, or 422 for an idempotency key that returns with another body
        ├── Unauthenticated       401
        ├── Forbidden             403
        ├── NotFound              404
        ├── Conflict              409
        ├── RevisionMismatch      412
        ├── LimitExceeded         413 / 429
        ├── Unavailable           503 + Retry-After: not submitted, safe to repeat
        │   ├── NoLeader
        │   ├── QueueFull
        │   └── TimedOutBeforeSubmit
        └── OutcomeUnknown        504: repeat with the same idempotency key

Inside the engine, expected refusals are return values (`commands.Rejected`); these exceptions appear at its door.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


class SchedulerError(Exception):
    """Base of every error that the engine raises on purpose."""


class ConfigError(SchedulerError):
    """The configuration cannot work; the message names the variable, its value and what is allowed."""


class DamagedError(SchedulerError):
    """A file of this node is damaged or not its own; the message names the file and what to do. Files are kept."""


class StorageError(SchedulerError):
    """The disk refused a write or a sync; what was being stored is not durable."""


@dataclass(frozen=True, slots=True)
class FieldError:
    """One fault in an input document."""

    pointer: str
    """RFC 6901 pointer to the field, e.g. `/source/config/project_id`."""
    detail: str
    """A sentence: the value and what is allowed."""


class RequestError(SchedulerError):
    """Base of the answers that a caller can act on."""

    reason: ClassVar[str] = "ERROR"
    retry_after_s: float | None = None

    def __init__(self, detail: str, *, reason: str | None = None, errors: tuple[FieldError, ...] = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = reason or self.reason
        self.errors = errors


class InvalidCommand(RequestError):
    """The request can never succeed as it stands; `errors` names each faulty field."""

    reason = "INVALID"


class Unauthenticated(RequestError):
    """No credential, or one that nobody knows."""

    reason = "UNAUTHENTICATED"


class Forbidden(RequestError):
    """The credential is known, but its role may not do this."""

    reason = "FORBIDDEN"


class NotFound(RequestError):
    """Nothing of that name is here."""

    reason = "NOT_FOUND"


class Conflict(RequestError):
    """The state does not allow it now; `code` says which rule."""

    reason = "CONFLICT"


class RevisionMismatch(RequestError):
    """The caller's expected revision is not the current one."""

    reason = "REVISION_MISMATCH"


class LimitExceeded(RequestError):
    """A limit of `engine.config` was hit; the detail names the limit."""

    reason = "LIMIT_EXCEEDED"


class Unavailable(RequestError):
    """Not submitted; the same request may be repeated after `retry_after_s`."""

    reason = "UNAVAILABLE"

    def __init__(self, detail: str, *, reason: str | None = None, retry_after_s: float = 1.0) -> None:
        super().__init__(detail, reason=reason)
        self.retry_after_s = retry_after_s


class NoLeader(Unavailable):
    """No node leads at the moment."""

    reason = "NO_LEADER"


class QueueFull(Unavailable):
    """The queue in front of the log is at its limit."""

    reason = "QUEUE_FULL"


class TimedOutBeforeSubmit(Unavailable):
    """The caller's deadline passed before the command was handed to the log."""

    reason = "TIMED_OUT_BEFORE_SUBMIT"


class OutcomeUnknown(RequestError):
    """Submitted, but the result was not learnt in time; repeat with the same idempotency key."""

    reason = "OUTCOME_UNKNOWN"
