"""Remembered answers to idempotency keys, so that a request of unknown outcome can be repeated.

Stamps never go back, so the order of insertion is the order of expiry, and the oldest are forgotten first. The table is
capped: 100,000 keys in memory are about 60 MB.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice

from engine.commands import (
    REASON_KEY_REUSED,
    REASON_KEYS_FULL,
    Answer,
    Rejected,
    Request,
    decode_answer,
    encode_answer,
)
from engine.config import StateLimits
from engine.state.generation import Generation, Outcome


class Results:
    """Outcomes by idempotency key."""

    def __init__(self, limits: StateLimits) -> None:
        self._limits = limits
        self._outcomes: OrderedDict[str, Outcome] = OrderedDict()

    def __len__(self) -> int:
        return len(self._outcomes)

    def load(self, request_id: str, outcome: Outcome) -> None:
        """A stored outcome, while opening, in the order of `ordinal`."""
        self._outcomes[request_id] = outcome

    def recall(self, request: Request, stamp_ms: int, active: Generation) -> Answer | None:
        """The remembered answer or why there can be none; None if the request is to be carried out."""
        self._purge(stamp_ms, active)
        known = self._outcomes.get(request.request_id)
        if known is not None and known.expires_ms > stamp_ms:
            if known.fingerprint == request.fingerprint:
                return decode_answer(known.answer)
            return Rejected(
                REASON_KEY_REUSED, f"idempotency key {request.request_id!r} was used for another request before"
            )
        if len(self._outcomes) >= self._limits.results_max:
            return Rejected(
                REASON_KEYS_FULL,
                f"{self._limits.results_max} idempotency keys are remembered; the oldest is forgotten"
                f" {self._limits.result_window_ms // 1000} s after its use",
            )
        return None

    def remember(self, request: Request, index: int, stamp_ms: int, answer: Answer, active: Generation) -> None:
        """Keep the answer, refusals included: a repeated request is answered alike."""
        outcome = Outcome(
            ordinal=index,
            fingerprint=request.fingerprint,
            expires_ms=stamp_ms + self._limits.result_window_ms,
            answer=encode_answer(answer),
        )
        self._outcomes.pop(request.request_id, None)
        self._outcomes[request.request_id] = outcome
        active.results[request.request_id] = outcome

    def items(self) -> list[tuple[str, Outcome]]:
        """All outcomes, oldest first."""
        return list(self._outcomes.items())

    def _purge(self, stamp_ms: int, active: Generation) -> None:
        oldest = islice(self._outcomes.items(), self._limits.results_purged_max)
        for request_id in [name for name, outcome in oldest if outcome.expires_ms <= stamp_ms]:
            del self._outcomes[request_id]
            active.results[request_id] = None
