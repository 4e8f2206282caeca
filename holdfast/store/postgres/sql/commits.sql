-- What a commit writes. Each statement takes one array per column, and is a part of one larger statement: WITH a AS (…), b AS (…)
-- SELECT …. All parts see the database as it was before, so two of them must not write the same row (writes.py knows which can).

-- name: mine
-- The last part of every commit. This incarnation must be alive, and this must be its next commit: otherwise the division fails
-- and takes the commit back. A commit that is sent twice, because its outcome was unknown, lands once.
UPDATE node SET committed = $2::bigint, lane = CASE WHEN $3::boolean THEN $4::text ELSE lane END
 WHERE epoch = $1::bigint AND committed = $2::bigint - 1 AND NOT over RETURNING 1 AS one

-- name: append
INSERT INTO journal (run, seq, epoch, at, kind, body)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[])

-- name: add_run
INSERT INTO run (no, tenant, id, version, status, owner, owner_epoch, epoch, wake_at, needs, on_restart, labels, created_at,
                 finished_at, parent_job_id, rerun_of, series, schedule, slot, is_catchup)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::bigint[],
                     $9::bigint[], $10::text[], $11::text[], $12::text[], $13::bigint[], $14::bigint[], $15::text[], $16::text[],
                     $17::bigint[], $18::text[], $19::text[], $20::boolean[])
RETURNING series, status, created_at, finished_at

-- name: change_run
-- A run that is released with unread mail is due at once, and its mail is counted again. The counter is in the row,
-- because a letter may be posted at the same moment: the lock of the row makes one of the two see the other.
UPDATE run r
   SET status = b.status, owner = b.owner, owner_epoch = b.owner_epoch, epoch = b.epoch, needs = b.needs,
       finished_at = b.finished_at, claimant = NULL,
       mail = CASE WHEN b.owner IS NULL THEN 0 ELSE greatest(0, r.mail - b.read) END,
       wake_at = CASE WHEN b.owner IS NULL AND b.finished_at IS NULL AND r.mail > b.read THEN least(b.wake_at, r.created_at)
                      ELSE b.wake_at END
  FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::bigint[], $9::bigint[])
         AS b(no, status, owner, owner_epoch, epoch, wake_at, needs, finished_at, read)
  JOIN run o ON o.no = b.no
 WHERE r.no = b.no
RETURNING r.series, o.status AS was, r.status, r.created_at, r.finished_at

-- name: count_new
SELECT series, status, 1 AS n FROM add_run

-- name: count_changed
SELECT series, was, -1 FROM change_run WHERE was <> status UNION ALL SELECT series, status, 1 FROM change_run WHERE was <> status

-- name: add_to_tally
INSERT INTO tally (series, status, node, runs)
SELECT series, status, $1::text, sum(n) FROM moved GROUP BY series, status HAVING sum(n) <> 0
    ON CONFLICT (series, status, node) DO UPDATE SET runs = tally.runs + excluded.runs

-- name: beats_of_new
SELECT series, created_at / 60000, 0::bigint FROM add_run
 UNION ALL SELECT series, finished_at / 60000, end_beat(status, finished_at - created_at) FROM add_run WHERE finished_at IS NOT NULL

-- name: beats_of_changed
SELECT series, finished_at / 60000, end_beat(status, finished_at - created_at) FROM change_run
 WHERE finished_at IS NOT NULL AND was <> status

-- name: add_to_pulse
INSERT INTO pulse (series, minute, beat, node, runs)
SELECT series, minute, beat, $1::text, count(*) FROM beats GROUP BY series, minute, beat
    ON CONFLICT (series, minute, beat, node) DO UPDATE SET runs = pulse.runs + excluded.runs

-- name: added_up_pulse
DELETE FROM pulse p USING unnest($1::bigint[], $2::bigint[]) AS b(first, last)
 WHERE p.minute >= b.first AND p.minute < b.last AND p.minute % 60 <> 0
RETURNING p.*

-- name: add_up_pulse
-- The minutes of whole hours become one row at the first minute of their hour.
INSERT INTO pulse (series, minute, beat, node, runs)
SELECT series, minute - minute % 60, beat, $1::text, sum(runs) FROM added_up_pulse GROUP BY 1, 2, 3
    ON CONFLICT (series, minute, beat, node) DO UPDATE SET runs = pulse.runs + excluded.runs

-- name: forget_pulse
DELETE FROM pulse WHERE minute < ANY ($1::bigint[])

