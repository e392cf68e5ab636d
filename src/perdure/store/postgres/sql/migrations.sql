-- name: applied
SELECT version, name
FROM {schema}.migrations;

-- name: lock_migrations
SELECT pg_advisory_xact_lock(hashtextextended('perdure migrations ' || $1, 0));

-- name: schema_exists
-- Asked first, because CREATE SCHEMA IF NOT EXISTS needs the right to create even if it does.
SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1);

-- name: create_schema
CREATE SCHEMA {schema};

-- name: tables_present
SELECT tablename
FROM pg_catalog.pg_tables
WHERE schemaname = $1
  AND tablename = ANY ($2::text[]);

-- name: record_migration
INSERT INTO {schema}.migrations (version, name)
VALUES ($1, $2);
