-- What must never be, as in SQLite's checks.sql: `holdfast doctor` asks every query whose name begins with check_, and each gives a few
-- cases in words. PostgreSQL itself keeps numbers and times numbers.

-- name: check_journal_without_gaps
SELECT format('run number %s has %s rows, numbered %s to %s', run, count(*), min(seq), max(seq))
  FROM journal WHERE run <> 0 GROUP BY run HAVING min(seq) <> 1 OR max(seq) <> count(*) LIMIT 10;

-- name: check_epochs_never_fall
SELECT format('run number %s, row %s is of an older owner than the row before it', run, seq) FROM (
  SELECT run, seq, epoch, lag(epoch) OVER (PARTITION BY run ORDER BY seq) AS former FROM journal) j
 WHERE epoch < former LIMIT 10;

-- name: check_times_never_fall
SELECT format('run number %s, row %s is older than the row before it', run, seq) FROM (
  SELECT run, seq, at, lag(at) OVER (PARTITION BY run ORDER BY seq) AS former FROM journal WHERE run <> 0) j
 WHERE at < former LIMIT 10;

-- name: check_rows_say_what_they_are
SELECT format('run number %s, row %s is called %s, and says something else', run, seq, kind) FROM journal
 WHERE run <> 0 AND substring(body FROM '^\[\d+,\["([a-z_]+)"') IS DISTINCT FROM kind LIMIT 10;

-- name: check_finished_runs_are_at_rest
SELECT format('run %s is %s, and has an owner, a time to wake, or no end', id, status) FROM run
 WHERE status IN ('completed', 'failed', 'cancelled', 'interrupted')
   AND (owner IS NOT NULL OR wake_at IS NOT NULL OR finished_at IS NULL) LIMIT 10;

-- name: check_open_runs_have_no_end
SELECT format('run %s is %s, and has the time of its end', id, status) FROM run
 WHERE status IN ('pending', 'running', 'waiting', 'cancelling') AND finished_at IS NOT NULL LIMIT 10;

-- name: check_owners_are_known
SELECT format('run %s is owned by incarnation %s of a node, which never was', id, owner_epoch) FROM run
 WHERE owner_epoch > (SELECT last_value FROM node_epoch_seq) LIMIT 10;

-- name: check_runs_have_a_journal
SELECT format('run %s has no row in the journal', id) FROM run
 WHERE NOT EXISTS (SELECT 1 FROM journal WHERE journal.run = run.no) LIMIT 10;

-- name: check_runs_have_a_definition
SELECT format('the definition %s of run %s is missing', left(version, 12), id) FROM run
 WHERE NOT EXISTS (SELECT 1 FROM version v WHERE v.tenant = run.tenant AND v.hash = run.version) LIMIT 10;

-- name: check_nothing_without_a_run
SELECT format('%s of run number %s, which is not there', what, run) FROM (
  SELECT DISTINCT 'journal' AS what, run FROM journal WHERE run <> 0 UNION SELECT DISTINCT 'snapshot', run FROM snapshot
   UNION SELECT DISTINCT 'a large value', run FROM blob UNION SELECT DISTINCT 'an artefact', run FROM artefact
   UNION SELECT DISTINCT 'a request', run FROM request UNION SELECT DISTINCT 'a wait', run FROM wait
   UNION SELECT DISTINCT 'a label', run FROM label UNION SELECT DISTINCT 'a letter', run FROM mail
   UNION SELECT DISTINCT 'an assignment', run FROM assignment UNION SELECT DISTINCT 'a delivery', run FROM outbox
   UNION SELECT DISTINCT 'an occurrence', run FROM ledger WHERE run IS NOT NULL) a
 WHERE NOT EXISTS (SELECT 1 FROM run WHERE run.no = a.run) LIMIT 10;

-- name: check_keys_are_held_by_open_runs
-- No step holds a key that has an output.
SELECT format('the key %s is held by step %s of run number %s, which has finished or was deleted', key, path, run) FROM key
 WHERE output IS NULL
   AND NOT EXISTS (SELECT 1 FROM run WHERE run.no = key.run AND status IN ('pending', 'running', 'waiting', 'cancelling')) LIMIT 10;

-- name: check_only_open_runs_wait
SELECT format('step %s of run %s waits for %s, and the run is %s', wait.path, run.id, wait.name, run.status)
  FROM wait JOIN run ON run.no = wait.run
 WHERE run.finished_at IS NOT NULL AND wait.resolved_at IS NULL LIMIT 10;

-- name: check_waits_are_of_the_tenant_of_their_run
SELECT format('step %s of run %s waits as one of the tenant %s', wait.path, run.id, wait.tenant)
  FROM wait JOIN run ON run.no = wait.run WHERE wait.tenant <> run.tenant LIMIT 10;

-- name: check_published_workflows_have_a_definition
SELECT format('the definition %s of the workflow %s is missing', left(version, 12), name) FROM workflow w
 WHERE w.version IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM version v WHERE v.tenant = w.tenant AND v.hash = w.version) LIMIT 10;