-- name: taken_requests
SELECT b.run FROM unnest($1::text[], $2::text[], $3::bigint[]) AS b(tenant, id, run) JOIN request USING (tenant, id)

-- name: add_label
INSERT INTO label (tenant, name, value, run) SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[])

-- name: series_of
-- Made if it is not there. A series is never deleted: other nodes remember its number.
WITH made AS (INSERT INTO series (tenant, workflow, number) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING no)
SELECT no FROM made UNION ALL SELECT no FROM series WHERE tenant = $1 AND workflow = $2 AND number = $3 LIMIT 1

-- name: add_version
INSERT INTO version (tenant, hash, name, definition, created_at, uses)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[]) ON CONFLICT DO NOTHING

-- name: put_source
UPDATE version v SET source = b.source FROM unnest($1::text[], $2::text[], $3::text[]) AS b(source, tenant, hash)
 WHERE v.tenant = b.tenant AND v.hash = b.hash AND v.source IS DISTINCT FROM b.source

-- name: add_workflow
INSERT INTO workflow (tenant, name, id, description, created_at)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[]) ON CONFLICT DO NOTHING

-- name: add_request
-- No ON CONFLICT: two runs under one id would be a bug in Holdfast, and the commit must fail.
INSERT INTO request (tenant, id, digest, run, created_at)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[])

-- name: put_api_key
INSERT INTO api_key (tenant, id, name, hash, scopes, services, created_at, expires_at, last_used_at, revoked_at, tools, workflows,
                     skips_gate)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::bigint[],
                     $9::bigint[], $10::bigint[], $11::text[], $12::text[], $13::bigint[])
    ON CONFLICT (tenant, id) DO UPDATE
   SET last_used_at = excluded.last_used_at, revoked_at = coalesce(api_key.revoked_at, excluded.revoked_at)

-- name: put_reply
INSERT INTO reply (tenant, route, key, digest, status, body, created_at)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bytea[], $7::bigint[])
    ON CONFLICT (tenant, route, key) DO UPDATE
   SET digest = excluded.digest, status = excluded.status, body = excluded.body, created_at = excluded.created_at

-- name: forget_replies
-- A few at a time, with each that is added: no commit is long.
DELETE FROM reply WHERE (tenant, route, key) IN
       (SELECT tenant, route, key FROM reply WHERE created_at < $1 ORDER BY created_at LIMIT 100)

-- name: put_worker
INSERT INTO worker (tenant, id, kind, url, services, status, place, key_id, heard_at)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::text[], $9::bigint[])
    ON CONFLICT (tenant, id) DO UPDATE
   SET kind = excluded.kind, url = excluded.url, services = excluded.services, status = excluded.status, place = excluded.place,
       key_id = excluded.key_id, heard_at = excluded.heard_at

-- name: hear_worker
UPDATE worker w SET heard_at = greatest(w.heard_at, b.heard_at), status = 'online'
  FROM unnest($1::text[], $2::text[], $3::bigint[]) AS b(tenant, id, heard_at) WHERE w.tenant = b.tenant AND w.id = b.id

-- name: put_assignment
INSERT INTO assignment (run, path, attempt, service, worker, token, offers, claimed_at)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::bigint[])
    ON CONFLICT (run, path, attempt) DO UPDATE
   SET service = excluded.service, worker = excluded.worker, token = excluded.token, offers = excluded.offers,
       claimed_at = excluded.claimed_at
RETURNING 1 AS one

-- name: put_blob
INSERT INTO blob (run, sha256, body) SELECT * FROM unnest($1::bigint[], $2::text[], $3::bytea[]) ON CONFLICT DO NOTHING

-- name: put_snapshot
INSERT INTO snapshot (run, part, seq, body) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[])
    ON CONFLICT (run, part) DO UPDATE SET seq = excluded.seq, body = excluded.body

-- name: put_board
INSERT INTO board (run, part, body)
SELECT b.* FROM unnest($1::bigint[], $2::text[], $3::bytea[]) AS b(run, part, body) JOIN run r ON r.no = b.run
    ON CONFLICT (run, part) DO UPDATE SET body = excluded.body

-- name: put_artefact
INSERT INTO artefact (run, sha256, size, created_at) SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[])
    ON CONFLICT DO NOTHING

-- name: put_log
-- A run keeps as many lines as the seventh array says; the last of them is the eighth, which says so.
INSERT INTO log (run, n, path, attempt, at, level, text)
SELECT run, had + nth, path, attempt, at, level, CASE WHEN had + nth = most THEN mark ELSE text END
  FROM (SELECT b.*, row_number() OVER (PARTITION BY b.run ORDER BY b.ord) AS nth,
               coalesce((SELECT max(n) FROM log WHERE log.run = b.run), 0) AS had
          FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::bigint[], $8::text[])
                 WITH ORDINALITY AS b(run, path, attempt, at, level, text, most, mark, ord)) counted
 WHERE had + nth <= most

