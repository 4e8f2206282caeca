-- What a new database is made of. Written by docs/generate.py from migrations/: add a migration, then run it again.

CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value NOT NULL
) WITHOUT ROWID;

CREATE TABLE node (
  name  TEXT PRIMARY KEY,
  epoch INTEGER NOT NULL,
  lane  TEXT
) WITHOUT ROWID;

CREATE TABLE version (
  tenant     TEXT NOT NULL,
  hash       TEXT NOT NULL,
  name       TEXT NOT NULL,
  definition TEXT NOT NULL,
  created_at INTEGER NOT NULL, uses TEXT, source TEXT,
  PRIMARY KEY (tenant, hash)
) WITHOUT ROWID;

CREATE TABLE run (
  no          INTEGER PRIMARY KEY,
  tenant      TEXT NOT NULL,
  id          TEXT NOT NULL,
  version     TEXT NOT NULL,
  status      TEXT NOT NULL,
  owner       TEXT,
  owner_epoch INTEGER,
  epoch       INTEGER NOT NULL DEFAULT 0,
  wake_at     INTEGER,
  needs       TEXT,
  on_restart  TEXT,
  labels      TEXT,
  created_at  INTEGER NOT NULL,
  finished_at INTEGER, parent_job_id TEXT, rerun_of TEXT, series INTEGER, schedule TEXT, slot TEXT, is_catchup INTEGER,
  UNIQUE (tenant, id)
);

CREATE TABLE journal (
  pos   INTEGER PRIMARY KEY,
  run   INTEGER NOT NULL,
  seq   INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  at    INTEGER NOT NULL,
  kind  TEXT NOT NULL,
  body  TEXT NOT NULL,
  UNIQUE (run, seq)
);

CREATE TABLE snapshot (
  run  INTEGER NOT NULL,
  part INTEGER NOT NULL,
  seq  INTEGER NOT NULL,
  body BLOB NOT NULL,
  PRIMARY KEY (run, part)
);

CREATE TABLE blob (
  run    INTEGER NOT NULL,
  sha256 TEXT NOT NULL,
  body   BLOB NOT NULL,
  PRIMARY KEY (run, sha256)
);

CREATE TABLE request (
  tenant     TEXT NOT NULL,
  id         TEXT NOT NULL,
  digest     TEXT NOT NULL,
  run        INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (tenant, id)
) WITHOUT ROWID;

CREATE TABLE artefact (
  run        INTEGER NOT NULL,
  sha256     TEXT NOT NULL,
  size       INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (run, sha256)
) WITHOUT ROWID;

CREATE TABLE "workflow" (
  tenant       TEXT NOT NULL,
  name         TEXT NOT NULL,
  id           TEXT NOT NULL,
  description  TEXT NOT NULL DEFAULT '',
  created_at   INTEGER NOT NULL,
  number       INTEGER,
  version      TEXT,
  published_at INTEGER,
  PRIMARY KEY (tenant, name)
) WITHOUT ROWID;

CREATE TABLE release (
  tenant     TEXT NOT NULL,
  workflow   TEXT NOT NULL,
  number     INTEGER NOT NULL,
  id         TEXT NOT NULL,
  version    TEXT NOT NULL,
  status     TEXT NOT NULL CHECK (status IN ('draft', 'published')),
  created_at INTEGER NOT NULL,
  PRIMARY KEY (tenant, workflow, number)
) WITHOUT ROWID;

CREATE TABLE series (
  no       INTEGER PRIMARY KEY,
  tenant   TEXT NOT NULL,
  workflow TEXT NOT NULL,
  number   INTEGER NOT NULL,
  UNIQUE (tenant, workflow, number)
);

CREATE TABLE tally (
  series INTEGER NOT NULL,
  status TEXT NOT NULL,
  runs   INTEGER NOT NULL,
  PRIMARY KEY (series, status)
) WITHOUT ROWID;

CREATE TABLE label (
  tenant TEXT NOT NULL,
  name   TEXT NOT NULL,
  value  TEXT NOT NULL,
  run    INTEGER NOT NULL,
  PRIMARY KEY (tenant, name, value, run)
) WITHOUT ROWID;

CREATE TABLE worker (
  tenant        TEXT NOT NULL,
  id            TEXT NOT NULL,
  kind          TEXT NOT NULL CHECK (kind IN ('http', 'pull')),
  url           TEXT NOT NULL,
  services      TEXT NOT NULL,
  status        TEXT NOT NULL CHECK (status IN ('online', 'offline')),
  place         INTEGER NOT NULL,
  key_id        TEXT NOT NULL,
  is_trusted    INTEGER NOT NULL,
  heard_at      INTEGER NOT NULL,
  PRIMARY KEY (tenant, id)
) WITHOUT ROWID;

