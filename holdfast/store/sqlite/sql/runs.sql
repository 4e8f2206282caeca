-- name: add_version
INSERT INTO version (tenant, hash, name, definition, created_at, uses) VALUES (?, ?, ?, ?, ?, ?)
  ON CONFLICT DO NOTHING;

-- name: definition
SELECT definition, uses FROM version WHERE tenant = ? AND hash = ?;

-- name: put_source
UPDATE version SET source = ?1 WHERE tenant = ?2 AND hash = ?3 AND source IS NOT ?1;

-- name: version
SELECT name, definition, uses, source, created_at FROM version WHERE tenant = ? AND hash = ?;

-- name: last_no
-- A number once given out stays with its run: the journal is asked too, in case the newest run was deleted.
SELECT max(coalesce((SELECT max(no) FROM run), 0), coalesce((SELECT max(run) FROM journal), 0));

-- name: add_run
INSERT OR ROLLBACK INTO run
  (no, tenant, id, version, status, owner, owner_epoch, epoch, wake_at, needs, on_restart, labels, created_at,
   finished_at, parent_job_id, rerun_of, series, schedule, slot, is_catchup)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: change_run
-- Many runs to a statement, for each statement costs the writer's thread a hand-over.
UPDATE OR ROLLBACK run
   SET status = b.column2, owner = b.column3, owner_epoch = b.column4, epoch = b.column5, wake_at = b.column6,
       needs = b.column7, finished_at = b.column8
  FROM (VALUES (?, ?, ?, ?, ?, ?, ?, ?)) AS b WHERE run.no = b.column1;

-- name: run_by_id
SELECT r.no, r.tenant, r.id, version, status, epoch, owner, owner_epoch, wake_at, needs, labels, created_at, finished_at,
       parent_job_id, s.workflow, rerun_of, nullif(s.number, 0), r.schedule, r.slot
  FROM run r LEFT JOIN series s ON s.no = r.series WHERE r.tenant = ? AND r.id = ?;

-- name: runs_by_no
-- In the order of the numbers that are given.
SELECT r.no, r.tenant, r.id, version, status, epoch, owner, owner_epoch, wake_at, needs, labels, created_at, finished_at,
       parent_job_id, s.workflow, rerun_of, nullif(s.number, 0), r.schedule, r.slot
  FROM json_each(?) asked CROSS JOIN run r ON r.no = asked.value LEFT JOIN series s ON s.no = r.series;

-- name: run_by_no
SELECT r.no, r.tenant, r.id, version, status, epoch, owner, owner_epoch, wake_at, needs, labels, created_at, finished_at,
       parent_job_id, s.workflow, rerun_of, nullif(s.number, 0), r.schedule, r.slot
  FROM run r LEFT JOIN series s ON s.no = r.series WHERE r.no = ?;

-- name: runs_to_load
-- With the trace that each was started for, and the row of its newest snapshot.
SELECT r.no, r.tenant, r.id, version, status, epoch, owner, owner_epoch, wake_at, needs, labels, created_at, finished_at,
       parent_job_id, s.workflow, rerun_of, nullif(s.number, 0), r.schedule, r.slot,
       coalesce((SELECT parent FROM trace WHERE run = r.no), ''),
       coalesce((SELECT seq FROM snapshot WHERE run = r.no AND part = 0), 0)
  FROM json_each(?) asked CROSS JOIN run r ON r.no = asked.value LEFT JOIN series s ON s.no = r.series;

-- name: run_to_load
SELECT r.no, r.tenant, r.id, version, status, epoch, owner, owner_epoch, wake_at, needs, labels, created_at, finished_at,
       parent_job_id, s.workflow, rerun_of, nullif(s.number, 0), r.schedule, r.slot,
       coalesce((SELECT parent FROM trace WHERE run = r.no), ''),
       coalesce((SELECT seq FROM snapshot WHERE run = r.no AND part = 0), 0)
  FROM run r LEFT JOIN series s ON s.no = r.series WHERE r.no = ?;

-- name: stretches
-- The parts of the index of lists that a list is made of: where each has runs older than :before, and the newest of them.
SELECT t.series, t.status, t.runs,
       (SELECT max(no) FROM run WHERE run.series = t.series AND run.status = t.status AND run.no < :before)
  FROM series s CROSS JOIN tally t ON t.series = s.no
 WHERE s.tenant = :tenant AND t.runs > 0
   AND (:statuses IS NULL OR t.status IN (SELECT value FROM json_each(:statuses)));