-- name: put_trace
INSERT INTO trace (run, parent) SELECT * FROM unnest($1::bigint[], $2::text[]) ON CONFLICT DO NOTHING

-- name: forget_key
-- Never a held one, nor one that was taken and answered again since it was read.
DELETE FROM key k USING unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) AS b(tenant, scope, key, created_at)
 WHERE k.tenant = b.tenant AND k.scope = b.scope AND k.key = b.key AND k.created_at = b.created_at AND k.output IS NOT NULL

-- name: forget_worker
DELETE FROM worker w USING unnest($1::text[], $2::text[]) AS b(tenant, id) WHERE w.tenant = b.tenant AND w.id = b.id

-- name: end_assignment
-- Never one of a run that another node drives by now.
DELETE FROM assignment a USING unnest($1::bigint[], $2::text[], $3::bigint[]) AS b(run, path, attempt)
  LEFT JOIN run r ON r.no = b.run
 WHERE a.run = b.run AND a.path = b.path AND a.attempt = b.attempt
   AND (r.owner_epoch IS NULL OR r.owner_epoch = $4 OR r.claimant = $4 OR r.owner_epoch NOT IN (SELECT epoch FROM node WHERE NOT over))

-- name: open_wait
INSERT INTO wait (tenant, kind, name, run, path, attempt, since, expires_at, detail)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[], $9::text[])

-- name: close_wait
UPDATE wait w SET resolved_at = b.at, outcome = b.outcome
  FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::text[]) AS b(at, outcome, run, path, attempt, kind)
 WHERE w.run = b.run AND w.path = b.path AND w.attempt = b.attempt AND w.kind = b.kind AND w.resolved_at IS NULL

-- name: forget_early
DELETE FROM early_result WHERE expires_at <= ANY ($1::bigint[])

-- name: put_early
INSERT INTO early_result (tenant, task_id, meant, body, expires_at)
SELECT b.tenant, b.task_id, b.meant, convert_from(b.body, 'UTF8'), b.expires_at
  FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::bigint[]) AS b(tenant, task_id, meant, body, expires_at)
    ON CONFLICT DO NOTHING

-- name: take_early
DELETE FROM early_result e USING unnest($1::text[], $2::text[], $3::text[]) AS b(tenant, task_id, meant)
 WHERE e.tenant = b.tenant AND e.task_id = b.task_id AND e.meant = b.meant

-- name: put_callback_delivery
INSERT INTO outbox (tenant, id, run, n, url, origin, secret_env, created_at, due_at)
SELECT b.*, b.at FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::bigint[])
                        AS b(tenant, id, run, n, url, origin, secret_env, at)

-- name: callback_delivery_tried
-- Only one that is still as its writer saw it.
UPDATE outbox o SET claimant = NULL, tries = b.tries, due_at = b.due_at, done_at = b.done_at, outcome = b.outcome, last_error = b.last_error
  FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::text[])
         AS b(tries, due_at, done_at, outcome, last_error, pos, was)
 WHERE o.pos = b.pos AND o.outcome IS NOT DISTINCT FROM b.was

-- name: put_schedule
-- A schedule that is replaced keeps the time of its creation.
INSERT INTO schedule (tenant, id, kind, origin, source, priority, created_at, updated_at, body)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[], $9::text[])
    ON CONFLICT (tenant, id) DO UPDATE
   SET kind = excluded.kind, origin = excluded.origin, source = excluded.source, priority = excluded.priority,
       updated_at = excluded.updated_at, body = excluded.body

-- name: note_end
-- Runs of a schedule have ended, in this order; the error is null of one that did not fail.
UPDATE cursor c
   SET error_count = c.error_count + b.failed, last_error = coalesce(b.last_error, c.last_error),
       failures = CASE WHEN b.has_success THEN b.since ELSE c.failures + b.since END
  FROM (SELECT tenant, schedule, slot, count(error) AS failed, bool_or(error IS NULL) AS has_success,
               (array_agg(error ORDER BY ord DESC) FILTER (WHERE error IS NOT NULL))[1] AS last_error,
               count(*) FILTER (WHERE error IS NOT NULL AND ord > last_success) AS since
          FROM (SELECT *, coalesce(max(ord) FILTER (WHERE error IS NULL) OVER (PARTITION BY tenant, schedule, slot), 0) AS last_success
                  FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY AS e(tenant, schedule, slot, error, ord)) e
         GROUP BY tenant, schedule, slot) b
 WHERE c.tenant = b.tenant AND c.schedule = b.schedule AND c.slot = b.slot AND (b.failed > 0 OR c.failures > 0)

