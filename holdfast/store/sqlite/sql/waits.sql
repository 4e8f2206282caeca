-- name: open_wait
INSERT INTO wait (tenant, kind, name, run, path, attempt, since, expires_at, detail) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: close_wait
UPDATE wait SET resolved_at = ?, outcome = ? WHERE run = ? AND path = ? AND attempt = ? AND kind = ? AND resolved_at IS NULL;

-- name: waits_named
SELECT r.no, r.id, w.path, w.attempt, w.kind, w.name, w.since, w.expires_at, w.detail, w.resolved_at, w.outcome
  FROM wait w JOIN run r ON r.no = w.run
 WHERE w.tenant = ? AND w.kind = 'callback' AND w.scope = '' AND w.name = ? ORDER BY w.pos DESC LIMIT ?;

-- name: wait_at
SELECT r.no, r.id, w.path, w.attempt, w.kind, w.name, w.since, w.expires_at, w.detail, w.resolved_at, w.outcome
  FROM wait w JOIN run r ON r.no = w.run WHERE w.run = ?1 AND w.path = ?2 AND w.kind = ?3
   AND (?4 IS NULL OR w.attempt = ?4) ORDER BY w.attempt DESC LIMIT 1;

-- name: gate_decided
-- The one at that very path, else the newest whose path ends with that step.
SELECT r.no, r.id, w.path, w.attempt, w.kind, w.name, w.since, w.expires_at, w.detail, w.resolved_at, w.outcome
  FROM wait w JOIN run r ON r.no = w.run WHERE w.run = ?1 AND w.kind = 'approval' AND w.resolved_at IS NOT NULL
   AND (w.path = ?2 OR substr(w.path, -length(?2) - 1) = '.' || ?2) ORDER BY w.path = ?2 DESC, w.pos DESC LIMIT 1;

-- name: gates_named
-- Open approvals whose path ends with that step, oldest first.
SELECT r.no, r.id, w.path, w.attempt, w.kind, w.name, w.since, w.expires_at, w.detail, w.resolved_at, w.outcome
  FROM wait w JOIN run r ON r.no = w.run WHERE w.run = ?1 AND w.kind = 'approval' AND w.resolved_at IS NULL
   AND substr(w.path, -length(?2) - 1) = '.' || ?2 ORDER BY w.pos LIMIT ?3;

-- name: waits_of_run
SELECT r.no, r.id, w.path, w.attempt, w.kind, w.name, w.since, w.expires_at, w.detail, w.resolved_at, w.outcome
  FROM wait w JOIN run r ON r.no = w.run
 WHERE w.run = ? AND w.kind <> 'key' AND w.resolved_at IS NULL ORDER BY w.pos LIMIT ?;

-- name: first_waits
-- The oldest wait of each of some runs.
SELECT r.no, r.id, w.path, w.attempt, w.kind, w.name, w.since, w.expires_at, w.detail, w.resolved_at, w.outcome
  FROM json_each(?) asked CROSS JOIN run r ON r.no = asked.value CROSS JOIN wait w ON w.run = r.no
 WHERE w.kind <> 'key' AND w.resolved_at IS NULL
   AND w.pos = (SELECT min(pos) FROM wait o WHERE o.run = r.no AND o.kind <> 'key' AND o.resolved_at IS NULL);

-- name: waits_by_time
-- Of one kind, behind a place: the time that is left of it, and its number.
SELECT coalesce(w.expires_at, 9000000000000000), w.pos, r.no, r.id, w.path, w.attempt, w.kind, w.name, w.since, w.expires_at, w.detail,
       w.resolved_at, w.outcome
  FROM wait w CROSS JOIN run r ON r.no = w.run
 WHERE w.tenant = ?1 AND w.kind = ?2 AND w.resolved_at IS NULL AND coalesce(w.expires_at, 9000000000000000) >= ?3
   AND (coalesce(w.expires_at, 9000000000000000) > ?3 OR w.pos > ?4)
 ORDER BY coalesce(w.expires_at, 9000000000000000), w.pos LIMIT ?5;

-- name: place_of_wait
SELECT coalesce(expires_at, 9000000000000000) FROM wait WHERE pos = ? AND tenant = ?;

-- name: count_waits
SELECT count(*) FROM (SELECT 1 FROM wait WHERE tenant = ? AND kind = ? AND resolved_at IS NULL LIMIT ?);

-- name: open_waits
SELECT r.no, r.id, w.path, w.attempt, w.kind, w.name, w.since, w.expires_at, w.detail, w.resolved_at, w.outcome
  FROM wait w JOIN run r ON r.no = w.run
 WHERE w.tenant = ? AND w.kind = ? AND w.resolved_at IS NULL ORDER BY w.pos LIMIT ?;

-- name: put_early
INSERT INTO early_result (tenant, task_id, meant, body, expires_at) VALUES (?, ?, ?, CAST(? AS TEXT), ?) ON CONFLICT DO NOTHING;

-- name: take_early
DELETE FROM early_result WHERE tenant = ? AND task_id = ? AND meant = ?;

-- name: early_of
-- What is meant for this very run comes before what may be for any.
SELECT meant, CAST(body AS BLOB) FROM early_result WHERE tenant = ? AND task_id = ? AND meant IN (?, '') AND expires_at > ?
 ORDER BY meant DESC LIMIT 1;

-- name: early_of_bytes
SELECT octet_length(body) FROM early_result WHERE tenant = ? AND task_id = ? AND meant IN (?, '') AND expires_at > ?
 ORDER BY meant DESC LIMIT 1;

-- name: early_room
SELECT count(*), coalesce(sum(octet_length(body)), 0) FROM early_result WHERE tenant = ? AND expires_at > ?;

-- name: early_waits
-- In this order, which SQLite keeps to where it is a cross join: few answers come early, and a million runs may wait.
SELECT r.no, r.id, w.path, w.attempt, w.kind, w.name, w.since, w.expires_at, w.detail, w.resolved_at, w.outcome
  FROM early_result e
  CROSS JOIN wait w ON w.tenant = e.tenant AND w.kind = 'callback' AND w.scope = '' AND w.name = e.task_id
  CROSS JOIN run r ON r.no = w.run
 WHERE w.resolved_at IS NULL AND e.meant IN (r.id, '') ORDER BY w.pos LIMIT ?;

-- name: forget_early
DELETE FROM early_result WHERE expires_at <= ?;
