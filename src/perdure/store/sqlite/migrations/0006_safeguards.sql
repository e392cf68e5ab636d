-- Where the log of a run ends, as of its last change of status: a log that lost its last events is
-- noticed. Other steps do not write the row, so it may lag behind the log, never lead it.
ALTER TABLE {prefix}runs ADD COLUMN number INTEGER NOT NULL DEFAULT 0;

-- The title of an approval is a text of users. It stays in the detail, which a codec may encrypt.
UPDATE {prefix}waits SET name = '' WHERE type = 'approval';

-- Of the last claim: whether its worker had no other job. A job that crashes a worker alone is to
-- blame. The crashes since its last progress are in its partition_key: [...]~crashes.alone
ALTER TABLE {prefix}jobs ADD COLUMN claimed_alone INTEGER NOT NULL DEFAULT 0;
