-- Runs, steps and node runs as plain tables for readers that ask in SQL: those of SQLite (002_door.sql, 004_centre.sql), column by
-- column. What a statement below says without a comment is said there.

-- A journal row as JSON. A string of it may hold the character NUL, which text of PostgreSQL cannot have.
CREATE FUNCTION journal_json(body text) RETURNS json LANGUAGE sql IMMUTABLE RETURN
  (CASE WHEN strpos(body, '\u0000') = 0 THEN body ELSE regexp_replace(body, '(?<!\\)((?:\\\\)*)\\u0000', '\1�', 'g') END)::json;

-- A value of a run, also if it is too large for its row.
CREATE FUNCTION whole_value(run bigint, value json) RETURNS text LANGUAGE sql STABLE RETURN
  coalesce((SELECT convert_from(b.body, 'UTF8') FROM blob b WHERE b.run = whole_value.run AND b.sha256 = value ->> '$blob'), value::text);

-- A frame of a fan-out, loop[3], is named like a child of it and is no step; ["a]"] is one.
CREATE FUNCTION is_step(path text) RETURNS boolean LANGUAGE sql IMMUTABLE RETURN path NOT LIKE '%]' OR path LIKE '%"]';

CREATE FUNCTION instant(ms bigint) RETURNS text LANGUAGE sql IMMUTABLE RETURN
  to_char(timestamp '1970-01-01' + ms * interval '1 millisecond', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');

CREATE VIEW workflow_steps (workflow_id, step_id, status, attempt, result_json, updated_at) AS
SELECT workflow_id,
       path,
       CASE WHEN closes THEN 'cancelled' ELSE state END,
       coalesce(started, 0),
       CASE WHEN closes OR state NOT IN ('completed', 'failed', 'retrying') THEN NULL ELSE whole_value(run, value) END,
       instant(CASE WHEN closes THEN finished_at ELSE at END)
  FROM (SELECT *, lead(tag) OVER steps IS NULL AND finished_at IS NOT NULL AND state NOT IN ('completed', 'failed', 'cancelled') AS is_left_open
          FROM (SELECT *, CASE
                  WHEN fails THEN NULL  -- what the next one of the same row says counts
                  WHEN tag IN ('start', 'open') THEN 'running'
                  WHEN tag = 'timer' THEN 'waiting'
                  WHEN tag = 'reserve' THEN 'ready'
                  WHEN tag = 'key_held' THEN CASE WHEN last_tag = 'reserve' THEN 'waiting' END
                  WHEN tag IN ('complete', 'copied') THEN 'completed'
                  WHEN tag = 'fail' THEN 'failed'
                  WHEN tag = 'stop' THEN CASE WHEN last_tag IN ('start', 'stop') THEN NULL ELSE 'cancelled' END
                  WHEN last_tag = 'start' THEN
                    CASE tag WHEN 'step_succeeded' THEN 'completed' WHEN 'step_failed' THEN 'retrying'
                             WHEN 'timer_fired' THEN NULL ELSE 'ready' END
                  WHEN last_tag = 'stop' AND tag_before_that IN ('start', 'stop') THEN
                    CASE WHEN last_aim = path THEN 'retrying' WHEN tag = 'timer_fired' THEN NULL ELSE 'cancelled' END
                END AS state
                  FROM (SELECT *,
                               lag(tag) OVER steps AS last_tag,
                               lag(tag, 2) OVER steps AS tag_before_that,
                               lag(aim) OVER steps AS last_aim,
                               lead(seq) OVER steps = seq AND lead(tag) OVER steps = 'fail' AS fails
                          FROM (SELECT *, max(CASE WHEN tag = 'start' THEN attempt END) OVER steps AS started
                                  FROM (
      SELECT r.id AS workflow_id, r.finished_at, j.run, j.seq, -1::bigint AS ord, j.at, j.kind AS tag,
             journal_json(j.body) #>> '{1,1}' AS path, (journal_json(j.body) #>> '{1,2}')::bigint AS attempt,
             journal_json(j.body) #> '{1,3}' AS value, NULL AS aim
        FROM run r JOIN journal j ON j.run = r.no
       WHERE j.kind IN ('step_succeeded', 'step_failed', 'attempt_released')
      UNION ALL
      SELECT r.id, r.finished_at, j.run, j.seq, -1, j.at, j.kind, journal_json(j.body) #>> '{1,1}', NULL, NULL, NULL
        FROM run r JOIN journal j ON j.run = r.no
       WHERE j.kind = 'key_held' OR j.kind = 'timer_fired' AND journal_json(j.body) #>> '{1,2}' = 'grace'
      UNION ALL
      SELECT r.id, r.finished_at, j.run, j.seq, -1, j.at, 'copied', copied.key, NULL, copied.value, NULL
        FROM run r JOIN journal j ON j.run = r.no CROSS JOIN LATERAL json_each(journal_json(j.body) #> '{1,4}') copied
       WHERE j.seq = 1
      UNION ALL
      SELECT r.id, r.finished_at, j.run, j.seq, -1, j.at, j.kind, lost.path, NULL, NULL, NULL
        FROM run r JOIN journal j ON j.run = r.no CROSS JOIN LATERAL json_array_elements_text(journal_json(j.body) #> '{1,1}') lost (path)
       WHERE j.kind = 'adopted'
      UNION ALL
      SELECT r.id, r.finished_at, j.run, j.seq, d.ord, j.at, d.value ->> 0, d.value ->> 1,
             CASE WHEN d.value ->> 0 = 'start' THEN (d.value ->> 2)::bigint END,
             CASE d.value ->> 0 WHEN 'fail' THEN d.value -> 2
                                WHEN 'complete' THEN CASE WHEN d.value ->> 4 = 'true' THEN NULL ELSE d.value -> 2 END END,
             CASE WHEN d.value ->> 0 = 'stop' THEN d.value ->> 2 END
        FROM run r JOIN journal j ON j.run = r.no
             CROSS JOIN LATERAL json_array_elements(journal_json(j.body) -> 2) WITH ORDINALITY d (value, ord)
       WHERE d.value ->> 0 IN ('start', 'stop', 'open', 'reserve')
          OR d.value ->> 0 = 'timer' AND d.value ->> 2 = 'delay'
          OR d.value ->> 0 IN ('complete', 'fail') AND is_step(d.value ->> 1)
                                  ) told
                                WINDOW steps AS (PARTITION BY workflow_id, path ORDER BY seq, ord)) counted
                         WHERE tag NOT IN ('step_succeeded', 'step_failed', 'attempt_released') OR attempt = started
                        WINDOW steps AS (PARTITION BY workflow_id, path ORDER BY seq, ord)) compared) named
         WHERE state IS NOT NULL
        WINDOW steps AS (PARTITION BY workflow_id, path ORDER BY seq, ord)) told
  -- What was open when the run ended was cancelled by that, and no row says so for each.
  JOIN (VALUES (false), (true)) ends (closes) ON NOT closes OR is_left_open;

CREATE VIEW workflows (workflow_id, root_job_id, spec_json, inputs_json, status, current_step_id, step_outputs_json,
                       created_at, completed_at) AS
SELECT r.id,
       r.id,
       (SELECT definition FROM version v WHERE v.tenant = r.tenant AND v.hash = r.version),
       (SELECT whole_value(r.no, journal_json(j.body) #> '{1,1}') FROM journal j WHERE j.run = r.no AND j.seq = 1),
       CASE WHEN r.status IN ('waiting', 'cancelling') THEN 'running' ELSE r.status END,
       CASE WHEN r.finished_at IS NOT NULL THEN coalesce(
         (SELECT nullif(d.value #>> '{3,path}', '')
            FROM (SELECT body FROM journal WHERE run = r.no ORDER BY seq DESC LIMIT 1) j
                 CROSS JOIN LATERAL json_array_elements(journal_json(j.body) -> 2) d
           WHERE d.value ->> 0 = 'finish' LIMIT 1),
         (SELECT journal_json(j.body) #>> '{1,1}' FROM journal j
           WHERE j.run = r.no AND j.kind IN ('step_succeeded', 'step_failed', 'timer_fired')
             AND journal_json(j.body) #>> '{1,1}' <> ''
           ORDER BY j.seq DESC LIMIT 1)) END,
       CASE WHEN r.finished_at IS NOT NULL THEN (
         SELECT '{' || coalesce(string_agg(to_json(CASE WHEN path LIKE '["%' THEN path::json ->> 0 ELSE path END)::text || ':' ||
                  coalesce(whole_value(r.no, value), 'null'), ',' ORDER BY seq), '') || '}'
           FROM (
      -- An answer that counted: the row decides something, not about this very step (it is tried again, or fails), and
      -- the run was not being stopped.
      SELECT j.seq, journal_json(j.body) #>> '{1,1}' AS path, journal_json(j.body) #> '{1,3}' AS value
        FROM journal j
       WHERE j.run = r.no AND j.kind = 'step_succeeded' AND json_array_length(journal_json(j.body) -> 2) > 0
         AND NOT EXISTS (SELECT 1 FROM json_array_elements(journal_json(j.body) -> 2) d
                          WHERE d.value ->> 1 = journal_json(j.body) #>> '{1,1}'
                             OR d.value ->> 0 = 'finish'
                                AND (d.value ->> 1 = 'cancelled' OR d.value #>> '{3,kind}' = 'run_timeout'))
      UNION ALL
      SELECT j.seq, copied.key, copied.value
        FROM journal j CROSS JOIN LATERAL json_each(journal_json(j.body) #> '{1,4}') copied
       WHERE j.run = r.no AND j.seq = 1
      UNION ALL
      SELECT j.seq, d.value ->> 1, CASE WHEN d.value ->> 4 = 'true' THEN NULL ELSE d.value -> 2 END
        FROM journal j CROSS JOIN LATERAL json_array_elements(journal_json(j.body) -> 2) d
       WHERE j.run = r.no AND d.value ->> 0 = 'complete' AND is_step(d.value ->> 1)) counted
          WHERE path NOT LIKE '%.%' OR path LIKE '["%"]' AND path NOT LIKE '%"].%') END,
       instant(r.created_at),
       instant(r.finished_at)
  FROM run r;

CREATE VIEW tasks (id, flow_version_id, status, params_json, shared_json, current_node_key, last_action, step_count,
                   retry_state_json, lease_owner, lease_expiry, request_id, created_at, updated_at, flow_id, flow_name,
                   flow_version) AS
SELECT r.id,
       (SELECT v.id FROM release v WHERE v.tenant = r.tenant AND v.workflow = s.workflow AND v.number = s.number),
       CASE r.status WHEN 'waiting' THEN 'running' WHEN 'cancelling' THEN 'canceling' WHEN 'cancelled' THEN 'canceled'
                     WHEN 'interrupted' THEN 'failed' ELSE r.status END,
       (SELECT whole_value(r.no, journal_json(j.body) #> '{1,1}') FROM journal j WHERE j.run = r.no AND j.seq = 1),
       CASE WHEN r.status = 'completed' THEN (
         SELECT whole_value(r.no, d.value -> 2)
           FROM (SELECT body FROM journal WHERE run = r.no ORDER BY seq DESC LIMIT 1) j
                CROSS JOIN LATERAL json_array_elements(journal_json(j.body) -> 2) d
          WHERE d.value ->> 0 = 'finish' AND (d.value -> 2)::text <> 'null' LIMIT 1) END,
       CASE WHEN r.finished_at IS NOT NULL THEN '' END,
       CASE WHEN r.finished_at IS NOT NULL THEN coalesce((
         SELECT d.value ->> 2
           FROM journal j CROSS JOIN LATERAL json_array_elements(journal_json(j.body) -> 2) WITH ORDINALITY d (value, ord)
          WHERE j.run = r.no AND d.value ->> 0 = 'take' AND strpos(d.value ->> 1, '.') = 0
          ORDER BY j.seq DESC, d.ord DESC LIMIT 1), '') END,
       CASE WHEN r.finished_at IS NOT NULL THEN (
         SELECT count(*) FROM journal j CROSS JOIN LATERAL json_array_elements(journal_json(j.body) -> 2) d
          WHERE j.run = r.no AND d.value ->> 0 IN ('complete', 'fail') AND strpos(d.value ->> 1, '.') = 0
            AND d.value ->> 1 NOT LIKE '%]') + (
         SELECT count(*) FROM journal j
          WHERE j.run = r.no AND j.kind IN ('step_succeeded', 'callback_received')
            AND strpos(journal_json(j.body) #>> '{1,1}', '.') = 0 AND json_array_length(journal_json(j.body) -> 2) > 0) END,
       CASE WHEN r.finished_at IS NOT NULL THEN '{}' END,
       r.owner,
       NULL::bigint,
       (SELECT q.id FROM request q WHERE q.run = r.no LIMIT 1),
       r.created_at / 1000,
       (SELECT j.at FROM journal j WHERE j.run = r.no ORDER BY j.seq DESC LIMIT 1) / 1000,
       (SELECT w.id FROM workflow w WHERE w.tenant = r.tenant AND w.name = s.workflow),
       s.workflow,
       nullif(s.number, 0)
  FROM run r LEFT JOIN series s ON s.no = r.series;

CREATE VIEW node_runs (id, task_id, node_key, attempt_no, status, prep_json, exec_input_json, exec_output_json, error_text,
                       action, started_at, finished_at, worker_id, worker_url, sub_status, branch_id) AS
SELECT format('run-%s:%s:%s', task_id, path, attempt),
       task_id,
       key,
       attempt,
       status,
       coalesce((given::json -> 'input')::text, given),
       given,
       CASE WHEN status = 'ok' THEN output END,
       CASE WHEN status = 'error' THEN error END,
       action,
       started / 1000,
       ended / 1000,
       worker_id,
       worker_url,
       CASE WHEN branch IS NULL OR ended IS NULL THEN NULL
            WHEN branch !~ '[^0-9]' THEN 'branch_complete' ELSE 'sub_node_complete' END,
       branch
  FROM (SELECT *,
               CASE WHEN path LIKE '["%"]' THEN path::json ->> 0
                    ELSE substr(top, 1, coalesce(nullif(least(strpos(top || '~', '~'), strpos(top || '[', '[')), 0), 1) - 1) END AS key,
               nullif(CASE WHEN top LIKE '%]' AND top NOT LIKE '["%' THEN substr(top, strpos(top, '[') + 1, length(top) - strpos(top, '[') - 1)
                           ELSE '' END
                      || CASE WHEN below = '' OR top LIKE '%]' AND below = 'call' THEN ''
                              WHEN top LIKE '%]' AND top NOT LIKE '["%' THEN '.' || below
                              WHEN strpos(below, '.') = 0 AND strpos(below, '~') > 0 THEN substr(below, 1, strpos(below, '~') - 1)
                              ELSE below END, '') AS branch
          FROM (SELECT task_id, seq, ord, path, attempt, started,
                       CASE WHEN ok IS NOT NULL AND failed IS NULL THEN 'ok'
                            WHEN failed IS NOT NULL OR finished_at IS NOT NULL THEN 'error' ELSE 'running' END AS status,
                       coalesce(ok, failed, finished_at) AS ended,
                       max(inputs) OVER (PARTITION BY task_id, path) AS given,
                       output,
                       coalesce(error, CASE WHEN run_status = 'cancelled' THEN 'canceled' ELSE 'it was stopped' END) AS error,
                       action, worker_id, worker_url,
                       CASE WHEN path LIKE '["%"]' THEN path ELSE substr(path, 1, strpos(path || '.', '.') - 1) END AS top,
                       CASE WHEN path LIKE '["%"]' THEN '' ELSE substr(path, strpos(path || '.', '.') + 1) END AS below
                  FROM (SELECT task_id, path, attempt, min(seq) AS seq, min(ord) AS ord, finished_at, run_status,
                               min(at) FILTER (WHERE what = 'start') AS started,
                               max(value) FILTER (WHERE what = 'start') AS inputs,
                               max(at) FILTER (WHERE what = 'ok') AS ok,
                               max(value) FILTER (WHERE what = 'ok') AS output,
                               min(at) FILTER (WHERE what = 'error') AS failed,
                               min(value) FILTER (WHERE what = 'error') AS error,
                               max(action) AS action, max(worker_id) AS worker_id, max(worker_url) AS worker_url,
                               bool_or(what = 'released') AS is_released
                          FROM (
      SELECT r.id AS task_id, r.finished_at, r.status AS run_status, j.seq, d.ord, j.at, 'start' AS what,
             d.value ->> 1 AS path, CASE WHEN d.value ->> 0 = 'start' THEN (d.value ->> 2)::bigint ELSE 1 END AS attempt,
             CASE WHEN d.value ->> 0 = 'start' THEN nullif((d.value -> 3)::text, 'null') END AS value,
             NULL AS action, NULL AS worker_id, NULL AS worker_url
        FROM run r JOIN journal j ON j.run = r.no
             CROSS JOIN LATERAL json_array_elements(journal_json(j.body) -> 2) WITH ORDINALITY d (value, ord)
       WHERE d.value ->> 0 IN ('start', 'open') OR d.value ->> 0 = 'timer' AND d.value ->> 2 = 'delay'
          OR d.value ->> 0 = 'wait' AND d.value ->> 2 <> 'callback'
          OR d.value ->> 0 = 'complete' AND is_step(d.value ->> 1)
      UNION ALL
      SELECT r.id, r.finished_at, r.status, j.seq, -1, j.at, CASE WHEN j.kind = 'step_succeeded' THEN 'ok' ELSE 'error' END,
             journal_json(j.body) #>> '{1,1}', (journal_json(j.body) #>> '{1,2}')::bigint,
             CASE WHEN j.kind = 'step_succeeded' THEN whole_value(r.no, journal_json(j.body) #> '{1,3}')
                  ELSE journal_json(j.body) #>> '{1,3,message}' END,
             (SELECT d.value ->> 2 FROM json_array_elements(journal_json(j.body) -> 2) d
               WHERE d.value ->> 0 = 'take' AND d.value ->> 1 = journal_json(j.body) #>> '{1,1}' LIMIT 1),
             nullif(journal_json(j.body) #>> '{1,5,0}', ''), nullif(journal_json(j.body) #>> '{1,5,1}', '')
        FROM run r JOIN journal j ON j.run = r.no
       WHERE j.kind IN ('step_succeeded', 'step_failed')
      UNION ALL
      SELECT r.id, r.finished_at, r.status, j.seq, -1, j.at,
             CASE WHEN (journal_json(j.body) #> '{1,4}')::text <> 'null' THEN 'error' ELSE 'ok' END,
             journal_json(j.body) #>> '{1,1}', (journal_json(j.body) #>> '{1,2}')::bigint,
             CASE WHEN (journal_json(j.body) #> '{1,4}')::text <> 'null' THEN journal_json(j.body) #>> '{1,4,message}'
                  ELSE whole_value(r.no, journal_json(j.body) #> '{1,3}') END,
             (SELECT d.value ->> 2 FROM json_array_elements(journal_json(j.body) -> 2) d
               WHERE d.value ->> 0 = 'take' AND d.value ->> 1 = journal_json(j.body) #>> '{1,1}' LIMIT 1),
             NULL, NULL
        FROM run r JOIN journal j ON j.run = r.no
       WHERE j.kind = 'callback_received'
      UNION ALL
      SELECT r.id, r.finished_at, r.status, j.seq, -1, j.at, 'released', journal_json(j.body) #>> '{1,1}',
             (journal_json(j.body) #>> '{1,2}')::bigint, NULL, NULL, NULL, NULL
        FROM run r JOIN journal j ON j.run = r.no
       WHERE j.kind = 'attempt_released'
      UNION ALL
      SELECT r.id, r.finished_at, r.status, j.seq, -1, j.at, 'error', lost.path,
             (SELECT max((d.value ->> 2)::bigint)
                FROM journal o CROSS JOIN LATERAL json_array_elements(journal_json(o.body) -> 2) d
               WHERE o.run = r.no AND o.seq < j.seq AND d.value ->> 0 = 'start' AND d.value ->> 1 = lost.path),
             'it was lost with its process', NULL, NULL, NULL
        FROM run r JOIN journal j ON j.run = r.no CROSS JOIN LATERAL json_array_elements_text(journal_json(j.body) #> '{1,1}') lost (path)
       WHERE j.kind = 'adopted'
      UNION ALL
      SELECT r.id, r.finished_at, r.status, j.seq, d.ord, j.at, CASE WHEN d.value ->> 0 = 'fail' THEN 'error' ELSE 'ok' END,
             d.value ->> 1, 1,
             CASE WHEN d.value ->> 0 = 'fail' THEN d.value #>> '{2,message}' ELSE whole_value(r.no, d.value -> 2) END,
             (SELECT t.value ->> 2 FROM json_array_elements(journal_json(j.body) -> 2) t
               WHERE t.value ->> 0 = 'take' AND t.value ->> 1 = d.value ->> 1 LIMIT 1),
             NULL, NULL
        FROM run r JOIN journal j ON j.run = r.no
             CROSS JOIN LATERAL json_array_elements(journal_json(j.body) -> 2) WITH ORDINALITY d (value, ord)
       WHERE d.value ->> 0 IN ('complete', 'fail') AND is_step(d.value ->> 1)
         AND d.value ->> 1 <> coalesce(CASE WHEN j.kind IN ('step_succeeded', 'step_failed', 'callback_received')
                                            THEN journal_json(j.body) #>> '{1,1}' END, '')
                               ) told
                         GROUP BY task_id, path, attempt, finished_at, run_status) attempts
                 WHERE NOT is_released AND started IS NOT NULL) placed) named
UNION ALL
-- The one that tells of the end of a task that was canceled.
SELECT format('run-%s::0', r.id), r.id, coalesce((
         SELECT split_part(d.value ->> 1, '.', 1)
           FROM journal j CROSS JOIN LATERAL json_array_elements(journal_json(j.body) -> 2) WITH ORDINALITY d (value, ord)
          WHERE j.run = r.no AND d.value ->> 0 IN ('start', 'open', 'timer') AND d.value ->> 1 <> ''
          ORDER BY j.seq DESC, d.ord DESC LIMIT 1), ''),
       0, 'canceled', NULL, NULL, NULL, NULL, 'canceled', r.finished_at / 1000, r.finished_at / 1000, NULL, NULL, NULL, NULL
  FROM run r WHERE r.status = 'cancelled';
