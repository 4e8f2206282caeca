-- What users name: published workflows, their own ids of starts, the job above a run; and runs as two plain tables.

ALTER TABLE run ADD COLUMN parent_job_id TEXT;

-- What a name means now. The versions it ever meant stay in `version`, which nobody changes.
CREATE TABLE workflow (
  tenant       TEXT NOT NULL,
  name         TEXT NOT NULL,
  version      TEXT NOT NULL,
  published_at INTEGER NOT NULL,
  PRIMARY KEY (tenant, name)
) WITHOUT ROWID;

-- Written with the run that it made: whoever asks again under this id gets that run.
CREATE TABLE request (
  tenant     TEXT NOT NULL,
  id         TEXT NOT NULL,
  digest     TEXT NOT NULL,
  run        INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (tenant, id)
) WITHOUT ROWID;

CREATE INDEX request_run ON request (run);

-- One row per step per transition, told by the journal alone. From the inside out: what rows say of a path, without
-- the answers of attempts that were not the current one; what stood before it; what state that makes. Every window is
-- over (workflow_id, path), and CROSS JOIN keeps the order of tables, so that asking for one workflow reads the journal
-- of one run.
-- The output of a loop or of parallel branches is gathered from its leaves when it is read and stands in no row: null here.
CREATE VIEW workflow_steps (workflow_id, step_id, status, attempt, result_json, updated_at) AS
SELECT workflow_id,
       path,
       CASE WHEN closes THEN 'cancelled' ELSE state END,
       coalesce(current, 0),
       CASE WHEN closes OR state NOT IN ('completed', 'failed', 'retrying') THEN NULL
            ELSE coalesce((SELECT CAST(b.body AS TEXT) FROM blob b
                            WHERE b.run = told.run AND b.sha256 = told.value ->> '$."$blob"'), value) END,
       strftime('%Y-%m-%dT%H:%M:%fZ', CASE WHEN closes THEN finished_at ELSE at END / 1000.0, 'unixepoch')
  FROM (SELECT *, lead(tag) OVER (PARTITION BY workflow_id, path ORDER BY seq, ord) IS NULL
                  AND finished_at IS NOT NULL AND state NOT IN ('completed', 'failed', 'cancelled') AS is_left_open
          FROM (SELECT *, CASE
                  WHEN fails THEN NULL  -- what the next one of the same row says counts
                  WHEN tag = 'start' OR tag = 'open' THEN 'running'
                  WHEN tag = 'timer' THEN 'waiting'
                  WHEN tag = 'reserve' THEN 'ready'
                  WHEN tag = 'key_held' THEN iif(before = 'reserve', 'waiting', NULL)
                  WHEN tag = 'complete' OR tag = 'copied' THEN 'completed'
                  WHEN tag = 'fail' THEN 'failed'
                  WHEN tag = 'stop' THEN iif(before IN ('start', 'stop'), NULL, 'cancelled')
                  WHEN before = 'start' THEN
                    CASE tag WHEN 'step_succeeded' THEN 'completed' WHEN 'step_failed' THEN 'retrying'
                             WHEN 'timer_fired' THEN NULL ELSE 'ready' END
                  WHEN before = 'stop' AND before_that IN ('start', 'stop') THEN
                    CASE WHEN aim_before = path THEN 'retrying' WHEN tag = 'timer_fired' THEN NULL ELSE 'cancelled' END
                END AS state
                  FROM (SELECT *,
                               lag(tag) OVER (PARTITION BY workflow_id, path ORDER BY seq, ord) AS before,
                               lag(tag, 2) OVER (PARTITION BY workflow_id, path ORDER BY seq, ord) AS before_that,
                               lag(aim) OVER (PARTITION BY workflow_id, path ORDER BY seq, ord) AS aim_before,
                               lead(seq) OVER (PARTITION BY workflow_id, path ORDER BY seq, ord) = seq
                                 AND lead(tag) OVER (PARTITION BY workflow_id, path ORDER BY seq, ord) = 'fail' AS fails
                          FROM (SELECT *, max(iif(tag = 'start', attempt, NULL)) OVER (
                                  PARTITION BY workflow_id, path ORDER BY seq, ord) AS current
                                  FROM (
      SELECT r.id AS workflow_id, r.finished_at, j.run, j.seq, -1 AS ord, j.at, j.kind AS tag,
             j.body ->> '$[1][1]' AS path, j.body ->> '$[1][2]' AS attempt, j.body -> '$[1][3]' AS value, NULL AS aim
        FROM run r CROSS JOIN journal j
       WHERE j.run = r.no AND j.kind IN ('step_succeeded', 'step_failed', 'attempt_released')
      UNION ALL
      SELECT r.id, r.finished_at, j.run, j.seq, -1, j.at, j.kind, j.body ->> '$[1][1]', NULL, NULL, NULL
        FROM run r CROSS JOIN journal j
       WHERE j.run = r.no AND j.kind = 'timer_fired' AND j.body ->> '$[1][2]' = 'grace'
      UNION ALL
      SELECT r.id, r.finished_at, j.run, j.seq, -1, j.at, j.kind, j.body ->> '$[1][1]', NULL, NULL, NULL
        FROM run r CROSS JOIN journal j
       WHERE j.run = r.no AND j.kind = 'key_held'
      UNION ALL
      SELECT r.id, r.finished_at, j.run, j.seq, -1, j.at, 'copied', copied.key, NULL, j.body -> copied.fullkey, NULL
        FROM run r CROSS JOIN journal j CROSS JOIN json_each(j.body, '$[1][4]') copied
       WHERE j.run = r.no AND j.seq = 1
      UNION ALL
      SELECT r.id, r.finished_at, j.run, j.seq, -1, j.at, j.kind, lost.value, NULL, NULL, NULL
        FROM run r CROSS JOIN journal j CROSS JOIN json_each(j.body, '$[1][1]') lost
       WHERE j.run = r.no AND j.kind = 'adopted'
      UNION ALL
      SELECT r.id, r.finished_at, j.run, j.seq, d.key, j.at, d.value ->> 0, d.value ->> 1,
             iif(d.value ->> 0 = 'start', d.value ->> 2, NULL),
             CASE d.value ->> 0 WHEN 'fail' THEN d.value -> 2
                                WHEN 'complete' THEN iif(d.value ->> 4, NULL, d.value -> 2) END,
             iif(d.value ->> 0 = 'stop', d.value ->> 2, NULL)
        FROM run r CROSS JOIN journal j CROSS JOIN json_each(j.body, '$[2]') d
       WHERE j.run = r.no AND (d.value ->> 0 IN ('start', 'stop', 'open', 'reserve')
          OR d.value ->> 0 = 'timer' AND d.value ->> 2 = 'delay'
          -- A child of a fan-out is named like its frame, loop[3], and is no step.
          OR d.value ->> 0 IN ('complete', 'fail') AND (d.value ->> 1 NOT LIKE '%]' OR d.value ->> 1 LIKE '%"]'))
                                  ))
                         WHERE tag NOT IN ('step_succeeded', 'step_failed', 'attempt_released') OR attempt = current))
         WHERE state IS NOT NULL) told
  -- What was open when the run ended was cancelled by that, and no row says so for each.
  JOIN (SELECT 0 AS closes UNION ALL SELECT 1) ON closes = 0 OR is_left_open;

