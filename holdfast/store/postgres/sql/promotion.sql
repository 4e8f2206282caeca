-- A database that is filled from a file (filling.py, which puts the names in braces in).

-- name: lock_promotion
-- Also waits for a portion that a process which is gone had sent.
SELECT value FROM meta WHERE key = 'promotion' FOR UPDATE

-- name: keep_meta
INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value

-- name: forget_meta
DELETE FROM meta WHERE key = ANY ($1::text[])

-- name: living_nodes
SELECT name FROM node WHERE NOT over AND lease_until > clock_timestamp() ORDER BY name

-- name: join_as_former
-- Stands for the engine of the file: what it left open is claimed as after its end.
INSERT INTO node (name, no, lease_until, over, lane) VALUES ($1, 0, clock_timestamp(), true, $2) RETURNING epoch

-- name: forget_former
DELETE FROM node WHERE epoch = $1

-- name: columns_of
SELECT attname, format_type(atttypid, NULL) FROM pg_attribute
 WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum

-- name: numbered_columns
-- Columns whose numbers a sequence gives out.
SELECT c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
 WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND a.attidentity <> ''

-- name: journal_bytes
SELECT coalesce(sum(octet_length(body)), 0)::bigint FROM journal

-- name: is_table_used
SELECT EXISTS (SELECT 1 FROM "{table}")

-- name: count_table
SELECT count(*) FROM "{table}"

-- name: follow_numbers
-- The sequence goes on after the numbers of the file.
SELECT setval(pg_get_serial_sequence('"{table}"', '{column}'), max("{column}")) FROM "{table}" HAVING max("{column}") IS NOT NULL
