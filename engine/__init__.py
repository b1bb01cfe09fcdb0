"""The relay: holds Pub/Sub messages on a replicated log and publishes each at its time.

A tour, from the nouns at the bottom to the node at the top:

* `errors`, `clock`, `config`, `metrics` know nothing of the rest: what can go wrong, what time it is, every limit,
  every figure.
* `model` has the nouns (channel, policy, message), `documents` their JSON shape, `due` the grammar of `available_at`,
  `commands` the verbs and their versioned codec.
* `state` is what every replica holds: `machine` applies commands, `store` keeps the result in one SQLite file,
  `timeline` knows what is due next.
* `raft` is the replicated log: journal, group commit, the order of all commands.
* `pubsub` is the only place that speaks Google's libraries: a source to receive from, a sink to publish to.
* `listener` (pull, accept, ack) and `releaser` (due, publish, confirm) are the two flows that only a leader runs.
* `control` answers the local control socket; `client` is the one door for everyone else.
* `node` builds all of it, starts it and stops it, in that order.
* `emulator` is a Pub/Sub of its own for development and tests; nothing above needs it.

The engine is plain Python: it imports neither Django nor the apps, and import-linter holds it to that.
"""
