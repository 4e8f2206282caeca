-- A file whose contents move to a server (moving.py, which puts the names in braces in).

-- name: tables_to_move
SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY 1;

-- name: order_of_table
SELECT group_concat('"' || name || '"') FROM (SELECT name FROM pragma_table_info(?) WHERE pk ORDER BY pk);

-- name: count_table
SELECT count(*) FROM "{table}";

-- name: rows_of_table
-- In the same order each time: nothing changes in a file that is being moved.
SELECT {values} FROM "{table}" ORDER BY {order} LIMIT -1 OFFSET :after;

-- name: journal_bytes
SELECT coalesce(sum(octet_length(body)), 0) FROM journal;

-- name: unread_mail_of_run
-- A part of rows_of_table.
(SELECT count(*) FROM mail m WHERE m.run = run.no)
