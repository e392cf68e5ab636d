COMMENT ON COLUMN {schema}.runs.number IS
'The number of the last event. A log that ends elsewhere is corrupt.';

-- The title of an approval is a text of users. It stays in the detail, which a codec may encrypt.
UPDATE {schema}.waits SET name = '' WHERE type = 'approval';

-- Of the last claim: whether its worker had no other job. A job that crashes a worker alone is to
-- blame. The crashes since its last progress are in its partition_key: [...]~crashes.alone
ALTER TABLE {schema}.jobs ADD COLUMN claimed_alone boolean NOT NULL DEFAULT false;
