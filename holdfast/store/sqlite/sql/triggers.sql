-- name: put_schedule
-- A schedule that is replaced keeps the time of its creation.
INSERT INTO schedule (tenant, id, kind, origin, source, priority, created_at, updated_at, body)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
  ON CONFLICT (tenant, id) DO UPDATE
    SET kind = excluded.kind, origin = excluded.origin, source = excluded.source, priority = excluded.priority,
        updated_at = excluded.updated_at, body = excluded.body,
        created_at = CASE WHEN typeof(schedule.created_at) = 'integer' AND schedule.created_at BETWEEN 0 AND 253402300799999
                          THEN schedule.created_at ELSE excluded.created_at END;

-- name: forget_schedule
DELETE FROM schedule WHERE tenant = ? AND id = ?;

-- name: forget_cursors
DELETE FROM cursor WHERE tenant = ? AND schedule = ?;

-- name: forget_buffered
-- What waits for a schedule that is deleted will not start: its rows say so.
UPDATE ledger SET outcome = 'skipped', reason = 'deleted', payload = NULL
 WHERE tenant = ? AND schedule = ? AND outcome = 'buffered';

-- name: add_cursor
-- Nothing is changed if there is one already: the commit counts its changes.
INSERT INTO cursor (tenant, schedule, slot, revision, next_at, owes, body) VALUES (?, ?, ?, ?, ?, ?, ?)
  ON CONFLICT DO NOTHING;

-- name: move_cursor
-- Many to a statement. The last value is the revision that was read: a cursor with another one stays as it is.
UPDATE cursor
   SET revision = b.column4, next_at = b.column5, owes = b.column6, body = b.column7
  FROM (VALUES (?, ?, ?, ?, ?, ?, ?, ?)) AS b
 WHERE cursor.tenant = b.column1 AND cursor.schedule = b.column2 AND cursor.slot = b.column3
   AND cursor.revision = b.column8;

-- name: revision_of
SELECT revision FROM cursor WHERE tenant = ? AND schedule = ? AND slot = ?;

-- name: add_entry
-- A stretch that grows replaces its row, and so does an occurrence that is started after it had failed or been refused. One
-- that has a run, or is buffered, stays as it is.
INSERT INTO ledger (tenant, schedule, slot, occurrence, outcome, reason, scheduled_at, until, times, at, run, is_catchup,
                    detail, reply, payload)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
  ON CONFLICT (tenant, schedule, slot, occurrence) DO UPDATE
    SET outcome = excluded.outcome, reason = excluded.reason, scheduled_at = excluded.scheduled_at, until = excluded.until,
        times = excluded.times, at = excluded.at, run = excluded.run, is_catchup = excluded.is_catchup,
        detail = excluded.detail, reply = excluded.reply, payload = excluded.payload
    WHERE ledger.outcome NOT IN ('fired', 'buffered');

-- name: take_buffered
-- It is replaced by the row of its run in the same commit.
UPDATE ledger SET outcome = 'failed' WHERE tenant = ? AND schedule = ? AND slot = ? AND occurrence = ? AND outcome = 'buffered';

-- name: outcome_of
SELECT outcome FROM ledger WHERE tenant = ? AND schedule = ? AND slot = ? AND occurrence = ?;

-- name: note_end
-- A run of a schedule has failed. Of one that has not, clear_failures.
UPDATE cursor SET error_count = error_count + 1, failures = failures + 1, last_error = ?4
 WHERE tenant = ?1 AND schedule = ?2 AND slot = ?3;

-- name: clear_failures
-- Many to a statement.
UPDATE cursor SET failures = 0 FROM (VALUES (?, ?, ?)) AS b
 WHERE cursor.tenant = b.column1 AND cursor.schedule = b.column2 AND cursor.slot = b.column3 AND cursor.failures > 0;

-- name: set_awake
INSERT OR REPLACE INTO meta (key, value) VALUES ('awake_at', ?);

-- name: set_outages
INSERT OR REPLACE INTO meta (key, value) VALUES ('outages', ?);

-- name: awake
SELECT (SELECT value FROM meta WHERE key = 'awake_at'), (SELECT value FROM meta WHERE key = 'outages');

-- name: schedule
SELECT tenant, id, kind, origin, source, priority, created_at, updated_at, body FROM schedule WHERE tenant = ? AND id = ?;