CREATE VIEW workflows (workflow_id, root_job_id, spec_json, inputs_json, status, current_step_id, step_outputs_json,
                       created_at, completed_at) AS
SELECT r.id,
       r.id,
       (SELECT definition FROM version v WHERE v.tenant = r.tenant AND v.hash = r.version),
       (SELECT coalesce((SELECT CAST(b.body AS TEXT) FROM blob b
                          WHERE b.run = r.no AND b.sha256 = j.body ->> '$[1][1]."$blob"'), j.body -> '$[1][1]')
          FROM journal j WHERE j.run = r.no AND j.seq = 1),
       CASE WHEN r.status IN ('waiting', 'cancelling') THEN 'running' ELSE r.status END,
       iif(r.finished_at IS NULL, NULL, coalesce(
         (SELECT nullif(d.value ->> '$[3].path', '') FROM json_each(
            (SELECT body FROM journal WHERE run = r.no ORDER BY seq DESC LIMIT 1), '$[2]') d
           WHERE d.value ->> 0 = 'finish'),
         (SELECT j.body ->> '$[1][1]' FROM journal j
           WHERE j.run = r.no AND j.kind IN ('step_succeeded', 'step_failed', 'timer_fired')
             AND j.body ->> '$[1][1]' <> ''
           ORDER BY j.seq DESC LIMIT 1))),
       iif(r.finished_at IS NULL, NULL, (
         SELECT json_group_object(iif(path LIKE '["%', path ->> 0, path), json(coalesce(
                  (SELECT CAST(b.body AS TEXT) FROM blob b WHERE b.run = r.no AND b.sha256 = value ->> '$."$blob"'),
                  value)))
           FROM (
      -- An answer that counted: the row decides something, not about this very step (it is tried again, or fails), and
      -- the run was not being stopped.
      SELECT j.seq, j.body ->> '$[1][1]' AS path, j.body -> '$[1][3]' AS value
        FROM journal j
       WHERE j.run = r.no AND j.kind = 'step_succeeded' AND json_array_length(j.body, '$[2]') > 0
         AND NOT EXISTS (SELECT 1 FROM json_each(j.body, '$[2]') d
                          WHERE d.value ->> 1 = j.body ->> '$[1][1]'
                             OR d.value ->> 0 = 'finish'
                                AND (d.value ->> 1 = 'cancelled' OR d.value ->> '$[3].kind' = 'run_timeout'))
      UNION ALL
      SELECT j.seq, copied.key, j.body -> copied.fullkey
        FROM journal j CROSS JOIN json_each(j.body, '$[1][4]') copied
       WHERE j.run = r.no AND j.seq = 1
      UNION ALL
      SELECT j.seq, d.value ->> 1, iif(d.value ->> 4, NULL, d.value -> 2)
        FROM journal j CROSS JOIN json_each(j.body, '$[2]') d
       WHERE j.run = r.no AND d.value ->> 0 = 'complete'
         AND (d.value ->> 1 NOT LIKE '%]' OR d.value ->> 1 LIKE '%"]')
                ORDER BY seq)
          WHERE path NOT LIKE '%.%' OR path LIKE '["%"]' AND path NOT LIKE '%"].%')),
       strftime('%Y-%m-%dT%H:%M:%fZ', r.created_at / 1000.0, 'unixepoch'),
       strftime('%Y-%m-%dT%H:%M:%fZ', r.finished_at / 1000.0, 'unixepoch')
  FROM run r;
