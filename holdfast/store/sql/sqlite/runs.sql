-- name: add_version
INSERT INTO version (tenant, hash, name, definition, created_at, uses) VALUES (?, ?, ?, ?, ?, ?)
  ON CONFLICT DO NOTHING;

-- name: definition
SELECT definition, uses FROM version WHERE tenant = ? AND hash = ?;

-- name: last_no
-- A number once given out stays with its run: the journal is asked too, in case the newest run was deleted.
SELECT max(coalesce((SELECT max(no) FROM run), 0), coalesce((SELECT max(run) FROM journal), 0));

-- name: add_run
INSERT OR ROLLBACK INTO run
  (no, tenant, id, version, status, owner, owner_epoch, epoch, wake_at, needs, on_restart, labels, created_at,
   finished_at, parent_job_id, rerun_of)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: change_run
-- Many runs to a statement, for each statement costs the writer's thread a hand-over.
UPDATE OR ROLLBACK run
   SET status = b.column2, owner = b.column3, owner_epoch = b.column4, epoch = b.column5, wake_at = b.column6,
       needs = b.column7, finished_at = b.column8
  FROM (VALUES (?, ?, ?, ?, ?, ?, ?, ?)) AS b WHERE run.no = b.column1;

-- name: run_by_id
SELECT no, tenant, id, version, status, epoch, owner, owner_epoch, wake_at, needs, labels, created_at, finished_at,
       parent_job_id, (SELECT name FROM version WHERE tenant = run.tenant AND hash = run.version), rerun_of
  FROM run WHERE tenant = ? AND id = ?;

-- name: run_by_no
SELECT no, tenant, id, version, status, epoch, owner, owner_epoch, wake_at, needs, labels, created_at, finished_at,
       parent_job_id, (SELECT name FROM version WHERE tenant = run.tenant AND hash = run.version), rerun_of
  FROM run WHERE no = ?;

-- name: list_runs
SELECT no, tenant, id, version, status, epoch, owner, owner_epoch, wake_at, needs, labels, created_at, finished_at,
       parent_job_id, (SELECT name FROM version WHERE tenant = run.tenant AND hash = run.version), rerun_of
  FROM run WHERE tenant = :tenant AND no < :before
   AND (:status IS NULL OR status = :status)
   AND (:workflow IS NULL OR version IN (SELECT hash FROM version WHERE tenant = :tenant AND name = :workflow))
   AND (:label IS NULL OR EXISTS (
     SELECT 1 FROM json_each(run.labels) WHERE key = :label AND (:value IS NULL OR value = :value)))
 ORDER BY no DESC LIMIT :limit;

-- name: owned_by_former
-- Runs that a former incarnation of the engine drove and never released.
SELECT no FROM run
 WHERE owner IS NOT NULL AND finished_at IS NULL
   AND owner_epoch < ? AND no > ? ORDER BY no LIMIT ?;

-- name: due_runs
-- Parked runs whose time has come, the longest overdue first.
SELECT no FROM run
 WHERE owner IS NULL AND wake_at <= ? AND finished_at IS NULL
 ORDER BY wake_at LIMIT ?;

-- name: next_wake
SELECT min(wake_at) FROM run
 WHERE owner IS NULL AND wake_at IS NOT NULL AND finished_at IS NULL;

-- name: runs_in_need
SELECT no, needs FROM run
 WHERE needs IS NOT NULL AND owner IS NULL AND finished_at IS NULL
   AND no > ? ORDER BY no LIMIT ?;

-- name: interruptible_runs
SELECT no FROM run
 WHERE on_restart IS NOT NULL AND finished_at IS NULL AND no > ?
 ORDER BY no LIMIT ?;

-- name: ids_like
-- Runs by the beginning or the end of their id; the end of a UUIDv7 is what tells neighbours apart.
SELECT id FROM run
 WHERE tenant = ?1 AND (substr(id, 1, length(?2)) = ?2 OR substr(id, -length(?2)) = ?2) ORDER BY no DESC LIMIT ?3;

-- name: finished_before
-- Each with the number of its rows, which is what deleting it costs.
SELECT no, (SELECT coalesce(max(seq), 0) FROM journal WHERE journal.run = no) FROM run
 WHERE finished_at < ? ORDER BY finished_at LIMIT ?;

-- name: forget_run_row
-- Every statement whose name begins with forget_run_ is given the number of a finished run that is deleted.
DELETE FROM run WHERE no = ?;
