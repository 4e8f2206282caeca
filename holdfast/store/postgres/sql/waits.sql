-- Reads of what belongs to single runs: waits, log lines, early callbacks and final callbacks.

-- name: waits_named
SELECT r.no, r.id, w.path, w.attempt, w.kind, w.name, w.since, w.expires_at, w.detail, w.resolved_at, w.outcome
  FROM wait w JOIN run r ON r.no = w.run
 WHERE w.tenant = $1 AND w.kind = 'callback' AND w.scope = '' AND w.name = $2 ORDER BY w.pos DESC LIMIT $3

-- name: wait_at
SELECT r.no, r.id, w.path, w.attempt, w.kind, w.name, w.since, w.expires_at, w.detail, w.resolved_at, w.outcome
  FROM wait w JOIN run r ON r.no = w.run WHERE w.run = $1 AND w.path = $2 AND w.kind = $3
   AND ($4::bigint IS NULL OR w.attempt = $4) ORDER BY w.attempt DESC LIMIT 1

-- name: gate_decided
-- The one at that very path, else the newest whose path ends with that step.
SELECT r.no, r.id, w.path, w.attempt, w.kind, w.name, w.since, w.expires_at, w.detail, w.resolved_at, w.outcome
  FROM wait w JOIN run r ON r.no = w.run WHERE w.run = $1 AND w.kind = 'approval' AND w.resolved_at IS NOT NULL
   AND (w.path = $2 OR right(w.path, length($2) + 1) = '.' || $2) ORDER BY w.path = $2 DESC, w.pos DESC LIMIT 1

-- name: gates_named
-- Open approvals whose path ends with that step, oldest first.
SELECT r.no, r.id, w.path, w.attempt, w.kind, w.name, w.since, w.expires_at, w.detail, w.resolved_at, w.outcome
  FROM wait w JOIN run r ON r.no = w.run WHERE w.run = $1 AND w.kind = 'approval' AND w.resolved_at IS NULL
   AND right(w.path, length($2) + 1) = '.' || $2 ORDER BY w.pos LIMIT $3

-- name: waits_of_run
SELECT r.no, r.id, w.path, w.attempt, w.kind, w.name, w.since, w.expires_at, w.detail, w.resolved_at, w.outcome
  FROM wait w JOIN run r ON r.no = w.run
 WHERE w.run = $1 AND w.kind <> 'key' AND w.resolved_at IS NULL ORDER BY w.pos LIMIT $2

-- name: first_waits
-- The oldest wait of each of some runs.
SELECT r.no, r.id, w.path, w.attempt, w.kind, w.name, w.since, w.expires_at, w.detail, w.resolved_at, w.outcome
  FROM unnest($1::bigint[]) AS asked(no) JOIN run r ON r.no = asked.no JOIN wait w ON w.run = r.no
 WHERE w.kind <> 'key' AND w.resolved_at IS NULL
   AND w.pos = (SELECT min(pos) FROM wait o WHERE o.run = r.no AND o.kind <> 'key' AND o.resolved_at IS NULL)

-- name: waits_by_time
-- Of one kind, behind a place: the time that is left of it, and its number.
SELECT coalesce(w.expires_at, 9000000000000000), w.pos, r.no, r.id, w.path, w.attempt, w.kind, w.name, w.since, w.expires_at, w.detail,
       w.resolved_at, w.outcome
  FROM wait w JOIN run r ON r.no = w.run
 WHERE w.tenant = $1 AND w.kind = $2 AND w.resolved_at IS NULL AND coalesce(w.expires_at, 9000000000000000) >= $3
   AND (coalesce(w.expires_at, 9000000000000000) > $3 OR w.pos > $4)
 ORDER BY coalesce(w.expires_at, 9000000000000000), w.pos LIMIT $5

-- name: place_of_wait
SELECT coalesce(expires_at, 9000000000000000) FROM wait WHERE pos = $1 AND tenant = $2

-- name: count_waits
SELECT count(*) FROM (SELECT 1 FROM wait WHERE tenant = $1 AND kind = $2 AND resolved_at IS NULL LIMIT $3) few

-- name: open_waits
SELECT r.no, r.id, w.path, w.attempt, w.kind, w.name, w.since, w.expires_at, w.detail, w.resolved_at, w.outcome
  FROM wait w JOIN run r ON r.no = w.run
 WHERE w.tenant = $1 AND w.kind = $2 AND w.resolved_at IS NULL ORDER BY w.pos LIMIT $3

-- name: early_of
-- What is meant for this very run comes before what may be for any.
SELECT meant, convert_to(body, 'UTF8') FROM early_result WHERE tenant = $1 AND task_id = $2 AND meant IN ($3, '') AND expires_at > $4
 ORDER BY meant DESC LIMIT 1

