-- Many tenants, workflows with numbered releases, and lists that take as long with a million runs as with ten.

-- A workflow may exist before anything of it is published. `version` is what its name means now.
CREATE TABLE workflow_of_now (
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

INSERT INTO workflow_of_now (tenant, name, id, created_at, number, version, published_at)
SELECT tenant, name,
       lower(format('flow-%s-%s-4%s-%s%s-%s', hex(randomblob(4)), hex(randomblob(2)),
                    substr(hex(randomblob(2)), 2), substr('89AB', 1 + abs(random() % 4), 1),
                    substr(hex(randomblob(2)), 2), hex(randomblob(6)))),
       published_at, 1, version, published_at
  FROM workflow;

DROP TABLE workflow;
ALTER TABLE workflow_of_now RENAME TO workflow;
CREATE UNIQUE INDEX workflow_id ON workflow (tenant, id);

-- What was published under a name, or is a draft of it: a number means one content for ever.
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

CREATE UNIQUE INDEX release_id ON release (tenant, id);

INSERT INTO release (tenant, workflow, number, id, version, status, created_at)
SELECT tenant, name, 1, 'ver-' || substr(id, 6), version, 'published', published_at FROM workflow;

-- Runs that are listed and counted together: those of one release of one workflow. Number 0: not of a release, but of
-- a definition that was given whole.
CREATE TABLE series (
  no       INTEGER PRIMARY KEY,
  tenant   TEXT NOT NULL,
  workflow TEXT NOT NULL,
  number   INTEGER NOT NULL,
  UNIQUE (tenant, workflow, number)
);

INSERT INTO series (tenant, workflow, number)
SELECT DISTINCT r.tenant, coalesce(v.name, ''), coalesce(w.number, 0)
  FROM run r
  LEFT JOIN version v ON v.tenant = r.tenant AND v.hash = r.version
  LEFT JOIN workflow w ON w.tenant = r.tenant AND w.name = v.name AND w.version = r.version;

ALTER TABLE run ADD COLUMN series INTEGER;

UPDATE run SET series = (
  SELECT s.no FROM series s
    LEFT JOIN version v ON v.tenant = run.tenant AND v.hash = run.version
    LEFT JOIN workflow w ON w.tenant = run.tenant AND w.name = v.name AND w.version = run.version
   WHERE s.tenant = run.tenant AND s.workflow = coalesce(v.name, '') AND s.number = coalesce(w.number, 0));

-- The one index behind every list: what a list asks for is a few stretches of it, each in the order of creation.
CREATE INDEX run_listed ON run (series, status);

-- How many runs each of those stretches has.
CREATE TABLE tally (
  series INTEGER NOT NULL,
  status TEXT NOT NULL,
  runs   INTEGER NOT NULL,
  PRIMARY KEY (series, status)
) WITHOUT ROWID;

INSERT INTO tally (series, status, runs) SELECT series, status, count(*) FROM run GROUP BY series, status;

-- Labels by which runs are found; only labelled runs have any.
CREATE TABLE label (
  tenant TEXT NOT NULL,
  name   TEXT NOT NULL,
  value  TEXT NOT NULL,
  run    INTEGER NOT NULL,
  PRIMARY KEY (tenant, name, value, run)
) WITHOUT ROWID;

CREATE INDEX label_name ON label (tenant, name, run);
CREATE INDEX label_run ON label (run);

INSERT INTO label (tenant, name, value, run)
SELECT r.tenant, l.key, l.value, r.no FROM run r, json_each(r.labels) l WHERE r.labels IS NOT NULL;

-- Runs as tasks, and what was done for them, attempt by attempt. Told by journal and run rows alone; what needs a fold is
-- null until the task is over. Times are Unix seconds.
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

-- From the inside out: what rows say of an attempt; all of it in one row; that row with the inputs of the first attempt,
-- and with its place: the node, and where inside of it.
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
