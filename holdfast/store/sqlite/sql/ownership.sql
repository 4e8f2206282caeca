-- name: left_runs
-- Runs that a former incarnation of the engine drove and never released, in the order of their numbers.
SELECT no, epoch FROM run
 WHERE owner IS NOT NULL AND finished_at IS NULL AND owner_epoch < ? ORDER BY no LIMIT ?;

-- name: due_runs
-- Released runs whose time has come, the longest overdue first.
SELECT no, epoch FROM run
 WHERE owner IS NULL AND wake_at <= ? AND finished_at IS NULL
 ORDER BY wake_at LIMIT ?;

-- name: owner_of
SELECT owner, epoch FROM run WHERE no = ?;

-- name: sleeping_runs
SELECT no FROM run
 WHERE owner IS NULL AND wake_at IS NOT NULL AND finished_at IS NULL
 ORDER BY wake_at LIMIT ?;

-- name: post_mail
INSERT INTO mail (run, dedup, at, body) VALUES (?, ?, ?, ?) ON CONFLICT (run, dedup) DO NOTHING;

-- name: wake_for_mail
-- A run that its owner releases at the same moment is due, or it would sleep with its mail unread.
UPDATE run SET wake_at = min(coalesce(wake_at, ?1), ?1) WHERE no = ?2 AND owner IS NULL AND finished_at IS NULL;

-- name: mail
-- Of all runs: no other node can own one.
SELECT run, dedup, body FROM mail ORDER BY pos LIMIT ?;

-- name: drop_mail
DELETE FROM mail WHERE run = ? AND dedup = ?;

-- name: forget_run_mail
DELETE FROM mail WHERE run = ?;