-- name: clear_failures
UPDATE cursor c SET failures = 0 FROM unnest($1::text[], $2::text[], $3::text[]) AS b(tenant, schedule, slot)
 WHERE c.tenant = b.tenant AND c.schedule = b.schedule AND c.slot = b.slot

-- name: forget_ledger
-- Rows without a run that are old; the others are deleted with their runs. What is buffered stays.
DELETE FROM ledger l USING unnest($1::bigint[], $2::bigint[]) AS b(before, most)
 WHERE l.pos IN (SELECT pos FROM ledger WHERE run IS NULL AND at < b.before AND outcome <> 'buffered' ORDER BY at LIMIT b.most)

-- name: post_mail
-- Mail that is new is counted in the row of its run, which locks it: a run that its owner releases at the same moment is due.
INSERT INTO mail (run, dedup, at, body) SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::text[])
    ON CONFLICT (run, dedup) DO NOTHING RETURNING run, at

-- name: wake_for_mail
UPDATE run r SET mail = r.mail + b.n, wake_at = CASE WHEN r.owner IS NULL THEN least(r.wake_at, b.at) ELSE r.wake_at END
  FROM (SELECT run, count(*) AS n, min(at) AS at FROM post_mail GROUP BY run ORDER BY run) b
 WHERE r.no = b.run AND r.finished_at IS NULL
RETURNING coalesce(r.owner_epoch, 0) AS epoch

-- name: drop_mail
DELETE FROM mail m USING unnest($1::bigint[], $2::text[]) AS b(run, dedup) WHERE m.run = b.run AND m.dedup = b.dedup

-- name: count_read
-- Letters of runs that the commit does not change otherwise.
UPDATE run r SET mail = greatest(0, r.mail - b.n) FROM unnest($1::bigint[], $2::bigint[]) AS b(no, n) WHERE r.no = b.no

-- name: count_changes
INSERT INTO change_count (what, n) SELECT what, 1 FROM unnest($1::text[]) AS b(what) ORDER BY what
    ON CONFLICT (what) DO UPDATE SET n = change_count.n + 1 RETURNING what

-- name: set_meta
INSERT INTO meta (key, value) SELECT * FROM unnest($1::text[], $2::bytea[]) ON CONFLICT (key) DO UPDATE SET value = excluded.value

-- name: describe_workflow
UPDATE workflow SET description = $3 WHERE tenant = $1 AND name = $2

-- name: add_release
-- Known already: then a draft may become published, and nothing else changes. Another content breaks the rule of the column,
-- and the commit with it.
INSERT INTO release (tenant, workflow, number, id, version, status, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT (tenant, workflow, number) DO UPDATE
   SET status = CASE WHEN release.status = 'draft' THEN excluded.status ELSE release.status END,
       version = CASE WHEN release.version = excluded.version THEN release.version END

-- name: make_current
UPDATE workflow SET number = $3, version = $4, published_at = $5 WHERE tenant = $1 AND name = $2

-- name: forget_schedules
DELETE FROM schedule s USING unnest($1::text[], $2::text[]) AS b(tenant, id) WHERE s.tenant = b.tenant AND s.id = b.id

-- name: forget_cursors
DELETE FROM cursor c USING unnest($1::text[], $2::text[]) AS b(tenant, id) WHERE c.tenant = b.tenant AND c.schedule = b.id

-- name: forget_buffered
-- What waits for a schedule that is deleted will not start: its rows say so.
UPDATE ledger l SET outcome = 'skipped', reason = 'deleted', payload = NULL FROM unnest($1::text[], $2::text[]) AS b(tenant, id)
 WHERE l.tenant = b.tenant AND l.schedule = b.id AND l.outcome = 'buffered'

-- name: add_cursor
INSERT INTO cursor (tenant, schedule, slot, revision, next_at, owes, body)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::boolean[], $7::text[])
    ON CONFLICT DO NOTHING RETURNING 1 AS one

