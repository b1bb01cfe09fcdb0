"""The tables of state.db and the number of this format.

Django's unmanaged models and operators with `sqlite3` read these tables; only the engine writes them. Payloads stand
last, so that the short columns of a large row are found without walking through it.
"""

from __future__ import annotations

from typing import Final

FORMAT: Final = 1
"""Kept as `user_version` in the file's header, where it can be read without opening the database, and in `meta`."""
APPLICATION_ID: Final = 0x45535354
"""Marks the file as a state.db."""

TABLES: Final = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
    """CREATE TABLE channels (
        uid INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL,
        source_project_id TEXT NOT NULL, source_subscription_id TEXT NOT NULL,
        destination_project_id TEXT NOT NULL, destination_topic_id TEXT NOT NULL,
        closing TEXT, revision INTEGER NOT NULL, created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL,
        body BLOB NOT NULL, crc INTEGER NOT NULL)""",
    """CREATE TABLE messages (
        seq INTEGER PRIMARY KEY, channel_uid INTEGER NOT NULL, slot INTEGER NOT NULL, due_ms INTEGER NOT NULL,
        original_due_ms INTEGER NOT NULL, source_id TEXT NOT NULL, publish_us INTEGER NOT NULL,
        ordering_key TEXT NOT NULL, key TEXT, size INTEGER NOT NULL, accepted_ms INTEGER NOT NULL,
        attempts INTEGER NOT NULL, revision INTEGER NOT NULL, crc INTEGER NOT NULL, payload BLOB NOT NULL)""",
    "CREATE INDEX messages_due ON messages (channel_uid, slot, seq, due_ms)",
    """CREATE TABLE quarantine (
        seq INTEGER PRIMARY KEY, channel_uid INTEGER NOT NULL, due_ms INTEGER, source_id TEXT NOT NULL,
        publish_us INTEGER NOT NULL, ordering_key TEXT NOT NULL, key TEXT, size INTEGER NOT NULL,
        accepted_ms INTEGER NOT NULL, quarantined_ms INTEGER NOT NULL, code TEXT NOT NULL, reason TEXT NOT NULL,
        attempts INTEGER NOT NULL, revision INTEGER NOT NULL, crc INTEGER NOT NULL, payload BLOB NOT NULL)""",
    "CREATE INDEX quarantine_channel ON quarantine (channel_uid, seq)",
    """CREATE TABLE channel_stats (
        channel_uid INTEGER PRIMARY KEY, pending INTEGER NOT NULL, pending_bytes INTEGER NOT NULL,
        quarantined INTEGER NOT NULL, quarantined_bytes INTEGER NOT NULL, accepted INTEGER NOT NULL,
        released INTEGER NOT NULL, duplicates INTEGER NOT NULL, discarded INTEGER NOT NULL,
        stale_confirms INTEGER NOT NULL, body BLOB NOT NULL, crc INTEGER NOT NULL)""",
    "CREATE TABLE former_ids (id TEXT PRIMARY KEY, crc INTEGER NOT NULL) WITHOUT ROWID",
    """CREATE TABLE nodes (
        name TEXT PRIMARY KEY, addr TEXT NOT NULL, api_addr TEXT, version TEXT, crc INTEGER NOT NULL) WITHOUT ROWID""",
    "CREATE TABLE cluster (one INTEGER PRIMARY KEY CHECK (one = 1), body BLOB NOT NULL, crc INTEGER NOT NULL)",
    """CREATE TABLE seen (
        channel_uid INTEGER NOT NULL, minute INTEGER NOT NULL, part INTEGER NOT NULL, subscription TEXT NOT NULL,
        count INTEGER NOT NULL, crc INTEGER NOT NULL, hashes BLOB NOT NULL, ids BLOB NOT NULL,
        PRIMARY KEY (channel_uid, minute, part)) WITHOUT ROWID""",
    """CREATE TABLE results (
        request_id TEXT PRIMARY KEY, ordinal INTEGER NOT NULL, fingerprint TEXT NOT NULL,
        expires_ms INTEGER NOT NULL, answer BLOB NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID""",
)