-- name: schedules
SELECT tenant, id, kind, origin, source, priority, created_at, updated_at, body FROM schedule
 WHERE tenant = ?1 AND id > ?2 AND (?3 IS NULL OR origin = ?3) ORDER BY id LIMIT ?4;

-- name: count_schedules
SELECT count(*) FROM schedule WHERE tenant = ?;

-- name: schedules_of_kind
SELECT tenant, id, kind, origin, source, priority, created_at, updated_at, body FROM schedule
 WHERE kind = ? AND (tenant, id) > (?, ?) ORDER BY tenant, id LIMIT ?;

-- name: due_schedules
-- With the number of their open runs, and of those that catch up. The slot of a node is its name; '' is for all nodes.
SELECT s.tenant, s.id, kind, origin, source, priority, created_at, updated_at, s.body,
       c.slot, revision, next_at, owes, c.body, error_count, failures, last_error,
       (SELECT count(*) FROM run r WHERE r.tenant = c.tenant AND r.schedule = c.schedule AND r.slot = c.slot
           AND r.finished_at IS NULL),
       (SELECT count(*) FROM run r WHERE r.tenant = c.tenant AND r.schedule = c.schedule AND r.slot = c.slot
           AND r.is_catchup = 1 AND r.finished_at IS NULL)
  FROM cursor c CROSS JOIN schedule s ON s.tenant = c.tenant AND s.id = c.schedule
 WHERE c.next_at <= ? AND c.slot IN (?, ?) ORDER BY c.next_at LIMIT ?;

-- name: owing_schedules
SELECT c.tenant, c.schedule, c.slot FROM cursor c
 WHERE c.owes AND (c.tenant, c.schedule, c.slot) > (?, ?, ?) AND c.slot IN (?, ?)
 ORDER BY c.tenant, c.schedule, c.slot LIMIT ?;

-- name: schedule_states
-- Of the schedules that are named in a JSON array, in its order; in every slot if the last value says so.
SELECT s.tenant, s.id, kind, origin, source, priority, created_at, updated_at, s.body,
       c.slot, revision, next_at, owes, c.body, error_count, failures, last_error,
       (SELECT count(*) FROM run r WHERE r.tenant = c.tenant AND r.schedule = c.schedule AND r.slot = c.slot
           AND r.finished_at IS NULL),
       (SELECT count(*) FROM run r WHERE r.tenant = c.tenant AND r.schedule = c.schedule AND r.slot = c.slot
           AND r.is_catchup = 1 AND r.finished_at IS NULL)
  FROM json_each(?) asked
 CROSS JOIN schedule s ON s.tenant = asked.value ->> 0 AND s.id = asked.value ->> 1
 CROSS JOIN cursor c ON c.tenant = s.tenant AND c.schedule = s.id
 WHERE c.slot IN (?, ?) OR ? ORDER BY asked.key, c.slot;

-- name: next_due
-- In a damaged row the time may be a text, which is greater than any number.
SELECT min(next_at) FROM cursor WHERE next_at IS NOT NULL AND next_at > ? AND next_at < 9223372036854775807 AND slot IN (?, ?);

-- name: next_fires
-- As next_due.
SELECT schedule, next_at FROM cursor WHERE next_at IS NOT NULL AND next_at < 9223372036854775807 ORDER BY tenant, schedule, slot LIMIT ?;

-- name: oldest_run_of
SELECT id FROM run WHERE tenant = ? AND schedule = ? AND slot = ? AND finished_at IS NULL AND is_catchup = 0
 ORDER BY no LIMIT 1;

-- name: open_runs_of
SELECT count(*) FROM run WHERE tenant = ? AND schedule = ? AND slot = ? AND finished_at IS NULL;

-- name: ledger
SELECT l.pos, l.tenant, l.schedule, l.slot, occurrence, outcome, reason, scheduled_at, until, times, at, r.id, l.is_catchup,
       detail, reply
  FROM ledger l LEFT JOIN run r ON r.no = l.run
 WHERE l.tenant = ? AND l.schedule = ? AND l.pos < ? ORDER BY l.pos DESC LIMIT ?;

-- name: ledger_of_unfired
SELECT l.pos, l.tenant, l.schedule, l.slot, occurrence, outcome, reason, scheduled_at, until, times, at, NULL, l.is_catchup,
       detail, reply
  FROM ledger l WHERE l.tenant = ? AND l.schedule = ? AND l.pos < ? AND l.outcome <> 'fired' ORDER BY l.pos DESC LIMIT ?;