CREATE TABLE assignment (
  run        INTEGER NOT NULL,
  path       TEXT NOT NULL,
  attempt    INTEGER NOT NULL,
  service    TEXT NOT NULL,
  worker     TEXT NOT NULL,
  token      TEXT NOT NULL,
  offers     INTEGER NOT NULL,
  claimed_at INTEGER NOT NULL,
  PRIMARY KEY (run, path, attempt)
) WITHOUT ROWID;

CREATE TABLE api_key (
  tenant       TEXT NOT NULL,
  id           TEXT NOT NULL,
  name         TEXT NOT NULL,
  hash         TEXT NOT NULL UNIQUE,
  scopes       TEXT NOT NULL,  -- words with a space between them
  services     TEXT NOT NULL,  -- the same; '' is every service
  created_at   INTEGER NOT NULL,
  expires_at   INTEGER,
  last_used_at INTEGER,
  revoked_at   INTEGER, tools TEXT, workflows TEXT, skips_gate INTEGER NOT NULL DEFAULT 1,
  PRIMARY KEY (tenant, id)
) WITHOUT ROWID;

CREATE TABLE trace (
  run    INTEGER PRIMARY KEY,
  parent TEXT NOT NULL
);

CREATE TABLE "wait" (
  pos         INTEGER PRIMARY KEY,
  tenant      TEXT NOT NULL,
  kind        TEXT NOT NULL CHECK (kind IN ('key', 'callback', 'signal', 'approval', 'condition')),
  scope       TEXT NOT NULL DEFAULT '',
  name        TEXT NOT NULL,
  run         INTEGER NOT NULL,
  path        TEXT NOT NULL,
  attempt     INTEGER NOT NULL DEFAULT 0,
  since       INTEGER NOT NULL,
  expires_at  INTEGER,
  detail      TEXT,
  resolved_at INTEGER,
  outcome     TEXT,
  UNIQUE (run, path, attempt, kind)
);

CREATE TABLE outbox (
  pos        INTEGER PRIMARY KEY,
  tenant     TEXT NOT NULL,
  id         TEXT NOT NULL,
  run        INTEGER NOT NULL,
  n          INTEGER NOT NULL,
  url        TEXT NOT NULL,
  origin     TEXT NOT NULL,
  secret_env TEXT,
  created_at INTEGER NOT NULL,
  tries      INTEGER NOT NULL DEFAULT 0,
  due_at     INTEGER NOT NULL,
  done_at    INTEGER,
  outcome    TEXT CHECK (outcome IN ('delivered', 'dead', 'discarded')),
  last_error TEXT NOT NULL DEFAULT '',
  CHECK ((done_at IS NULL) = (outcome IS NULL)),
  UNIQUE (run, n),
  UNIQUE (tenant, id)
);

CREATE TABLE schedule (
  tenant     TEXT NOT NULL,
  id         TEXT NOT NULL,
  kind       TEXT NOT NULL,
  origin     TEXT NOT NULL CHECK (origin IN ('file', 'api', 'plugin', 'code')),
  source     TEXT NOT NULL DEFAULT '',
  priority   INTEGER NOT NULL DEFAULT 1000,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  body       TEXT NOT NULL,
  PRIMARY KEY (tenant, id)
);

CREATE TABLE cursor (
  tenant      TEXT NOT NULL,
  schedule    TEXT NOT NULL,
  slot        TEXT NOT NULL,
  revision    INTEGER NOT NULL,
  next_at     INTEGER,
  owes        INTEGER NOT NULL DEFAULT 0,
  body        TEXT NOT NULL,
  error_count INTEGER NOT NULL DEFAULT 0,
  failures    INTEGER NOT NULL DEFAULT 0,
  last_error  TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (tenant, schedule, slot)
) WITHOUT ROWID;

