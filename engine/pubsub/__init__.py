"""Google Pub/Sub as the relay uses it: a source to receive from, a sink to publish to. Google's libraries end here.

A tour:

* `fields`, `schema`, `received`, `wire` are pure: messages as bytes. A response is split into columns in C, attributes
  are cut and appended without re-serialising, requests are built by concatenation.
* `errors` says what a failed call means: repeat, the channel is wrong, or this message is wrong.
* `credentials` and `connection` reach the service or an emulator, share connections and renew them when a key changes.
* `stream` is one StreamingPull call; `source` keeps one open for ever (`backoff`), and has its acks sent (`acks`,
  `failed_ids`, `timer`).
* `sink` starts Publish calls, each once and with a deadline.
* `check` tries a source or a destination and explains what fails.

DESIGN.md, beside this file, says why it is so and not built on the high-level client.
"""
