-- name: append
-- Many rows to a statement. OR ROLLBACK: the default, ABORT, keeps a statement journal of every page it touches.
INSERT OR ROLLBACK INTO journal (run, seq, epoch, at, kind, body) VALUES (?, ?, ?, ?, ?, ?);

-- name: rows_of
SELECT seq, epoch, at, kind, body FROM journal WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?;

-- name: put_snapshot
INSERT OR REPLACE INTO snapshot (run, part, seq, body) VALUES (?, ?, ?, ?);

-- name: snapshot_of
SELECT part, seq, body FROM snapshot WHERE run = ? ORDER BY part;

-- name: put_blob
INSERT INTO blob (run, sha256, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING;

-- name: blob
SELECT body FROM blob WHERE run = ? AND sha256 = ?;

-- name: forget_run_journal
DELETE FROM journal WHERE run = ?;

-- name: forget_run_snapshot
DELETE FROM snapshot WHERE run = ?;

-- name: forget_run_blobs
DELETE FROM blob WHERE run = ?;

-- name: rows_with_blobs
-- Text inside a value has its quotes escaped, so this can only be a reference of ours.
SELECT run, body FROM journal WHERE instr(body, '{"$blob":"') > 0;

-- name: has_blob
SELECT 1 FROM blob WHERE run = ? AND sha256 = ?;