CREATE TABLE ledger (
  pos          INTEGER PRIMARY KEY,
  tenant       TEXT NOT NULL,
  schedule     TEXT NOT NULL,
  slot         TEXT NOT NULL,
  occurrence   TEXT NOT NULL,
  outcome      TEXT NOT NULL CHECK (outcome IN ('fired', 'skipped', 'failed', 'buffered')),
  reason       TEXT NOT NULL DEFAULT '',
  scheduled_at INTEGER NOT NULL,
  until        INTEGER,
  times        INTEGER NOT NULL DEFAULT 1,
  at           INTEGER NOT NULL,
  run          INTEGER,
  is_catchup   INTEGER NOT NULL DEFAULT 0,
  detail       TEXT,
  reply        BLOB,
  payload      BLOB,
  CHECK ((outcome = 'fired') = (run IS NOT NULL) OR slot = 'sink'),
  UNIQUE (tenant, schedule, slot, occurrence)
);

CREATE TABLE log (
  run     INTEGER NOT NULL,
  n       INTEGER NOT NULL,
  path    TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  at      INTEGER NOT NULL,
  level   TEXT NOT NULL,
  text    TEXT NOT NULL,
  PRIMARY KEY (run, n)
) WITHOUT ROWID;

CREATE TABLE mail (
  pos   INTEGER PRIMARY KEY,
  run   INTEGER NOT NULL,
  dedup TEXT NOT NULL,
  at    INTEGER NOT NULL,
  body  TEXT NOT NULL,
  UNIQUE (run, dedup)
);

CREATE TABLE pulse (
  series INTEGER NOT NULL,
  minute INTEGER NOT NULL,
  beat   INTEGER NOT NULL,
  runs   INTEGER NOT NULL,
  PRIMARY KEY (series, minute, beat)
) WITHOUT ROWID;

CREATE TABLE board (
  run  INTEGER NOT NULL,
  part TEXT NOT NULL,
  body BLOB NOT NULL,
  PRIMARY KEY (run, part)
);

CREATE TABLE "early_result" (
  tenant     TEXT NOT NULL,
  task_id    TEXT NOT NULL,
  meant      TEXT NOT NULL,  -- the id of the run that it is for; '' where its sender did not say
  expires_at INTEGER NOT NULL,
  body       TEXT NOT NULL,
  PRIMARY KEY (tenant, task_id, meant)
);

CREATE TABLE "key" (
  tenant     TEXT NOT NULL,
  scope      TEXT NOT NULL,
  key        TEXT NOT NULL,
  run        INTEGER NOT NULL,
  path       TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER,
  output     BLOB,
  PRIMARY KEY (tenant, scope, key)
);

CREATE TABLE "reply" (
  tenant     TEXT NOT NULL,
  route      TEXT NOT NULL,
  key        TEXT NOT NULL,
  digest     TEXT NOT NULL,  -- of the address and the body
  status     INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  body       BLOB NOT NULL,
  PRIMARY KEY (tenant, route, key)
);

CREATE INDEX run_owned ON run (no)
  WHERE owner IS NOT NULL AND finished_at IS NULL;

CREATE INDEX run_due ON run (wake_at)
  WHERE owner IS NULL AND wake_at IS NOT NULL AND finished_at IS NULL;

CREATE INDEX run_needs ON run (no)
  WHERE needs IS NOT NULL AND finished_at IS NULL;

CREATE INDEX run_interruptible ON run (no)
  WHERE on_restart IS NOT NULL AND finished_at IS NULL;

CREATE INDEX request_run ON request (run);

CREATE INDEX run_finished ON run (finished_at) WHERE finished_at IS NOT NULL;

CREATE INDEX artefact_sha256 ON artefact (sha256);

CREATE UNIQUE INDEX workflow_id ON workflow (tenant, id);

CREATE UNIQUE INDEX release_id ON release (tenant, id);

CREATE INDEX run_listed ON run (series, status);

CREATE INDEX label_name ON label (tenant, name, run);

CREATE INDEX label_run ON label (run);

CREATE INDEX run_resting ON run (no)
  WHERE owner IS NULL AND wake_at IS NULL AND finished_at IS NULL;

CREATE INDEX wait_name ON wait (tenant, kind, scope, name, pos);

CREATE INDEX wait_open ON wait (tenant, kind, pos) WHERE resolved_at IS NULL;

CREATE INDEX outbox_due ON outbox (due_at, pos) WHERE done_at IS NULL;

CREATE INDEX outbox_dead ON outbox (tenant, pos) WHERE outcome = 'dead';

CREATE INDEX schedule_kind ON schedule (kind, tenant, id);

CREATE INDEX cursor_next ON cursor (next_at) WHERE next_at IS NOT NULL;

CREATE INDEX cursor_owes ON cursor (tenant, schedule, slot) WHERE owes;

CREATE INDEX ledger_listed ON ledger (tenant, schedule);

