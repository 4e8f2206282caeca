-- Reads of schedules, their cursors and their ledger.

-- name: awake
SELECT (SELECT value FROM meta WHERE key = 'awake_at'), (SELECT value FROM meta WHERE key = 'outages')

-- name: schedule
SELECT tenant, id, kind, origin, source, priority, created_at, updated_at, body FROM schedule WHERE tenant = $1 AND id = $2

-- name: schedules
SELECT tenant, id, kind, origin, source, priority, created_at, updated_at, body FROM schedule
 WHERE tenant = $1 AND id > $2 AND ($3::text IS NULL OR origin = $3) ORDER BY id LIMIT $4

-- name: count_schedules
SELECT count(*) FROM schedule WHERE tenant = $1

-- name: schedules_of_kind
SELECT tenant, id, kind, origin, source, priority, created_at, updated_at, body FROM schedule
 WHERE kind = $1 AND (tenant, id) > ($2, $3) ORDER BY tenant, id LIMIT $4

-- name: due_schedules
-- With the number of their open runs, and of those that catch up. The slot of a node is its name; '' is for all nodes.
SELECT s.tenant, s.id, kind, origin, source, priority, created_at, updated_at, s.body,
       c.slot, revision, next_at, owes, c.body, error_count, failures, last_error,
       (SELECT count(*) FROM run r WHERE r.tenant = c.tenant AND r.schedule = c.schedule AND r.slot = c.slot
           AND r.finished_at IS NULL),
       (SELECT count(*) FROM run r WHERE r.tenant = c.tenant AND r.schedule = c.schedule AND r.slot = c.slot
           AND r.is_catchup AND r.finished_at IS NULL)
  FROM cursor c JOIN schedule s ON s.tenant = c.tenant AND s.id = c.schedule
 WHERE c.next_at <= $1 AND c.slot IN ($2, $3) ORDER BY c.next_at LIMIT $4

-- name: owing_schedules
SELECT c.tenant, c.schedule, c.slot FROM cursor c
 WHERE c.owes AND (c.tenant, c.schedule, c.slot) > ($1, $2, $3) AND c.slot IN ($4, $5)
 ORDER BY c.tenant, c.schedule, c.slot LIMIT $6

-- name: schedule_states
-- Of the schedules that are named, in that order; in every slot if the last value says so.
SELECT s.tenant, s.id, kind, origin, source, priority, created_at, updated_at, s.body,
       c.slot, revision, next_at, owes, c.body, error_count, failures, last_error,
       (SELECT count(*) FROM run r WHERE r.tenant = c.tenant AND r.schedule = c.schedule AND r.slot = c.slot
           AND r.finished_at IS NULL),
       (SELECT count(*) FROM run r WHERE r.tenant = c.tenant AND r.schedule = c.schedule AND r.slot = c.slot
           AND r.is_catchup AND r.finished_at IS NULL)
  FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS asked(tenant, id, ord)
  JOIN schedule s ON s.tenant = asked.tenant AND s.id = asked.id
  JOIN cursor c ON c.tenant = s.tenant AND c.schedule = s.id
 WHERE c.slot IN ($3, $4) OR $5 ORDER BY asked.ord, c.slot

-- name: next_due
SELECT min(next_at) FROM cursor WHERE next_at IS NOT NULL AND next_at > $1 AND slot IN ($2, $3)

-- name: next_fires
SELECT schedule, next_at FROM cursor WHERE next_at IS NOT NULL ORDER BY tenant, schedule, slot LIMIT $1

-- name: oldest_run_of
SELECT id FROM run WHERE tenant = $1 AND schedule = $2 AND slot = $3 AND finished_at IS NULL AND NOT is_catchup
 ORDER BY no LIMIT 1

-- name: open_runs_of
SELECT count(*) FROM run WHERE tenant = $1 AND schedule = $2 AND slot = $3 AND finished_at IS NULL

-- name: ledger
SELECT l.pos, l.tenant, l.schedule, l.slot, occurrence, outcome, reason, scheduled_at, until, times, at, r.id, l.is_catchup,
       detail, reply
  FROM ledger l LEFT JOIN run r ON r.no = l.run
 WHERE l.tenant = $1 AND l.schedule = $2 AND l.pos < $3 ORDER BY l.pos DESC LIMIT $4

