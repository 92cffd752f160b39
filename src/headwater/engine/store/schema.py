"""The SQLite schema of a space's file, version 1.

`application_id` marks the file as one of this project; the schema version is its `user_version`. A change of a table,
or of the bytes in a column, is a new version, so that another Headwater refuses the file by name instead of calling it
damaged. The script calls `headwater_seal` (see `row_checksum`).
"""

from __future__ import annotations

from typing import Final

APPLICATION_ID: Final = 0x48575332  # "HWS2"
DRAFT_APPLICATION_IDS: Final = (0x48574154, 0x48574131, 0x48575331)
"""Marks of files with tables of before: "HWAT", made before the schema had version 1, "HWA1", with mirrors, and "HWS1",
with a commit for each result of a wave.
"""
SCHEMA_VERSION: Final = 1

SCHEMA: Final = """
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, seal INTEGER NOT NULL) WITHOUT ROWID, STRICT;

    -- One row per accepted frame; seq is the first of its commits.
    CREATE TABLE log (
        seq INTEGER PRIMARY KEY, count INTEGER NOT NULL, session INTEGER NOT NULL,
        local_seq INTEGER NOT NULL, local_last INTEGER NOT NULL, branch INTEGER NOT NULL,
        at_us INTEGER NOT NULL, chain INTEGER NOT NULL, body BLOB NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX log_by_session ON log (session, local_seq);

    CREATE TABLE documents (
        doc INTEGER PRIMARY KEY, scope TEXT NOT NULL, id TEXT NOT NULL, seal INTEGER NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX documents_by_key ON documents (scope, id);

    CREATE TABLE heads (
        branch INTEGER NOT NULL, doc INTEGER NOT NULL, seq INTEGER NOT NULL, base_seq INTEGER NOT NULL,
        base_bytes INTEGER NOT NULL, patches INTEGER NOT NULL, patch_bytes INTEGER NOT NULL,
        ordinal INTEGER NOT NULL, seal INTEGER NOT NULL, PRIMARY KEY (branch, doc)
    ) WITHOUT ROWID, STRICT;

    CREATE TABLE snapshots (
        branch INTEGER NOT NULL, doc INTEGER NOT NULL, seq INTEGER NOT NULL, ordinal INTEGER NOT NULL,
        present INTEGER NOT NULL, body BLOB NOT NULL, seal INTEGER NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX snapshots_by_seq ON snapshots (branch, doc, seq, ordinal);

    -- The write index of each document.
    CREATE TABLE marks (
        branch INTEGER NOT NULL, doc INTEGER NOT NULL, seq INTEGER NOT NULL, body BLOB NOT NULL,
        seal INTEGER NOT NULL, PRIMARY KEY (branch, doc)
    ) WITHOUT ROWID, STRICT;

    CREATE TABLE branches (
        branch INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, parent INTEGER NOT NULL,
        fork_seq INTEGER NOT NULL, created_us INTEGER NOT NULL, deleted INTEGER NOT NULL,
        merged_seq INTEGER NOT NULL, seal INTEGER NOT NULL
    ) STRICT;

    CREATE TABLE sessions (
        session INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, principal TEXT NOT NULL,
        opened_us INTEGER NOT NULL, closed INTEGER NOT NULL, judged INTEGER NOT NULL,
        resume TEXT NOT NULL, acked INTEGER NOT NULL, seal INTEGER NOT NULL
    ) STRICT;

    -- Stored events that have no receipt yet.
    CREATE TABLE events (
        id TEXT PRIMARY KEY, seq INTEGER NOT NULL, stream TEXT NOT NULL, due_us INTEGER NOT NULL,
        payload BLOB NOT NULL, seal INTEGER NOT NULL, branch INTEGER NOT NULL, stored_us INTEGER NOT NULL,
        session INTEGER NOT NULL
    ) WITHOUT ROWID, STRICT;
    CREATE INDEX events_by_seq ON events (seq, id);
    CREATE INDEX events_by_branch ON events (branch, seq, id, due_us);
    CREATE INDEX events_by_due ON events (branch, due_us);

    -- The records of topics. `source` names the piece that emitted a record.
    CREATE TABLE records (
        topic TEXT NOT NULL, seq INTEGER NOT NULL, ordinal INTEGER NOT NULL, key TEXT NOT NULL,
        payload BLOB NOT NULL, seal INTEGER NOT NULL, source TEXT NOT NULL, branch INTEGER NOT NULL,
        emitted_us INTEGER NOT NULL, PRIMARY KEY (topic, seq, ordinal)
    ) WITHOUT ROWID, STRICT;
    CREATE INDEX records_by_key ON records (topic, branch, key, seq, ordinal);

    -- The last run of each node. Texts that many nodes share are numbered in `names`.
    CREATE TABLE names (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, seal INTEGER NOT NULL) STRICT;
    CREATE TABLE observations (
        branch INTEGER NOT NULL, piece INTEGER NOT NULL, generation INTEGER NOT NULL, member INTEGER NOT NULL,
        child TEXT NOT NULL, scope INTEGER NOT NULL, state BLOB NOT NULL, body BLOB NOT NULL, seal INTEGER NOT NULL,
        PRIMARY KEY (branch, piece, generation, member, child, scope)
    ) WITHOUT ROWID, STRICT;

    -- How many nodes of a piece read a document; a negative number stands for one that was never written.
    CREATE TABLE readers (
        doc INTEGER NOT NULL, branch INTEGER NOT NULL, piece INTEGER NOT NULL, nodes INTEGER NOT NULL,
        seal INTEGER NOT NULL, PRIMARY KEY (doc, branch, piece)
    ) WITHOUT ROWID, STRICT;

    -- The reactions of each topic: from which record on, and how far the earlier records were searched.
    CREATE TABLE subscriptions (
        reaction INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, topic TEXT NOT NULL, state INTEGER NOT NULL,
        lane TEXT NOT NULL, priority INTEGER NOT NULL, start_seq INTEGER NOT NULL, start_ordinal INTEGER NOT NULL,
        cursor_seq INTEGER NOT NULL, cursor_ordinal INTEGER NOT NULL, until_seq INTEGER NOT NULL,
        made_us INTEGER NOT NULL, seal INTEGER NOT NULL
    ) STRICT;

    -- One reaction and one key: its position, and when it may be claimed. A lease is over when it is due again.
    CREATE TABLE targets (
        reaction INTEGER NOT NULL, key TEXT NOT NULL, seq INTEGER NOT NULL, ordinal INTEGER NOT NULL,
        state INTEGER NOT NULL, due_us INTEGER NOT NULL, attempt INTEGER NOT NULL, failures INTEGER NOT NULL,
        lost INTEGER NOT NULL, replays INTEGER NOT NULL, token INTEGER NOT NULL, holder TEXT NOT NULL,
        since_us INTEGER NOT NULL, began_us INTEGER NOT NULL, fingerprint TEXT NOT NULL, seal INTEGER NOT NULL,
        PRIMARY KEY (reaction, key)
    ) WITHOUT ROWID, STRICT;
    CREATE INDEX targets_by_due ON targets (reaction, due_us) WHERE due_us < 9007199254740991;
    CREATE INDEX targets_blocked ON targets (reaction, key) WHERE state = 3;

    -- Records that were passed over; some of them are to be tried again.
    CREATE TABLE parked (
        reaction INTEGER NOT NULL, key TEXT NOT NULL, seq INTEGER NOT NULL, ordinal INTEGER NOT NULL,
        state INTEGER NOT NULL, at_us INTEGER NOT NULL, fingerprint TEXT NOT NULL, seal INTEGER NOT NULL,
        PRIMARY KEY (reaction, key, seq, ordinal)
    ) WITHOUT ROWID, STRICT;

    -- Attempts that failed or were lost, of records that are not delivered; of each record the last so many.
    CREATE TABLE attempts (
        reaction INTEGER NOT NULL, key TEXT NOT NULL, seq INTEGER NOT NULL, ordinal INTEGER NOT NULL,
        slot INTEGER NOT NULL, attempt INTEGER NOT NULL, how INTEGER NOT NULL, began_us INTEGER NOT NULL,
        ended_us INTEGER NOT NULL, error TEXT NOT NULL, message TEXT NOT NULL, fingerprint TEXT NOT NULL,
        seal INTEGER NOT NULL, PRIMARY KEY (reaction, key, seq, ordinal, slot)
    ) WITHOUT ROWID, STRICT;

    -- Every key is there from the beginning, so that one that is gone is missed. The seal of a row does not tell that
    -- a row is gone: `..._made` counts the rows of each table, `kept_sum` adds up the rows that compaction kept.
    INSERT INTO meta SELECT key, value, headwater_seal(key, value) FROM (
        SELECT 'heads_seq' AS key, '0' AS value UNION ALL VALUES
        ('compacted_seq', '1'), ('compacted_chain', '0'), ('kept_sum', '0'), ('claims_epoch', '0'),
        ('documents_made', '0'), ('snapshots_made', '0'), ('marks_made', '0'), ('branches_made', '0'),
        ('sessions_made', '0'), ('names_made', '0'), ('observations_made', '0'), ('readers_made', '0'),
        ('subscriptions_made', '0'), ('targets_made', '0'), ('parked_made', '0'),
        ('attempts_made', '0')
    );
"""
