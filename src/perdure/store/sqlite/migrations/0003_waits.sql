-- Waits for people and for others outside. A check cannot be changed in place, so the table is made
-- anew, and begins with the run: one that is looked for in all namespaces is found by its id.

CREATE TABLE {prefix}waits_anew (
    run_id    TEXT    NOT NULL,
    namespace TEXT    NOT NULL,
    key       TEXT    NOT NULL,
    kind      TEXT    NOT NULL CHECK (kind IN ('timer', 'signal', 'child', 'outside', 'approval')),
    name      TEXT    NOT NULL,
    opened_at INTEGER NOT NULL,
    due_at    INTEGER,
    is_held   INTEGER NOT NULL DEFAULT 0,
    -- In whose inbox it is: a list, as JSON.
    deciders  TEXT    NOT NULL DEFAULT '[]',
    detail    BLOB    NOT NULL DEFAULT x'',
    PRIMARY KEY (run_id, namespace, key)
) WITHOUT ROWID;

INSERT INTO {prefix}waits_anew (
    run_id, namespace, key, kind, name, opened_at, due_at, is_held
)
SELECT run_id, namespace, key, kind, name, opened_at, due_at, is_held
FROM {prefix}waits;

DROP TABLE {prefix}waits;

ALTER TABLE {prefix}waits_anew RENAME TO {prefix}waits;

CREATE INDEX {prefix}waits_due ON {prefix}waits (namespace, due_at)
WHERE due_at IS NOT NULL AND is_held = 0;

-- Who waits for a signal of a name; the kind is there so that no row need be read to list them.
-- Timers and children, which are most, are in neither of these indexes.
CREATE INDEX {prefix}waits_signals ON {prefix}waits (name, namespace, opened_at, run_id, key, kind)
WHERE kind = 'signal';

-- What people and others outside were asked, the longest open first. A page of an inbox goes
-- through it until it is full, which is why it says who decides: among 100,000 approvals the page of
-- somebody who has none took 70 ms, and 420 ms where the rows had to be read for it.
CREATE INDEX {prefix}waits_asking
ON {prefix}waits (kind, namespace, opened_at, run_id, key, deciders)
WHERE kind IN ('outside', 'approval');
