-- name: append
-- Many rows to a statement. OR ROLLBACK: the default, ABORT, keeps a statement journal of every page it touches.
INSERT OR ROLLBACK INTO journal (run, seq, epoch, at, kind, body) VALUES (?, ?, ?, ?, ?, ?);

-- name: rows_of
SELECT seq, epoch, at, kind, body FROM journal WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?;

-- name: rows_to_load
-- What came after the newest snapshot of each. In the order of the index: to ask for it would sort what is sorted.
SELECT j.seq, j.epoch, j.at, j.kind, j.body, j.run
  FROM json_each(?) asked CROSS JOIN journal j
    ON j.run = asked.value AND j.seq > coalesce((SELECT seq FROM snapshot WHERE run = asked.value AND part = 0), 0);

-- name: committed
-- In the order of commits: one writer, so the order of rowids. CROSS JOIN: the journal is read first, by position.
SELECT j.pos, j.run, r.id, coalesce(s.workflow, ''), r.version, j.seq, j.epoch, j.at, j.kind, j.body
  FROM journal j CROSS JOIN run r ON r.no = j.run LEFT JOIN series s ON s.no = r.series
 WHERE j.pos > ? AND j.pos <= ? AND r.tenant = ? ORDER BY j.pos;

-- name: last_pos
SELECT coalesce(max(pos), 0) FROM journal;

-- name: feed_until
-- The last of so many rows after a position, whichever tenants they belong to.
SELECT max(pos) FROM (SELECT pos FROM journal WHERE pos > ? ORDER BY pos LIMIT ?);

-- name: last_row
SELECT seq, epoch, at, kind, body FROM journal WHERE run = ? ORDER BY seq DESC LIMIT 1;

-- name: rows_of_kind
SELECT body FROM journal WHERE run = ? AND kind = ? ORDER BY seq;

-- name: last_seq
SELECT coalesce(max(seq), 0) FROM journal WHERE run = ?;

-- name: put_snapshot
INSERT OR REPLACE INTO snapshot (run, part, seq, body) VALUES (?, ?, ?, ?);

-- name: snapshot_of
SELECT part, body FROM snapshot WHERE run = ? ORDER BY part;

-- name: put_blob
INSERT INTO blob (run, sha256, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING;

-- name: blob
SELECT body FROM blob WHERE run = ? AND sha256 = ?;

-- name: blob_head
-- The first bytes and the length: of a large value, only its first page is read.
SELECT CAST(substr(body, 1, ?3) AS BLOB), octet_length(body) FROM blob WHERE run = ?1 AND sha256 = ?2;

-- name: blob_bytes
SELECT octet_length(body) FROM blob WHERE run = ? AND sha256 = ?;

-- name: put_board
INSERT OR REPLACE INTO board (run, part, body) SELECT ?1, ?2, ?3 WHERE EXISTS (SELECT 1 FROM run WHERE no = ?1);

-- name: board_parts
SELECT part, body FROM board WHERE run = ? AND part IN (SELECT value FROM json_each(?));

-- name: runs_without_board
-- Of the newest runs, those with at least so many rows. A finished run may have only what was stored while it was open.
SELECT no FROM (SELECT no, finished_at FROM run ORDER BY no DESC LIMIT ?1) r
 WHERE EXISTS (SELECT 1 FROM journal WHERE run = r.no AND seq >= ?2)
   AND NOT EXISTS (SELECT 1 FROM board WHERE run = r.no AND (r.finished_at IS NULL OR part = 'head'));

-- name: forget_run_board
DELETE FROM board WHERE run = ?;

-- name: forget_run_journal
-- The newest row of all stays, empty and of no run, until there is a newer one: a position that was freed at the top
-- would be given out again, and a reader who goes on from it would miss what it tells then.
DELETE FROM journal WHERE run IN (?, 0) AND pos < (SELECT max(pos) FROM journal);

-- name: forget_run_newest_row
UPDATE journal SET run = 0, seq = pos, epoch = 0, at = 0, kind = '', body = '' WHERE run = ?;

-- name: forget_run_snapshot
DELETE FROM snapshot WHERE run = ?;

-- name: forget_run_blobs
DELETE FROM blob WHERE run = ?;

-- name: rows_with_blobs
-- Text inside a value has its quotes escaped, so this can only be a reference of ours.
SELECT run, body FROM journal WHERE instr(body, '{"$blob":"') > 0;

-- name: has_blob
SELECT 1 FROM blob WHERE run = ? AND sha256 = ?;

-- name: every_blob
SELECT run, sha256, body FROM blob;
