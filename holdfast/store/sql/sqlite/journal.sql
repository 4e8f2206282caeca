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
