"""The SQLite schema, as a list of migrations. The first n scripts make version n.

A script, once released, is never edited: a change is one more script. The version is the file's `user_version`;
`application_id` marks the file as one of this project. Scripts may call `headwater_seal` (see `row_checksum`).
"""

from __future__ import annotations

from typing import Final

APPLICATION_ID: Final = 0x48574154  # "HWAT"

MIGRATIONS: Final[tuple[str, ...]] = (
    """
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID, STRICT;

    -- One row per accepted frame; seq is the first of its commits.
    CREATE TABLE log (
        seq INTEGER PRIMARY KEY, count INTEGER NOT NULL, session INTEGER NOT NULL,
        local_seq INTEGER NOT NULL, local_last INTEGER NOT NULL, branch INTEGER NOT NULL,
        at_us INTEGER NOT NULL, chain INTEGER NOT NULL, body BLOB NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX log_by_session ON log (session, local_seq);

    CREATE TABLE documents (doc INTEGER PRIMARY KEY, scope TEXT NOT NULL, id TEXT NOT NULL) STRICT;
    CREATE UNIQUE INDEX documents_by_key ON documents (scope, id);

    CREATE TABLE heads (
        branch INTEGER NOT NULL, doc INTEGER NOT NULL, seq INTEGER NOT NULL, base_seq INTEGER NOT NULL,
        base_bytes INTEGER NOT NULL, patches INTEGER NOT NULL, patch_bytes INTEGER NOT NULL,
        ordinal INTEGER NOT NULL, PRIMARY KEY (branch, doc)
    ) WITHOUT ROWID, STRICT;

    CREATE TABLE snapshots (
        branch INTEGER NOT NULL, doc INTEGER NOT NULL, seq INTEGER NOT NULL, ordinal INTEGER NOT NULL,
        present INTEGER NOT NULL, body BLOB NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX snapshots_by_seq ON snapshots (branch, doc, seq, ordinal);

    CREATE TABLE marks (
        branch INTEGER NOT NULL, doc INTEGER NOT NULL, seq INTEGER NOT NULL, body BLOB NOT NULL,
        PRIMARY KEY (branch, doc)
    ) WITHOUT ROWID, STRICT;

    CREATE TABLE branches (
        branch INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, parent INTEGER NOT NULL,
        fork_seq INTEGER NOT NULL, created_us INTEGER NOT NULL, deleted INTEGER NOT NULL,
        merged_seq INTEGER NOT NULL
    ) STRICT;

    CREATE TABLE sessions (
        session INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, principal TEXT NOT NULL,
        opened_us INTEGER NOT NULL, closed INTEGER NOT NULL, judged INTEGER NOT NULL,
        resume TEXT NOT NULL, acked INTEGER NOT NULL
    ) STRICT;

    CREATE TABLE events (
        id TEXT PRIMARY KEY, seq INTEGER NOT NULL, stream TEXT NOT NULL, due_us INTEGER NOT NULL,
        payload BLOB NOT NULL
    ) WITHOUT ROWID, STRICT;
    CREATE INDEX events_by_seq ON events (seq, id);

    CREATE TABLE records (
        topic TEXT NOT NULL, seq INTEGER NOT NULL, ordinal INTEGER NOT NULL, key TEXT NOT NULL,
        payload BLOB NOT NULL, PRIMARY KEY (topic, seq, ordinal)
    ) WITHOUT ROWID, STRICT;

    CREATE TABLE leases (
        name TEXT PRIMARY KEY, token INTEGER NOT NULL, holder TEXT NOT NULL, until_us INTEGER NOT NULL
    ) WITHOUT ROWID, STRICT;
    """,
    """
    ALTER TABLE documents ADD COLUMN seal INTEGER NOT NULL DEFAULT 0; -- nothing else would tell that it was edited
    UPDATE documents SET seal=headwater_seal(doc, scope, id);
    ALTER TABLE sessions ADD COLUMN seal INTEGER NOT NULL DEFAULT 0;
    UPDATE sessions SET seal=headwater_seal(session, key, principal, opened_us, closed, resume, acked);
    """,
    """
    ALTER TABLE branches ADD COLUMN seal INTEGER NOT NULL DEFAULT 0;
    UPDATE branches SET seal=headwater_seal(branch, name, parent, fork_seq, created_us, deleted, merged_seq);
    ALTER TABLE marks ADD COLUMN seal INTEGER NOT NULL DEFAULT 0;
    UPDATE marks SET seal=headwater_seal(branch, doc, seq, body);
    ALTER TABLE leases ADD COLUMN seal INTEGER NOT NULL DEFAULT 0;
    UPDATE leases SET seal=headwater_seal(name, token, holder, until_us);
    ALTER TABLE events ADD COLUMN seal INTEGER NOT NULL DEFAULT 0;
    UPDATE events SET seal=headwater_seal(id, seq, stream, due_us, payload);
    ALTER TABLE records ADD COLUMN seal INTEGER NOT NULL DEFAULT 0;
    UPDATE records SET seal=headwater_seal(seq, ordinal, topic, key, payload);

    -- A session's seal now covers `judged`, too. One that was broken stays broken.
    UPDATE sessions SET seal=headwater_seal(session, key, principal, opened_us, closed, judged, resume, acked)
        WHERE seal=headwater_seal(session, key, principal, opened_us, closed, resume, acked);

    -- A seal does not tell that a row is gone: how many there are, and what compaction kept.
    INSERT INTO meta SELECT 'branches_made', CAST(count(*) AS TEXT) FROM branches;
    INSERT INTO meta SELECT 'sessions_made', CAST(count(*) AS TEXT) FROM sessions;
    INSERT INTO meta SELECT 'leases_made', CAST(count(*) AS TEXT) FROM leases;
    INSERT INTO meta SELECT 'kept_sum', CAST(
        (SELECT coalesce(sum(headwater_seal(seq, count, session, local_seq, local_last, branch, at_us, chain, body)), 0)
            FROM log WHERE seq < line)
        + (SELECT coalesce(sum(seal), 0) FROM events WHERE seq < line)
        + (SELECT coalesce(sum(seal), 0) FROM records WHERE seq < line) AS TEXT)
        FROM (SELECT coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key='compacted_seq'), 0) AS line);
    """,
    """
    ALTER TABLE heads ADD COLUMN seal INTEGER NOT NULL DEFAULT 0;
    UPDATE heads SET seal=headwater_seal(branch, doc, seq, base_seq, base_bytes, patches, patch_bytes, ordinal);
    ALTER TABLE snapshots ADD COLUMN seal INTEGER NOT NULL DEFAULT 0; -- what is in its body leaves out the ordinal
    UPDATE snapshots SET seal=headwater_seal(branch, doc, seq, ordinal, present, body);

    -- Every key is there from the beginning, so that one that is gone is missed.
    INSERT OR IGNORE INTO meta VALUES ('heads_seq', '0'), ('compacted_seq', '1'), ('compacted_chain', '0');
    INSERT INTO meta SELECT 'documents_made', CAST(count(*) AS TEXT) FROM documents;
    INSERT INTO meta SELECT 'snapshots_made', CAST(count(*) AS TEXT) FROM snapshots;
    INSERT INTO meta SELECT 'marks_made', CAST(count(*) AS TEXT) FROM marks;
    ALTER TABLE meta ADD COLUMN seal INTEGER NOT NULL DEFAULT 0;
    UPDATE meta SET seal=headwater_seal(key, value);
    """,
    """
    ALTER TABLE events ADD COLUMN branch INTEGER NOT NULL DEFAULT 1; -- if that is not known any more, the main one
    ALTER TABLE events ADD COLUMN stored_us INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE events ADD COLUMN session INTEGER NOT NULL DEFAULT 0;
    UPDATE events SET (branch, stored_us, session) = (
        SELECT CASE WHEN events.seq < seq + count THEN branch ELSE 1 END,
            CASE WHEN events.seq < seq + count THEN at_us ELSE 0 END,
            CASE WHEN events.seq < seq + count THEN session ELSE 0 END
        FROM log WHERE seq <= events.seq ORDER BY seq DESC LIMIT 1)
        WHERE EXISTS (SELECT 1 FROM log WHERE seq <= events.seq);
    CREATE INDEX events_by_branch ON events (branch, seq, id, due_us);
    CREATE INDEX events_by_due ON events (branch, due_us);

    -- A deleted branch has no events, and a seal covers the new columns. What was edited or is missing stays so.
    UPDATE meta SET (value, seal) = (
        SELECT CAST(held AS TEXT), headwater_seal('kept_sum', CAST(held AS TEXT)) FROM (
            SELECT CAST(meta.value AS INTEGER) + coalesce(sum(
                CASE WHEN branch IN (SELECT branch FROM branches WHERE deleted) THEN 0
                ELSE headwater_seal(id, seq, stream, due_us, payload, branch, stored_us, session) END - seal), 0) held
            FROM events WHERE seal=headwater_seal(id, seq, stream, due_us, payload)
                AND seq < (SELECT CAST(value AS INTEGER) FROM meta WHERE key='compacted_seq')))
        WHERE key='kept_sum' AND seal=headwater_seal(key, value);
    DELETE FROM events WHERE branch IN (SELECT branch FROM branches WHERE deleted);
    UPDATE events SET seal=headwater_seal(id, seq, stream, due_us, payload, branch, stored_us, session)
        WHERE seal=headwater_seal(id, seq, stream, due_us, payload);

    -- What nodes last did; texts that many of them share are numbered.
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

    -- Which documents a piece of another space reads.
    CREATE TABLE mirrors (
        branch INTEGER NOT NULL, owner INTEGER NOT NULL, piece INTEGER NOT NULL, body BLOB NOT NULL,
        seal INTEGER NOT NULL, PRIMARY KEY (branch, owner, piece)
    ) WITHOUT ROWID, STRICT;
    INSERT INTO meta SELECT key, '0', headwater_seal(key, '0') FROM (SELECT 'names_made' AS key UNION
        SELECT 'observations_made' UNION SELECT 'readers_made' UNION SELECT 'mirrors_made');
    """,
    """
    ALTER TABLE records ADD COLUMN source TEXT NOT NULL DEFAULT ''; -- who emitted it
    ALTER TABLE records ADD COLUMN branch INTEGER NOT NULL DEFAULT 1; -- if that is not known any more, the main one
    ALTER TABLE records ADD COLUMN emitted_us INTEGER NOT NULL DEFAULT 0;
    UPDATE records SET (branch, emitted_us) = (
        SELECT CASE WHEN records.seq < seq + count THEN branch ELSE 1 END,
            CASE WHEN records.seq < seq + count THEN at_us ELSE 0 END
        FROM log WHERE seq <= records.seq ORDER BY seq DESC LIMIT 1)
        WHERE EXISTS (SELECT 1 FROM log WHERE seq <= records.seq);
    CREATE INDEX records_by_key ON records (topic, branch, key, seq, ordinal);

    -- A seal covers the new columns. What was edited or is missing stays so.
    UPDATE meta SET (value, seal) = (
        SELECT CAST(held AS TEXT), headwater_seal('kept_sum', CAST(held AS TEXT)) FROM (
            SELECT CAST(meta.value AS INTEGER) + coalesce(sum(
                headwater_seal(seq, ordinal, topic, key, payload, source, branch, emitted_us) - seal), 0) held
            FROM records WHERE seal=headwater_seal(seq, ordinal, topic, key, payload)
                AND seq < (SELECT CAST(value AS INTEGER) FROM meta WHERE key='compacted_seq')))
        WHERE key='kept_sum' AND seal=headwater_seal(key, value);
    UPDATE records SET seal=headwater_seal(seq, ordinal, topic, key, payload, source, branch, emitted_us)
        WHERE seal=headwater_seal(seq, ordinal, topic, key, payload);

    -- Which reaction wants the records of which topic, from where on, and how far the earlier ones were looked through.
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
    INSERT INTO meta SELECT key, '0', headwater_seal(key, '0') FROM (SELECT 'subscriptions_made' AS key UNION
        SELECT 'targets_made' UNION SELECT 'parked_made' UNION SELECT 'attempts_made' UNION SELECT 'claims_epoch');
    """,
    "",  # Commits may declare reactions. Rows of before lack that, and are read as they are.
    # Only targets are leased.
    """
    DROP TABLE leases;
    DELETE FROM meta WHERE key='leases_made';
    """,
)
