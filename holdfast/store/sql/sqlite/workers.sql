-- name: put_worker
INSERT OR REPLACE INTO worker (tenant, id, kind, url, services, status, place, key_id, is_trusted, heard_at)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: forget_worker
DELETE FROM worker WHERE tenant = ? AND id = ?;

-- name: workers
SELECT tenant, id, kind, url, services, status, place, key_id, is_trusted, heard_at FROM worker ORDER BY place;

-- name: put_assignment
INSERT OR REPLACE INTO assignment (run, path, attempt, service, worker, token, offers, claimed_at)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: end_assignment
DELETE FROM assignment WHERE run = ? AND path = ? AND attempt = ?;

-- name: assignments
-- All of them: there are no more than attempts may be at work.
SELECT run, path, attempt, service, worker, token, offers, claimed_at FROM assignment;

-- name: assignments_of_run
SELECT run, path, attempt, service, worker, token, offers, claimed_at FROM assignment WHERE run = ?;

-- name: forget_run_assignment
DELETE FROM assignment WHERE run = ?;