-- name: move_cursor
-- The last value is the revision that was read: a cursor with another one stays as it is.
UPDATE cursor c SET revision = b.revision, next_at = b.next_at, owes = b.owes, body = b.body
  FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::boolean[], $7::text[], $8::bigint[])
         AS b(tenant, schedule, slot, revision, next_at, owes, body, seen)
 WHERE c.tenant = b.tenant AND c.schedule = b.schedule AND c.slot = b.slot AND c.revision = b.seen
RETURNING 1 AS one

-- name: take_buffered
-- It is replaced by the row of its run in the same commit.
UPDATE ledger l SET outcome = 'failed' FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS b(tenant, schedule, slot, occurrence)
 WHERE l.tenant = b.tenant AND l.schedule = b.schedule AND l.slot = b.slot AND l.occurrence = b.occurrence
   AND l.outcome = 'buffered'
RETURNING 1 AS one

-- name: add_entry
-- A stretch that grows replaces its row, and so does an occurrence that is started after it had failed or been refused. One
-- that has a run, or is buffered, stays as it is.
INSERT INTO ledger (tenant, schedule, slot, occurrence, outcome, reason, scheduled_at, until, times, at, run, is_catchup,
                    detail, reply, payload)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::bigint[], $9::bigint[],
                     $10::bigint[], $11::bigint[], $12::boolean[], $13::text[], $14::bytea[], $15::bytea[])
    ON CONFLICT (tenant, schedule, slot, occurrence) DO UPDATE
   SET outcome = excluded.outcome, reason = excluded.reason, scheduled_at = excluded.scheduled_at, until = excluded.until,
       times = excluded.times, at = excluded.at, run = excluded.run, is_catchup = excluded.is_catchup,
       detail = excluded.detail, reply = excluded.reply, payload = excluded.payload
 WHERE ledger.outcome NOT IN ('fired', 'buffered')
RETURNING 1 AS one

-- name: revision_of
SELECT revision FROM cursor WHERE tenant = $1 AND schedule = $2 AND slot = $3

-- name: outcome_of
SELECT outcome FROM ledger WHERE tenant = $1 AND schedule = $2 AND slot = $3 AND occurrence = $4

-- name: taken_runs
SELECT DISTINCT j.run FROM journal j JOIN unnest($1::bigint[], $2::bigint[]) AS b(run, seq) USING (run, seq)

-- name: count_forgotten
INSERT INTO tally (series, status, node, runs)
SELECT series, status, $2::text, -count(*) FROM run WHERE no = ANY ($1::bigint[]) GROUP BY series, status
    ON CONFLICT (series, status, node) DO UPDATE SET runs = tally.runs + excluded.runs

-- name: forget_runs_keys
DELETE FROM key k USING run r WHERE r.no = ANY ($1::bigint[]) AND k.tenant = r.tenant AND k.scope = r.id

-- name: forget_runs_label
DELETE FROM label WHERE run = ANY ($1::bigint[])

-- name: forget_runs_journal
DELETE FROM journal WHERE run = ANY ($1::bigint[])

-- name: forget_runs_snapshot
DELETE FROM snapshot WHERE run = ANY ($1::bigint[])

-- name: forget_runs_board
DELETE FROM board WHERE run = ANY ($1::bigint[])

-- name: forget_runs_blob
DELETE FROM blob WHERE run = ANY ($1::bigint[])

-- name: forget_runs_wait
DELETE FROM wait WHERE run = ANY ($1::bigint[])

-- name: forget_runs_artefact
DELETE FROM artefact WHERE run = ANY ($1::bigint[])

-- name: forget_runs_request
DELETE FROM request WHERE run = ANY ($1::bigint[])

-- name: forget_runs_outbox
DELETE FROM outbox WHERE run = ANY ($1::bigint[])

-- name: forget_runs_ledger
DELETE FROM ledger WHERE run = ANY ($1::bigint[])

-- name: forget_runs_log
DELETE FROM log WHERE run = ANY ($1::bigint[])

-- name: forget_runs_trace
DELETE FROM trace WHERE run = ANY ($1::bigint[])

-- name: forget_runs_mail
DELETE FROM mail WHERE run = ANY ($1::bigint[])

-- name: forget_runs_assignment
DELETE FROM assignment WHERE run = ANY ($1::bigint[])

-- name: forget_runs_run
DELETE FROM run WHERE no = ANY ($1::bigint[])

-- name: forget_runs_pulse
-- Of a series that has no other run.
DELETE FROM pulse p WHERE p.series IN (SELECT series FROM run WHERE no = ANY ($1::bigint[]))
   AND NOT EXISTS (SELECT 1 FROM run r WHERE r.series = p.series AND NOT r.no = ANY ($1::bigint[]))