-- name: early_room
SELECT count(*), coalesce(sum(octet_length(body)), 0)::bigint FROM early_result WHERE tenant = $1 AND expires_at > $2

-- name: early_waits
SELECT r.no, r.id, w.path, w.attempt, w.kind, w.name, w.since, w.expires_at, w.detail, w.resolved_at, w.outcome
  FROM early_result e
  JOIN wait w ON w.tenant = e.tenant AND w.kind = 'callback' AND w.scope = '' AND w.name = e.task_id
  JOIN run r ON r.no = w.run
 WHERE w.resolved_at IS NULL AND e.meant IN (r.id, '') ORDER BY w.pos LIMIT $1

-- name: log_lines
-- Of a step: its own lines and those of the steps inside it.
SELECT n, path, attempt, at, level, text FROM log
 WHERE run = $1 AND n > $2
   AND ($3::text IS NULL OR path = $3 OR substr(path, 1, length($3) + 1) IN ($3 || '.', $3 || '[', $3 || '~'))
   AND ($4::bigint IS NULL OR attempt = $4)
   AND ($5::text IS NULL OR level = $5)
 ORDER BY n LIMIT $6

-- name: log_tail
-- The newest lines of one step.
SELECT n, path, attempt, at, level, text FROM log WHERE run = $1 AND path = $2 ORDER BY n DESC LIMIT $3

-- name: callback_deliveries_due
-- Those to one address of one run go in their order: a later one waits until the earlier ones are over. A delivery is claimed by
-- the node that reads it here, so that no other living node makes it too.
WITH pick AS (
  SELECT o.pos FROM outbox o
   WHERE o.done_at IS NULL AND o.due_at <= $1 AND NOT o.origin = ANY ($2::text[]) AND ($3::bigint[] IS NULL OR o.run = ANY ($3))
     AND (o.claimant IS NULL OR o.claimant = $5 OR o.claimant NOT IN (SELECT epoch FROM node WHERE NOT over))
     AND NOT EXISTS (SELECT 1 FROM outbox e WHERE e.run = o.run AND e.n < o.n AND e.url = o.url AND e.done_at IS NULL)
   ORDER BY o.due_at, o.pos LIMIT $4 FOR UPDATE OF o SKIP LOCKED),
 mine AS (
  UPDATE outbox o SET claimant = $5 FROM pick WHERE o.pos = pick.pos RETURNING o.*)
SELECT o.pos, o.tenant, o.id, r.id, r.no, o.n, o.url, o.origin, o.secret_env, o.created_at, o.tries, o.due_at, o.done_at,
       o.outcome, o.last_error
  FROM mine o JOIN run r ON r.no = o.run ORDER BY o.due_at, o.pos

-- name: next_callback_delivery
SELECT min(due_at) FROM outbox WHERE done_at IS NULL AND due_at > $1

-- name: callback_deliveries_of_run
SELECT o.pos, o.tenant, o.id, r.id, r.no, o.n, o.url, o.origin, o.secret_env, o.created_at, o.tries, o.due_at, o.done_at,
       o.outcome, o.last_error
  FROM outbox o JOIN run r ON r.no = o.run WHERE o.run = $1 ORDER BY o.n

-- name: dead_letters
SELECT o.pos, o.tenant, o.id, r.id, r.no, o.n, o.url, o.origin, o.secret_env, o.created_at, o.tries, o.due_at, o.done_at,
       o.outcome, o.last_error
  FROM outbox o JOIN run r ON r.no = o.run WHERE o.tenant = $1 AND o.outcome = 'dead' AND o.pos > $2 ORDER BY o.pos LIMIT $3

-- name: callback_delivery
SELECT o.pos, o.tenant, o.id, r.id, r.no, o.n, o.url, o.origin, o.secret_env, o.created_at, o.tries, o.due_at, o.done_at,
       o.outcome, o.last_error
  FROM outbox o JOIN run r ON r.no = o.run WHERE o.tenant = $1 AND o.id = $2

-- name: waits_open
-- In the order of tenant, kind and place.
SELECT tenant, kind, pos FROM wait WHERE resolved_at IS NULL AND (tenant, kind, pos) > ($1, $2, $3) ORDER BY tenant, kind, pos LIMIT $4

-- name: callback_deliveries_by_state
SELECT 'waiting', count(*) FROM (SELECT 1 FROM outbox WHERE done_at IS NULL LIMIT $1) few
 UNION ALL SELECT 'dead', count(*) FROM (SELECT 1 FROM outbox WHERE outcome = 'dead' LIMIT $1) few