-- name: stretches_of_workflow
SELECT t.series, t.status, t.runs,
       (SELECT max(no) FROM run WHERE run.series = t.series AND run.status = t.status AND run.no < :before)
  FROM series s CROSS JOIN tally t ON t.series = s.no
 WHERE s.tenant = :tenant AND s.workflow = :workflow AND (:number IS NULL OR s.number = :number)
   AND t.runs > 0
   AND (:statuses IS NULL OR t.status IN (SELECT value FROM json_each(:statuses)));

-- name: stretches_of_workflows
SELECT t.series, t.status, t.runs,
       (SELECT max(no) FROM run WHERE run.series = t.series AND run.status = t.status AND run.no < :before)
  FROM json_each(:workflows) asked CROSS JOIN series s ON s.tenant = :tenant AND s.workflow = asked.value
 CROSS JOIN tally t ON t.series = s.no
 WHERE t.runs > 0 AND (:statuses IS NULL OR t.status IN (SELECT value FROM json_each(:statuses)));

-- name: newest
SELECT no FROM (SELECT no, tenant, status FROM run WHERE no < :before ORDER BY no DESC LIMIT :looked_at)
 WHERE tenant = :tenant AND (:statuses IS NULL OR status IN (SELECT value FROM json_each(:statuses)))
 LIMIT :limit OFFSET :passed;

-- name: stretch
SELECT no FROM run WHERE series = ? AND status = ? AND no < ? ORDER BY no DESC LIMIT ?;

-- name: ahead
-- Counts along the index, which is quick: no row is read.
SELECT no FROM run WHERE series = ? AND status = ? AND no <= ? ORDER BY no DESC LIMIT 1 OFFSET ?;

-- name: series_and_status
SELECT series, status FROM run WHERE no = ?;

-- name: labelled
SELECT run FROM label WHERE tenant = ? AND name = ? AND run < ? ORDER BY run DESC LIMIT ?;

-- name: labelled_so
SELECT run FROM label WHERE tenant = ? AND name = ? AND value = ? AND run < ? ORDER BY run DESC LIMIT ?;

-- name: has_label
SELECT 1 FROM label WHERE tenant = ?1 AND run = ?2 AND name = ?3 AND (?4 IS NULL OR value = ?4);

-- name: add_label
INSERT INTO label (tenant, name, value, run) VALUES (?, ?, ?, ?);

-- name: forget_run_labels
DELETE FROM label WHERE run = ?;

-- name: series_of
SELECT no FROM series WHERE tenant = ? AND workflow = ? AND number = ?;

-- name: add_series
INSERT INTO series (tenant, workflow, number) VALUES (?, ?, ?) RETURNING no;

-- name: statuses_before
-- What the rows that a commit changes said before it.
SELECT no, series, status, created_at FROM json_each(?) asked CROSS JOIN run ON run.no = asked.value;

-- name: forget_empty_tallies
DELETE FROM tally WHERE series = ? AND runs = 0;

-- name: forget_empty_series
DELETE FROM series WHERE no = ?1 AND NOT EXISTS (SELECT 1 FROM tally WHERE series = ?1);

-- name: add_to_tally
INSERT INTO tally (series, status, runs) VALUES (?, ?, ?)
  ON CONFLICT (series, status) DO UPDATE SET runs = runs + excluded.runs;

-- name: add_to_pulse
INSERT INTO pulse (series, minute, beat, runs) VALUES (?, ?, ?, ?)
  ON CONFLICT (series, minute, beat) DO UPDATE SET runs = runs + excluded.runs;

-- name: pulse
-- The index is searched once for each series: it begins with that.
SELECT (minute - :first) / :width, beat, sum(runs) FROM pulse
 WHERE series IN (SELECT no FROM series WHERE tenant = :tenant AND (:workflows IS NULL OR workflow IN (SELECT value FROM json_each(:workflows))))
   AND minute >= :first AND minute < :last
 GROUP BY 1, 2;

-- name: has_pulse
SELECT EXISTS (SELECT 1 FROM pulse
                WHERE series IN (SELECT no FROM series) AND minute >= ?1 AND minute < ?2 AND (minute % 60 <> 0 OR NOT ?3));

-- name: add_up_pulse
-- The minutes of whole hours become one row at the first minute of their hour.
INSERT INTO pulse (series, minute, beat, runs)
SELECT series, minute - minute % 60, beat, sum(runs) FROM pulse
 WHERE series IN (SELECT no FROM series) AND minute >= ?1 AND minute < ?2 AND minute % 60 <> 0
 GROUP BY 1, 2, 3
    ON CONFLICT (series, minute, beat) DO UPDATE SET runs = runs + excluded.runs;