-- name: ledger_row
SELECT l.pos, l.tenant, l.schedule, l.slot, occurrence, outcome, reason, scheduled_at, until, times, at, r.id, l.is_catchup,
       detail, reply
  FROM ledger l LEFT JOIN run r ON r.no = l.run
 WHERE l.tenant = ? AND l.schedule = ? AND l.slot = ? AND l.occurrence = ?;

-- name: ledger_until
-- Rows up to an occurrence, the last first, along the unique key: instants are written so that their order is that of time.
SELECT l.pos, l.tenant, l.schedule, l.slot, occurrence, outcome, reason, scheduled_at, until, times, at, r.id, l.is_catchup,
       detail, reply
  FROM ledger l LEFT JOIN run r ON r.no = l.run
 WHERE l.tenant = ? AND l.schedule = ? AND l.slot = ? AND l.occurrence <= ? ORDER BY l.occurrence DESC LIMIT ?;

-- name: ledger_slots
-- Along the unique key: one step for each slot, however many rows it has.
WITH RECURSIVE found(slot) AS (
  SELECT min(slot) FROM ledger WHERE tenant = ?1 AND schedule = ?2
   UNION ALL
  SELECT (SELECT min(slot) FROM ledger WHERE tenant = ?1 AND schedule = ?2 AND slot > found.slot) FROM found
   WHERE found.slot IS NOT NULL)
SELECT slot FROM found WHERE slot IS NOT NULL LIMIT ?3;

-- name: ledger_of_run
SELECT l.pos, l.tenant, l.schedule, l.slot, occurrence, outcome, reason, scheduled_at, until, times, at, r.id, l.is_catchup,
       detail, reply
  FROM ledger l LEFT JOIN run r ON r.no = l.run WHERE l.run = ?;

-- name: ledger_payload
SELECT payload FROM ledger WHERE pos = ?;

-- name: settled_between
-- Instants are written so that their order is that of time; stretches, which end in `/..`, are not among them.
SELECT occurrence FROM ledger
 WHERE tenant = ? AND schedule = ? AND slot = ? AND occurrence >= ? AND occurrence <= ?
   AND outcome IN ('fired', 'buffered') ORDER BY occurrence LIMIT ?;

-- name: buffered
-- Delayed ones that are due come first: whether they may wait for a run is not decided yet.
SELECT l.pos, l.tenant, l.schedule, l.slot, occurrence, outcome, reason, scheduled_at, until, times, at, NULL, l.is_catchup,
       detail, reply
  FROM ledger l WHERE tenant = ?1 AND schedule = ?2 AND slot = ?3 AND outcome = 'buffered'
   AND (reason <> 'delayed' OR scheduled_at <= ?4) ORDER BY reason <> 'delayed', pos LIMIT ?5;

-- name: buffered_count
-- Those that wait for a run to end, so many at most; a delayed one is not due yet.
SELECT count(*) FROM (
  SELECT 1 FROM ledger
   WHERE tenant = ? AND schedule = ? AND slot = ? AND outcome = 'buffered' AND reason <> 'delayed' LIMIT ?);

-- name: next_delayed
SELECT min(scheduled_at) FROM ledger WHERE outcome = 'buffered' AND reason = 'delayed' AND scheduled_at > ?;

-- name: buffering_schedules
SELECT DISTINCT tenant, schedule, slot FROM ledger
 WHERE outcome = 'buffered' AND (tenant, schedule, slot) > (?, ?, ?) AND slot IN (?, ?)
 ORDER BY tenant, schedule, slot LIMIT ?;

-- name: forget_ledger
-- Rows without a run that are old; the others are deleted with their runs. What is buffered stays.
DELETE FROM ledger WHERE pos IN (
  SELECT pos FROM ledger WHERE run IS NULL AND at < ?1 AND outcome <> 'buffered' ORDER BY at LIMIT ?2);

-- name: old_ledger
SELECT count(*) FROM (SELECT 1 FROM ledger WHERE run IS NULL AND at < ? AND outcome <> 'buffered' LIMIT ?);

-- name: forget_run_ledger
DELETE FROM ledger WHERE run = ?;

-- name: every_schedule
SELECT schedule.tenant, schedule.id, schedule.body, cursor.body
FROM schedule LEFT JOIN cursor ON cursor.tenant = schedule.tenant AND cursor.schedule = schedule.id;
