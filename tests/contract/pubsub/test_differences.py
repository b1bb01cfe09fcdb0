"""The table of differences names only cases that exist: a renamed test would leave a dead entry behind."""

from __future__ import annotations

from tests.contract.pubsub import (
    test_admin_contract,
    test_filter_contract,
    test_publish_contract,
)
from tests.contract.pubsub.differences import DIFFERENCES

CASES = {
    "test_bad_settings_are_refused": test_admin_contract.BAD_SETTINGS,
    "test_delivery_attempts_out_of_range_are_refused": {"4", "101"},
    "test_what_exceeds_a_limit_is_refused": test_publish_contract.LIMITS,
}


def test_every_difference_belongs_to_a_case() -> None:
    known = {
        name for module in (test_admin_contract, test_filter_contract, test_publish_contract) for name in vars(module)
    }
    for entry in DIFFERENCES:
        name, _, case = entry.removesuffix("]").partition("[")
        assert name in known, entry
        assert not case or case in CASES[name], entry
