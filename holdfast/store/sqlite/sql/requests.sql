-- name: add_request
-- No ON CONFLICT: two runs under one id would be a mistake of ours, and the commit must say so.
INSERT INTO request (tenant, id, digest, run, created_at) VALUES (?, ?, ?, ?, ?);

-- name: request
SELECT q.digest, r.no, r.id FROM request q JOIN run r ON r.no = q.run WHERE q.tenant = ? AND q.id = ?;

-- name: request_of
SELECT id FROM request WHERE run = ? LIMIT 1;

-- name: forget_run_requests
DELETE FROM request WHERE run = ?;
