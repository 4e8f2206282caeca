-- name: take_key
-- An answer that has expired counts as none.
INSERT INTO key (tenant, scope, key, run, path, created_at) VALUES (?, ?, ?, ?, ?, ?)
  ON CONFLICT (tenant, scope, key) DO UPDATE
  SET run = excluded.run, path = excluded.path, output = NULL, expires_at = NULL, created_at = excluded.created_at
  WHERE key.expires_at <= excluded.created_at;

-- name: key_state
SELECT run, path, output FROM key WHERE tenant = ? AND scope = ? AND key = ?;

-- name: answer_key
UPDATE key SET output = ?, expires_at = ? WHERE tenant = ? AND scope = ? AND key = ?;

-- name: pass_key_on
UPDATE key SET run = ?, path = ? WHERE tenant = ? AND scope = ? AND key = ?;

-- name: free_key
DELETE FROM key WHERE tenant = ? AND scope = ? AND key = ?;

-- name: wait_for_key
INSERT INTO wait (tenant, kind, scope, name, run, path, since) VALUES (?, 'key', ?, ?, ?, ?, ?)
  ON CONFLICT (run, path, attempt, kind) DO NOTHING;

-- name: wait_no_more
DELETE FROM wait WHERE run = ? AND path = ? AND kind = 'key';

-- name: waiters_of_key
SELECT run, path FROM wait WHERE tenant = ? AND kind = 'key' AND scope = ? AND name = ? ORDER BY pos LIMIT ?;

-- name: make_due
UPDATE run SET wake_at = ? WHERE no = ? AND owner IS NULL AND finished_at IS NULL;

-- name: forget_run_keys
DELETE FROM key WHERE (tenant, scope) = (SELECT tenant, id FROM run WHERE no = ?);

-- name: forget_run_waits
DELETE FROM wait WHERE run = ?;

-- name: forget_run_artefacts
DELETE FROM artefact WHERE run = ?;

-- name: put_artefact
INSERT INTO artefact (run, sha256, size, created_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: artefacts_of_run
SELECT sha256, size FROM artefact WHERE run = ?;

-- name: expired_keys
SELECT tenant, scope, key, created_at FROM key WHERE expires_at <= ? AND output IS NOT NULL ORDER BY expires_at LIMIT ?;

-- name: forget_key
-- Never a held one, nor one that was taken and answered again since it was read.
DELETE FROM key WHERE tenant = ? AND scope = ? AND key = ? AND created_at = ? AND output IS NOT NULL;

-- name: answered_key
SELECT created_at FROM key WHERE tenant = ? AND scope = ? AND key = ? AND output IS NOT NULL;

-- name: key_holder
SELECT r.id, k.path FROM key k JOIN run r ON r.no = k.run WHERE k.tenant = ? AND k.scope = ? AND k.key = ?;

-- name: artefacts_named
SELECT DISTINCT r.tenant, a.sha256, a.size FROM artefact a JOIN run r ON r.no = a.run;

-- name: artefacts_of_tenants
SELECT DISTINCT r.tenant, a.sha256,
       EXISTS (SELECT 1 FROM artefact b JOIN run s ON s.no = b.run
                WHERE b.sha256 = a.sha256 AND b.size > 0 AND s.tenant = 'default')
  FROM artefact a JOIN run r ON r.no = a.run WHERE r.tenant <> 'default' AND a.size > 0;

-- name: names_artefact
SELECT 1 FROM artefact a JOIN run r ON r.no = a.run WHERE a.sha256 = ? AND r.tenant = ? LIMIT 1;

-- name: names_artefact_in
-- Callers of some workflows find the files that runs of these have made. The size is 0 where a run only received a file.
SELECT 1 FROM artefact a JOIN run r ON r.no = a.run JOIN series s ON s.no = r.series
 WHERE a.sha256 = ? AND r.tenant = ? AND a.size > 0 AND s.workflow IN (SELECT value FROM json_each(?)) LIMIT 1;

-- name: artefacts_between
SELECT DISTINCT sha256 FROM artefact WHERE sha256 >= ? AND sha256 < ?;

-- name: outputs_with_artefacts
SELECT output FROM key WHERE instr(output, CAST('artefact://sha256/' AS BLOB)) > 0;
