-- name: take_key
-- An answer that has expired counts as none.
INSERT INTO key AS k (tenant, scope, key, run, path, created_at) VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (tenant, scope, key) DO UPDATE
   SET run = excluded.run, path = excluded.path, output = NULL, expires_at = NULL, created_at = excluded.created_at
 WHERE k.expires_at <= excluded.created_at

-- name: key_state
-- Locked: two nodes that end and ask for one key at the same moment take their turns.
SELECT run, path, output FROM key WHERE tenant = $1 AND scope = $2 AND key = $3 FOR UPDATE

-- name: answer_key
UPDATE key SET output = $1, expires_at = $2 WHERE tenant = $3 AND scope = $4 AND key = $5

-- name: pass_key_on
UPDATE key SET run = $1, path = $2 WHERE tenant = $3 AND scope = $4 AND key = $5

-- name: free_key
DELETE FROM key WHERE tenant = $1 AND scope = $2 AND key = $3

-- name: wait_for_key
INSERT INTO wait (tenant, kind, scope, name, run, path, since) VALUES ($1, 'key', $2, $3, $4, $5, $6)
    ON CONFLICT (run, path, attempt, kind) DO NOTHING

-- name: wait_no_more
DELETE FROM wait WHERE run = $1 AND path = $2 AND kind = 'key'

-- name: waiters_of_key
SELECT run, path FROM wait WHERE tenant = $1 AND kind = 'key' AND scope = $2 AND name = $3 ORDER BY pos LIMIT $4

-- name: make_due
-- The row is locked, whichever run owns it: an owner that releases it at the same moment does so before or after. With another
-- owner it counts as a letter, so it is due as soon as it is released.
UPDATE run SET wake_at = CASE WHEN owner IS NULL THEN $1 ELSE wake_at END,
               mail = mail + CASE WHEN owner_epoch <> $3 THEN 1 ELSE 0 END
 WHERE no = $2 AND finished_at IS NULL

-- name: expired_keys
SELECT tenant, scope, key, created_at FROM key WHERE expires_at <= $1 AND output IS NOT NULL ORDER BY expires_at LIMIT $2

-- name: answered_key
SELECT tenant, scope, key, created_at FROM key WHERE tenant = $1 AND scope = $2 AND key = $3 AND output IS NOT NULL

-- name: key_holder
SELECT r.id, k.path FROM key k JOIN run r ON r.no = k.run WHERE k.tenant = $1 AND k.scope = $2 AND k.key = $3

-- name: artefacts_of_run
SELECT sha256, size FROM artefact WHERE run = $1

-- name: artefacts_of_tenants
SELECT DISTINCT r.tenant, a.sha256,
       EXISTS (SELECT 1 FROM artefact b JOIN run s ON s.no = b.run
                WHERE b.sha256 = a.sha256 AND b.size > 0 AND s.tenant = 'default')
  FROM artefact a JOIN run r ON r.no = a.run WHERE r.tenant <> 'default' AND a.size > 0

-- name: names_artefact
-- Callers of some workflows find the files that runs of these have made. The size is 0 where a run only received a file.
SELECT 1 FROM artefact a JOIN run r ON r.no = a.run LEFT JOIN series s ON s.no = r.series
 WHERE a.sha256 = $2 AND r.tenant = $1 AND ($3::text[] IS NULL OR a.size > 0 AND s.workflow = ANY ($3)) LIMIT 1

-- name: artefacts_between
SELECT DISTINCT sha256 FROM artefact WHERE sha256 >= $1 AND sha256 < $2

-- name: outputs_with_artefacts
SELECT output FROM key WHERE position('artefact://sha256/'::bytea IN output) > 0

-- name: api_keys
SELECT tenant, id, name, hash, scopes, services, created_at, expires_at, last_used_at, revoked_at, tools, workflows, skips_gate
  FROM api_key ORDER BY tenant, created_at, id

-- name: reply
SELECT tenant, route, key, digest, status, body, created_at FROM reply WHERE tenant = $1 AND route = $2 AND key = $3

-- name: request
SELECT q.digest, r.no, r.id FROM request q JOIN run r ON r.no = q.run WHERE q.tenant = $1 AND q.id = $2

-- name: request_of
SELECT id FROM request WHERE run = $1 LIMIT 1

-- name: workers
SELECT tenant, id, kind, url, services, status, place, key_id, heard_at FROM worker ORDER BY place

-- name: assignments
SELECT run, path, attempt, service, worker, token, offers, claimed_at FROM assignment

-- name: assignments_of_run
SELECT run, path, attempt, service, worker, token, offers, claimed_at FROM assignment WHERE run = $1
