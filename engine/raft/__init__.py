"""The replicated log: one ordered sequence of commands, the same on every member.

A tour, from the outside in:

* `log`       what everybody else sees: `Log`, `LogStatus`, `Role`, and the callbacks `Apply` and `Advance`
* `single`    `SingleMemberLog`: a cluster of one member, on a directory
* `memory`    `MemoryLog`: the same without a disk, with handles for tests
* `applying`  handing committed entries to the state in runs; `pending` who waits for which entry
* `journal`   one member's log on disk: append, sync in groups, read back, cut at either end
* `opening`   what counts when a directory is opened: torn tails, damage, what the state already holds
* `segments`  the files of a journal; `segment` one of them; `record` one entry in it
* `mark`      how far this member has said that it synced; `meta` its term, vote and names
* `tail`      the newest entries in memory; `terms` which entry has which term
* `files`     the few file operations beneath all this

`DESIGN.md` beside this file has the formats byte by byte and the reasons.
"""