-- name: check_releases_have_a_definition
SELECT format('the definition %s of release %s of %s is missing', left(r.version, 12), r.number, r.workflow)
  FROM release r
 WHERE NOT EXISTS (SELECT 1 FROM version v WHERE v.tenant = r.tenant AND v.hash = r.version)
    OR NOT EXISTS (SELECT 1 FROM workflow w WHERE w.tenant = r.tenant AND w.name = r.workflow) LIMIT 10;

-- name: check_runs_are_counted
SELECT format('%s runs of series %s are %s, and counted as %s', there, series, status, counted) FROM (
  SELECT series, status, sum(there) AS there, sum(counted) AS counted FROM (
    SELECT series, status, 1 AS there, 0 AS counted FROM run
    UNION ALL SELECT series, status, 0, runs FROM tally) both_sides
   GROUP BY series, status) compared
 WHERE there <> counted LIMIT 10;

-- name: check_series_are_known
SELECT format('series %s of run %s is not there', series, id) FROM run
 WHERE series IS NOT NULL AND NOT EXISTS (SELECT 1 FROM series s WHERE s.no = run.series) LIMIT 10;

-- name: check_labels_are_found
SELECT format('run %s has labels by which it is not found', r.id) FROM run r
 WHERE r.labels IS NOT NULL
   AND (SELECT count(*) FROM json_object_keys(journal_json(r.labels))) <> (SELECT count(*) FROM label WHERE label.run = r.no) LIMIT 10;

-- name: check_only_open_runs_have_assignments
SELECT format('step %s of run %s is assigned to a worker, and the run is %s', a.path, run.id, run.status)
  FROM assignment a JOIN run ON run.no = a.run WHERE run.finished_at IS NOT NULL LIMIT 10;

-- name: check_ends_of_runs_are_told
-- Each destination of a run, which its first row names, has a delivery as soon as the run has finished, and none before that.
SELECT format('run %s is %s, has %s destinations and %s deliveries', id, status, destinations, deliveries) FROM (
  SELECT r.id, r.status, r.finished_at, (SELECT count(*) FROM outbox o WHERE o.run = r.no) AS deliveries,
         CASE json_typeof(journal_json(j.body) #> '{1,7}') WHEN 'array' THEN json_array_length(journal_json(j.body) #> '{1,7}') ELSE 0 END AS destinations
    FROM run r JOIN journal j ON j.run = r.no AND j.seq = 1) told
 WHERE deliveries <> CASE WHEN finished_at IS NULL THEN 0 ELSE destinations END LIMIT 10;

-- name: check_schedules_have_a_cursor
SELECT format('schedule %s of tenant %s has no cursor, and does not fire', id, tenant) FROM schedule s
 WHERE NOT EXISTS (SELECT 1 FROM cursor c WHERE c.tenant = s.tenant AND c.schedule = s.id) LIMIT 10;

-- name: check_cursors_have_a_schedule
SELECT format('the cursor of schedule %s of tenant %s is left, and its schedule is gone', schedule, tenant) FROM cursor c
 WHERE NOT EXISTS (SELECT 1 FROM schedule s WHERE s.tenant = c.tenant AND s.id = c.schedule) LIMIT 10;

-- name: check_schedules_have_the_kind_of_their_trigger
SELECT format('schedule %s of tenant %s is of kind %s, and its definition says something else', id, tenant, kind) FROM schedule
 WHERE coalesce(journal_json(body) #>> '{trigger,kind}', kind) <> kind LIMIT 10;

-- name: check_runs_of_schedules_are_in_the_ledger
SELECT format('run %s was started by schedule %s, and the ledger has no row of it', id, schedule) FROM run
 WHERE schedule IS NOT NULL AND NOT EXISTS (SELECT 1 FROM ledger WHERE ledger.run = run.no) LIMIT 10;

-- name: parts_of_schema
SELECT CASE relkind WHEN 'r' THEN 'table' WHEN 'i' THEN 'index' ELSE 'view' END, relname FROM pg_class
 WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'i', 'v');

-- name: server_version
SELECT current_setting('server_version');

-- name: every_definition
SELECT name, hash, definition, uses FROM version;

-- name: every_schedule
SELECT schedule.tenant, schedule.id, schedule.body, cursor.body
  FROM schedule LEFT JOIN cursor ON cursor.tenant = schedule.tenant AND cursor.schedule = schedule.id;

-- name: rows_with_blobs
-- Text inside a value has its quotes escaped, so this can only be a reference of ours.
SELECT run, body FROM journal WHERE strpos(body, '{"$blob":"') > 0;

-- name: has_blob
SELECT 1 FROM blob WHERE run = $1 AND sha256 = $2;

-- name: every_blob
SELECT run, sha256, body FROM blob;

-- name: artefacts_named
SELECT DISTINCT r.tenant, a.sha256, a.size FROM artefact a JOIN run r ON r.no = a.run;

-- name: open_runs
SELECT no FROM run WHERE finished_at IS NULL ORDER BY no;

-- name: newest_of_all
SELECT r.no, r.tenant, r.id, version, status, epoch, owner, owner_epoch, wake_at, needs, labels, created_at, finished_at,
       parent_job_id, s.workflow, rerun_of, nullif(s.number, 0), r.schedule, r.slot
  FROM run r LEFT JOIN series s ON s.no = r.series ORDER BY r.no DESC LIMIT $1;