CREATE INDEX ledger_unfired ON ledger (tenant, schedule) WHERE outcome <> 'fired';

CREATE INDEX ledger_buffered ON ledger (tenant, schedule, slot) WHERE outcome = 'buffered';

CREATE INDEX ledger_old ON ledger (at) WHERE run IS NULL;

CREATE INDEX ledger_run ON ledger (run) WHERE run IS NOT NULL;

CREATE INDEX run_schedule ON run (tenant, schedule, slot, is_catchup, finished_at)
  WHERE schedule IS NOT NULL AND finished_at IS NULL;

CREATE INDEX wait_due ON wait (tenant, kind, coalesce(expires_at, 9000000000000000), pos) WHERE resolved_at IS NULL;

CREATE INDEX run_rerun ON run (rerun_of) WHERE rerun_of IS NOT NULL;

CREATE INDEX early_result_expires ON early_result (expires_at);

CREATE INDEX key_run ON key (run);

CREATE INDEX key_expires ON key (expires_at) WHERE expires_at IS NOT NULL;

CREATE INDEX reply_by_age ON reply (created_at);

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

CREATE VIEW tasks (id, flow_version_id, status, params_json, shared_json, current_node_key, last_action, step_count,
                   retry_state_json, lease_owner, lease_expiry, request_id, created_at, updated_at, flow_id, flow_name,
                   flow_version) AS
SELECT r.id,
       (SELECT v.id FROM release v WHERE v.tenant = r.tenant AND v.workflow = s.workflow AND v.number = s.number),
       CASE r.status WHEN 'waiting' THEN 'running' WHEN 'cancelling' THEN 'canceling' WHEN 'cancelled' THEN 'canceled'
                     WHEN 'interrupted' THEN 'failed' ELSE r.status END,
       (SELECT coalesce((SELECT CAST(b.body AS TEXT) FROM blob b
                          WHERE b.run = r.no AND b.sha256 = j.body ->> '$[1][1]."$blob"'), j.body -> '$[1][1]')
          FROM journal j WHERE j.run = r.no AND j.seq = 1),
       iif(r.status <> 'completed', NULL, (
         SELECT coalesce((SELECT CAST(b.body AS TEXT) FROM blob b
                           WHERE b.run = r.no AND b.sha256 = d.value ->> '$[2]."$blob"'), d.value -> 2)
           FROM json_each((SELECT body FROM journal WHERE run = r.no ORDER BY seq DESC LIMIT 1), '$[2]') d
          WHERE d.value ->> 0 = 'finish' AND d.value -> 2 <> 'null')),
       iif(r.finished_at IS NULL, NULL, ''),
       iif(r.finished_at IS NULL, NULL, coalesce((
         SELECT d.value ->> 2 FROM journal j CROSS JOIN json_each(j.body, '$[2]') d
          WHERE j.run = r.no AND d.value ->> 0 = 'take' AND instr(d.value ->> 1, '.') = 0
          ORDER BY j.seq DESC, d.key DESC LIMIT 1), '')),
       iif(r.finished_at IS NULL, NULL, (
         SELECT count(*) FROM journal j CROSS JOIN json_each(j.body, '$[2]') d
          WHERE j.run = r.no AND d.value ->> 0 IN ('complete', 'fail') AND instr(d.value ->> 1, '.') = 0
            AND d.value ->> 1 NOT LIKE '%]') + (
         SELECT count(*) FROM journal j
          WHERE j.run = r.no AND j.kind IN ('step_succeeded', 'callback_received') AND instr(j.body ->> '$[1][1]', '.') = 0
            AND json_array_length(j.body, '$[2]') > 0)),
       iif(r.finished_at IS NULL, NULL, '{}'),
       r.owner,
       NULL,
       (SELECT q.id FROM request q WHERE q.run = r.no LIMIT 1),
       r.created_at / 1000,
       (SELECT j.at FROM journal j WHERE j.run = r.no ORDER BY j.seq DESC LIMIT 1) / 1000,
       (SELECT w.id FROM workflow w WHERE w.tenant = r.tenant AND w.name = s.workflow),
       s.workflow,
       nullif(s.number, 0)
  FROM run r LEFT JOIN series s ON s.no = r.series;

CREATE VIEW node_runs (id, task_id, node_key, attempt_no, status, prep_json, exec_input_json, exec_output_json, error_text,
                       action, started_at, finished_at, worker_id, worker_url, sub_status, branch_id) AS
