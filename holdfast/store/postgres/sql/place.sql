-- What the server and the database are, before anything else is asked of them.

-- name: settings
SELECT name, setting FROM pg_settings
 WHERE name IN ('server_version_num', 'fsync', 'synchronous_commit', 'full_page_writes', 'transaction_read_only',
                'statement_timeout')

-- name: is_standby
SELECT pg_is_in_recovery()

-- name: lock_schema
SELECT pg_advisory_xact_lock($1)

-- name: tables
-- Those of extensions are not of another program.
SELECT c.relname FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')
   AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e') ORDER BY 1

-- name: make_migrations
CREATE TABLE migration (number int PRIMARY KEY, checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())

-- name: last_xid
-- That of the last row of the journal, the one that a row written now would get, and by how much those are ahead of the server's.
WITH ahead AS (SELECT coalesce((SELECT convert_from(value, 'UTF8')::bigint FROM meta WHERE key = 'xid_ahead'), 0) AS n)
SELECT coalesce((SELECT xid::text::bigint FROM journal ORDER BY xid DESC LIMIT 1), 0),
       pg_current_xact_id()::text::bigint + n, n FROM ahead

-- name: set_xid_ahead
INSERT INTO meta (key, value) VALUES ('xid_ahead', convert_to($1::bigint::text, 'UTF8'))
    ON CONFLICT (key) DO UPDATE SET value = excluded.value

-- name: go_ahead
ALTER TABLE journal ALTER COLUMN xid SET DEFAULT ((pg_current_xact_id()::text::bigint + {ahead})::text::xid8)

-- name: applied_migrations
SELECT number, checksum FROM migration ORDER BY number

-- name: add_migration
INSERT INTO migration (number, checksum) VALUES ($1, $2)
