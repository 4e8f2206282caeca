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

-- name: applied_migrations
SELECT number, checksum FROM migration ORDER BY number

-- name: add_migration
INSERT INTO migration (number, checksum) VALUES ($1, $2)
