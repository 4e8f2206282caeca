-- name: put_worker
-- is_trusted once let the address of a worker with a key be private; every address is checked now.
INSERT OR REPLACE INTO worker (tenant, id, kind, url, services, status, place, key_id, is_trusted, heard_at)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, ?);

-- name: hear_worker
UPDATE worker SET heard_at = max(heard_at, ?3), status = 'online' WHERE tenant = ?1 AND id = ?2;

-- name: forget_worker
DELETE FROM worker WHERE tenant = ? AND id = ?;

-- name: workers
SELECT tenant, id, kind, url, services, status, place, key_id, heard_at FROM worker ORDER BY place;

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

-- name: free_assignments
-- Jobs whose lease was given out by another database are offered again.
UPDATE assignment SET worker = '', token = '';
