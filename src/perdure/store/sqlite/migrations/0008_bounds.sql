-- Finding definitions that nothing uses, without reading all rows.

-- When it was last saved, or found to be in use by pruning.
ALTER TABLE {prefix}definitions ADD COLUMN used_at INTEGER NOT NULL DEFAULT 0;
-- The child flows, as a JSON list of name@version; NULL: unknown, look for the version in the data.
ALTER TABLE {prefix}definitions ADD COLUMN children TEXT;
-- A run was migrated to another version: its log still refers to this one. Unknown for those that
-- are stored already, or imported.
ALTER TABLE {prefix}definitions ADD COLUMN was_left INTEGER NOT NULL DEFAULT 1;

CREATE INDEX {prefix}definitions_used ON {prefix}definitions (namespace, used_at);

CREATE INDEX {prefix}runs_of_flows ON {prefix}runs (namespace, flow, version)
WHERE finished_at IS NOT NULL;
