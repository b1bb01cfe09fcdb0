"""Where Google's emulator differs from the service and so from ours: test name (and case, in brackets) to reason.

Found with the emulator of gcloud's component pubsub-emulator, 0.8.20. A case in this table must fail against it.
"""

from __future__ import annotations

_NO_LIMIT = "Google's emulator does not check this limit of a Publish request"
_NO_RANGE = "Google's emulator does not check this range"

DIFFERENCES: dict[str, str] = {
    "test_a_topic_lives_from_create_to_delete": "it lists the subscriptions of a topic that does not exist, as none",
    "test_a_topic_can_be_updated": "it takes labels for an unknown field of a topic when they are to be updated",
    "test_a_detached_subscription_stays_and_delivers_nothing": "it does not implement DetachSubscription",
    "test_bad_settings_are_refused[deadline below 10 s]": _NO_RANGE,
    "test_bad_settings_are_refused[expiration below 1 d]": _NO_RANGE,
    "test_bad_settings_are_refused[filter that is none]": "it accepts any text as a filter",
    "test_delivery_attempts_out_of_range_are_refused[4]": _NO_RANGE,
    "test_delivery_attempts_out_of_range_are_refused[101]": _NO_RANGE,
    "test_a_subscription_gets_only_what_its_filter_matches": "it accepts a filter and then ignores it",
    **{
        f"test_what_exceeds_a_limit_is_refused[{case}]": _NO_LIMIT
        for case in (
            "101 attributes",
            "empty key",
            "key of 257 bytes",
            "more than 10,000,000 bytes",
            "ordering key of 1025 bytes",
            "reserved key",
            "two ordering keys",
            "value of 1025 bytes",
            "with and without ordering key",
        )
    },
}