-- name: ledger_of_unfired
SELECT l.pos, l.tenant, l.schedule, l.slot, occurrence, outcome, reason, scheduled_at, until, times, at, NULL::text, l.is_catchup,
       detail, reply
  FROM ledger l WHERE l.tenant = $1 AND l.schedule = $2 AND l.pos < $3 AND l.outcome <> 'fired' ORDER BY l.pos DESC LIMIT $4

-- name: ledger_row
SELECT l.pos, l.tenant, l.schedule, l.slot, occurrence, outcome, reason, scheduled_at, until, times, at, r.id, l.is_catchup,
       detail, reply
  FROM ledger l LEFT JOIN run r ON r.no = l.run
 WHERE l.tenant = $1 AND l.schedule = $2 AND l.slot = $3 AND l.occurrence = $4

-- name: ledger_until
-- Rows up to an occurrence, the last first, along the unique key: instants are written so that their order is that of time.
SELECT l.pos, l.tenant, l.schedule, l.slot, occurrence, outcome, reason, scheduled_at, until, times, at, r.id, l.is_catchup,
       detail, reply
  FROM ledger l LEFT JOIN run r ON r.no = l.run
 WHERE l.tenant = $1 AND l.schedule = $2 AND l.slot = $3 AND l.occurrence <= $4 ORDER BY l.occurrence DESC LIMIT $5

-- name: ledger_slots
-- Along the unique key: one step for each slot, however many rows it has.
WITH RECURSIVE found(slot) AS (
  SELECT min(slot) FROM ledger WHERE tenant = $1 AND schedule = $2
   UNION ALL
  SELECT (SELECT min(slot) FROM ledger WHERE tenant = $1 AND schedule = $2 AND slot > found.slot) FROM found
   WHERE found.slot IS NOT NULL)
SELECT slot FROM found WHERE slot IS NOT NULL LIMIT $3

-- name: ledger_of_run
SELECT l.pos, l.tenant, l.schedule, l.slot, occurrence, outcome, reason, scheduled_at, until, times, at, r.id, l.is_catchup,
       detail, reply
  FROM ledger l LEFT JOIN run r ON r.no = l.run WHERE l.run = $1

-- name: ledger_payload
SELECT payload FROM ledger WHERE pos = $1

-- name: settled_between
-- Instants are written so that their order is that of time; stretches, which end in `/..`, are not among them.
SELECT occurrence FROM ledger
 WHERE tenant = $1 AND schedule = $2 AND slot = $3 AND occurrence >= $4 AND occurrence <= $5
   AND outcome IN ('fired', 'buffered') ORDER BY occurrence LIMIT $6

-- name: buffered
-- Delayed ones that are due come first: whether they may wait for a run is not decided yet.
SELECT l.pos, l.tenant, l.schedule, l.slot, occurrence, outcome, reason, scheduled_at, until, times, at, NULL::text, l.is_catchup,
       detail, reply
  FROM ledger l WHERE tenant = $1 AND schedule = $2 AND slot = $3 AND outcome = 'buffered'
   AND (reason <> 'delayed' OR scheduled_at <= $4) ORDER BY reason <> 'delayed', pos LIMIT $5

-- name: buffered_count
-- Those that wait for a run to end, so many at most; a delayed one is not due yet.
SELECT count(*) FROM (
  SELECT 1 FROM ledger
   WHERE tenant = $1 AND schedule = $2 AND slot = $3 AND outcome = 'buffered' AND reason <> 'delayed' LIMIT $4) few

-- name: next_delayed
SELECT min(scheduled_at) FROM ledger WHERE outcome = 'buffered' AND reason = 'delayed' AND scheduled_at > $1

-- name: buffering_schedules
SELECT DISTINCT tenant, schedule, slot FROM ledger
 WHERE outcome = 'buffered' AND (tenant, schedule, slot) > ($1, $2, $3) AND slot IN ($4, $5)
 ORDER BY tenant, schedule, slot LIMIT $6

-- name: old_ledger
SELECT count(*) FROM (SELECT 1 FROM ledger WHERE run IS NULL AND at < $1 AND outcome <> 'buffered' LIMIT $2) few