-- name: forget_added_up_pulse
DELETE FROM pulse WHERE series IN (SELECT no FROM series) AND minute >= ?1 AND minute < ?2 AND minute % 60 <> 0;

-- name: forget_pulse
DELETE FROM pulse WHERE series IN (SELECT no FROM series) AND minute < ?;

-- name: forget_empty_pulse
-- A number of a series is given out again, perhaps to another tenant.
DELETE FROM pulse WHERE series = ?1 AND NOT EXISTS (SELECT 1 FROM tally WHERE series = ?1);

-- name: run_from
-- The first run from a number on.
SELECT no, created_at FROM run WHERE no >= ? ORDER BY no LIMIT 1;

-- name: last_run
SELECT coalesce(max(no), 0) FROM run;

-- name: run_edges
SELECT r.no, j.at, j.body, CASE WHEN r.finished_at IS NULL THEN NULL ELSE
         (SELECT body FROM journal WHERE run = r.no ORDER BY seq DESC LIMIT 1) END,
       (SELECT again.id FROM run again WHERE again.rerun_of = r.id AND again.tenant = r.tenant ORDER BY again.no DESC LIMIT 1)
  FROM json_each(?) asked CROSS JOIN run r ON r.no = asked.value CROSS JOIN journal j ON j.run = r.no AND j.seq = 1;

-- name: counts
-- By workflow, in the order of their names.
SELECT s.workflow, t.status, sum(t.runs) FROM series s CROSS JOIN tally t ON t.series = s.no
 WHERE s.tenant = ? GROUP BY s.workflow, t.status;

-- name: newest_of_all
-- Of all tenants, and by the runs alone: for checks of the other tables.
SELECT r.no, r.tenant, r.id, version, status, epoch, owner, owner_epoch, wake_at, needs, labels, created_at, finished_at,
       parent_job_id, s.workflow, rerun_of, nullif(s.number, 0), r.schedule, r.slot
  FROM run r LEFT JOIN series s ON s.no = r.series ORDER BY r.no DESC LIMIT ?;

-- name: latest_at
-- The latest time in the rows that were written last. It is in the future where the clock was set back since.
SELECT max(at) FROM (SELECT at FROM journal ORDER BY pos DESC LIMIT ?);

-- name: next_wake
SELECT min(wake_at) FROM run
 WHERE owner IS NULL AND wake_at > ? AND finished_at IS NULL;

-- name: runs_in_need
SELECT no, tenant, needs FROM run
 WHERE needs IS NOT NULL AND owner IS NULL AND finished_at IS NULL
   AND no > ? ORDER BY no LIMIT ?;

-- name: services_in_need
-- The key of a service has eight characters before its name: service:
-- Without the name of its index, SQLite reads every run of the tenant.
SELECT substr(e.key, 9), sum(e.value ->> 0), min(e.value ->> 1) FROM run r INDEXED BY run_needs, json_each(r.needs) e
 WHERE r.needs IS NOT NULL AND r.owner IS NULL AND r.finished_at IS NULL AND r.tenant = ? AND e.key LIKE 'service:%'
 GROUP BY e.key LIMIT ?;

-- name: interruptible_runs
SELECT no FROM run
 WHERE on_restart IS NOT NULL AND finished_at IS NULL AND no > ?
 ORDER BY no LIMIT ?;

-- name: ids_beginning
-- '~' stands behind every character of an id.
SELECT id FROM run WHERE tenant = ?1 AND id >= ?2 AND id < ?2 || '~' ORDER BY id DESC LIMIT ?3;

-- name: ids_ending
-- The end of a UUIDv7 is what tells neighbours apart. No index has it: looked for among the newest.
SELECT id FROM (SELECT id, tenant FROM run ORDER BY no DESC LIMIT ?4)
 WHERE tenant = ?1 AND substr(id, -length(?2)) = ?2 LIMIT ?3;

-- name: finished_before
-- Each with the number of its rows, which is what deleting it costs. A run with an open final callback stays.
SELECT no, (SELECT coalesce(max(seq), 0) FROM journal WHERE journal.run = no) FROM run
 WHERE finished_at < ? AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.run = run.no AND done_at IS NULL)
 ORDER BY finished_at LIMIT ?;

-- name: forget_run_row
-- Every statement whose name begins with forget_run_ is given the number of a finished run that is deleted.
DELETE FROM run WHERE no = ?;

-- name: open_runs
SELECT no FROM run WHERE finished_at IS NULL ORDER BY no;