SELECT format('run-%s:%s:%d', task_id, path, attempt),
       task_id,
       key,
       attempt,
       status,
       coalesce(given -> '$.input', given),
       given,
       iif(status = 'ok', output, NULL),
       iif(status = 'error', error, NULL),
       action,
       started / 1000,
       ended / 1000,
       worker_id,
       worker_url,
       CASE WHEN branch IS NULL OR ended IS NULL THEN NULL
            WHEN branch NOT GLOB '*[^0-9]*' THEN 'branch_complete' ELSE 'sub_node_complete' END,
       branch
  FROM (SELECT *,
               CASE WHEN path LIKE '["%"]' THEN path ->> 0
                    ELSE substr(top, 1, coalesce(nullif(min(instr(top || '~', '~'), instr(top || '[', '[')), 0), 1) - 1) END AS key,
               nullif(iif(top LIKE '%]' AND top NOT LIKE '["%', substr(top, instr(top, '[') + 1, length(top) - instr(top, '[') - 1), '')
                      || CASE WHEN inner = '' OR top LIKE '%]' AND inner = 'call' THEN ''
                              WHEN top LIKE '%]' AND top NOT LIKE '["%' THEN '.' || inner
                              WHEN instr(inner, '.') = 0 AND instr(inner, '~') > 0 THEN substr(inner, 1, instr(inner, '~') - 1)
                              ELSE inner END, '') AS branch
          FROM (SELECT task_id, seq, ord, path, attempt, started,
                       CASE WHEN ok IS NOT NULL AND failed IS NULL THEN 'ok'
                            WHEN failed IS NOT NULL OR finished_at IS NOT NULL THEN 'error' ELSE 'running' END AS status,
                       coalesce(ok, failed, finished_at) AS ended,
                       max(inputs) OVER (PARTITION BY task_id, path) AS given,
                       output,
                       coalesce(error, iif(run_status = 'cancelled', 'canceled', 'it was stopped')) AS error,
                       action, worker_id, worker_url,
                       iif(path LIKE '["%"]', path, substr(path, 1, instr(path || '.', '.') - 1)) AS top,
                       iif(path LIKE '["%"]', '', substr(path, instr(path || '.', '.') + 1)) AS inner
                  FROM (SELECT task_id, path, attempt, min(seq) AS seq, min(ord) AS ord, finished_at, run_status,
                               min(iif(what = 'start', at, NULL)) AS started,
                               max(iif(what = 'start', value, NULL)) AS inputs,
                               max(iif(what = 'ok', at, NULL)) AS ok,
                               max(iif(what = 'ok', value, NULL)) AS output,
                               min(iif(what = 'error', at, NULL)) AS failed,
                               min(iif(what = 'error', value, NULL)) AS error,
                               max(action) AS action, max(worker_id) AS worker_id, max(worker_url) AS worker_url,
                               max(what = 'released') AS is_released
                          FROM (
      SELECT r.id AS task_id, r.finished_at, r.status AS run_status, j.seq, d.key AS ord, j.at, 'start' AS what,
             d.value ->> 1 AS path, iif(d.value ->> 0 = 'start', d.value ->> 2, 1) AS attempt,
             iif(d.value ->> 0 = 'start', nullif(d.value -> 3, 'null'), NULL) AS value,
             NULL AS action, NULL AS worker_id, NULL AS worker_url
        FROM run r CROSS JOIN journal j CROSS JOIN json_each(j.body, '$[2]') d
       WHERE j.run = r.no AND (d.value ->> 0 IN ('start', 'open') OR d.value ->> 0 = 'timer' AND d.value ->> 2 = 'delay'
          OR d.value ->> 0 = 'wait' AND d.value ->> 2 <> 'callback'
          OR d.value ->> 0 = 'complete' AND (d.value ->> 1 NOT LIKE '%]' OR d.value ->> 1 LIKE '%"]'))
      UNION ALL
      SELECT r.id, r.finished_at, r.status, j.seq, -1, j.at, iif(j.kind = 'step_succeeded', 'ok', 'error'),
             j.body ->> '$[1][1]', j.body ->> '$[1][2]',
             iif(j.kind = 'step_succeeded', coalesce((SELECT CAST(b.body AS TEXT) FROM blob b
                    WHERE b.run = r.no AND b.sha256 = j.body ->> '$[1][3]."$blob"'), j.body -> '$[1][3]'),
                 j.body ->> '$[1][3].message'),
             (SELECT d.value ->> 2 FROM json_each(j.body, '$[2]') d
               WHERE d.value ->> 0 = 'take' AND d.value ->> 1 = j.body ->> '$[1][1]'),
             nullif(j.body ->> '$[1][5][0]', ''), nullif(j.body ->> '$[1][5][1]', '')
        FROM run r CROSS JOIN journal j
       WHERE j.run = r.no AND j.kind IN ('step_succeeded', 'step_failed')
      UNION ALL
      SELECT r.id, r.finished_at, r.status, j.seq, -1, j.at, iif(j.body -> '$[1][4]' <> 'null', 'error', 'ok'),
             j.body ->> '$[1][1]', j.body ->> '$[1][2]',
             iif(j.body -> '$[1][4]' <> 'null', j.body ->> '$[1][4].message',
                 coalesce((SELECT CAST(b.body AS TEXT) FROM blob b
                            WHERE b.run = r.no AND b.sha256 = j.body ->> '$[1][3]."$blob"'), j.body -> '$[1][3]')),
             (SELECT d.value ->> 2 FROM json_each(j.body, '$[2]') d
               WHERE d.value ->> 0 = 'take' AND d.value ->> 1 = j.body ->> '$[1][1]'),
             NULL, NULL
        FROM run r CROSS JOIN journal j
       WHERE j.run = r.no AND j.kind = 'callback_received'
      UNION ALL
      SELECT r.id, r.finished_at, r.status, j.seq, -1, j.at, 'released', j.body ->> '$[1][1]', j.body ->> '$[1][2]',
             NULL, NULL, NULL, NULL
        FROM run r CROSS JOIN journal j
       WHERE j.run = r.no AND j.kind = 'attempt_released'
      UNION ALL
      SELECT r.id, r.finished_at, r.status, j.seq, -1, j.at, 'error', lost.value,
             (SELECT max(d.value ->> 2) FROM journal o CROSS JOIN json_each(o.body, '$[2]') d
               WHERE o.run = r.no AND o.seq < j.seq AND d.value ->> 0 = 'start' AND d.value ->> 1 = lost.value),
             'it was lost with its process', NULL, NULL, NULL
        FROM run r CROSS JOIN journal j CROSS JOIN json_each(j.body, '$[1][1]') lost
       WHERE j.run = r.no AND j.kind = 'adopted'
      UNION ALL
      SELECT r.id, r.finished_at, r.status, j.seq, d.key, j.at, iif(d.value ->> 0 = 'fail', 'error', 'ok'),
             d.value ->> 1, 1,
             iif(d.value ->> 0 = 'fail', d.value ->> '$[2].message', coalesce((SELECT CAST(b.body AS TEXT) FROM blob b
                    WHERE b.run = r.no AND b.sha256 = d.value ->> '$[2]."$blob"'), d.value -> 2)),
             (SELECT t.value ->> 2 FROM json_each(j.body, '$[2]') t
               WHERE t.value ->> 0 = 'take' AND t.value ->> 1 = d.value ->> 1),
             NULL, NULL
        FROM run r CROSS JOIN journal j CROSS JOIN json_each(j.body, '$[2]') d
       WHERE j.run = r.no AND d.value ->> 0 IN ('complete', 'fail')
         AND (d.value ->> 1 NOT LIKE '%]' OR d.value ->> 1 LIKE '%"]')
         AND d.value ->> 1 <> coalesce(iif(j.kind IN ('step_succeeded', 'step_failed', 'callback_received'), j.body ->> '$[1][1]', NULL), '')
                               )
                         GROUP BY task_id, path, attempt)
                 WHERE NOT is_released AND started IS NOT NULL))
UNION ALL
-- The one that tells of the end of a task that was canceled.
SELECT format('run-%s::0', r.id), r.id, coalesce((
         SELECT iif(instr(d.value ->> 1, '.'), substr(d.value ->> 1, 1, instr(d.value ->> 1, '.') - 1), d.value ->> 1)
           FROM journal j CROSS JOIN json_each(j.body, '$[2]') d
          WHERE j.run = r.no AND d.value ->> 0 IN ('start', 'open', 'timer') AND d.value ->> 1 <> ''
          ORDER BY j.seq DESC, d.key DESC LIMIT 1), ''),
       0, 'canceled', NULL, NULL, NULL, NULL, 'canceled', r.finished_at / 1000, r.finished_at / 1000, NULL, NULL, NULL, NULL
  FROM run r WHERE r.status = 'cancelled';

INSERT INTO meta VALUES ('epoch', 0);
