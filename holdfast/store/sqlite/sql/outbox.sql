-- name: put_callback_delivery
INSERT INTO outbox (tenant, id, run, n, url, origin, secret_env, created_at, due_at)
  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8);

-- name: callback_delivery_tried
-- Only one that is still as its writer saw it.
UPDATE outbox SET tries = ?, due_at = ?, done_at = ?, outcome = ?, last_error = ? WHERE pos = ? AND outcome IS ?;

-- name: callback_deliveries_due
-- Those to one address of one run go in their order: a later one waits until the earlier ones are over.
SELECT o.pos, o.tenant, o.id, r.id, r.no, o.n, o.url, o.origin, o.secret_env, o.created_at, o.tries, o.due_at, o.done_at,
       o.outcome, o.last_error
  FROM outbox o JOIN run r ON r.no = o.run
 WHERE o.done_at IS NULL AND o.due_at <= :now
   AND o.origin NOT IN (SELECT value FROM json_each(:full))
   AND (:runs IS NULL OR o.run IN (SELECT value FROM json_each(:runs)))
   AND NOT EXISTS (SELECT 1 FROM outbox e WHERE e.run = o.run AND e.n < o.n AND e.url = o.url AND e.done_at IS NULL)
 ORDER BY o.due_at, o.pos LIMIT :limit;

-- name: next_callback_delivery
SELECT min(due_at) FROM outbox WHERE done_at IS NULL AND due_at > ?;

-- name: callback_deliveries_of_run
SELECT o.pos, o.tenant, o.id, r.id, r.no, o.n, o.url, o.origin, o.secret_env, o.created_at, o.tries, o.due_at, o.done_at,
       o.outcome, o.last_error
  FROM outbox o JOIN run r ON r.no = o.run WHERE o.run = ? ORDER BY o.n;

-- name: dead_letters
SELECT o.pos, o.tenant, o.id, r.id, r.no, o.n, o.url, o.origin, o.secret_env, o.created_at, o.tries, o.due_at, o.done_at,
       o.outcome, o.last_error
  FROM outbox o JOIN run r ON r.no = o.run WHERE o.tenant = ? AND o.outcome = 'dead' AND o.pos > ? ORDER BY o.pos LIMIT ?;

-- name: callback_delivery
SELECT o.pos, o.tenant, o.id, r.id, r.no, o.n, o.url, o.origin, o.secret_env, o.created_at, o.tries, o.due_at, o.done_at,
       o.outcome, o.last_error
  FROM outbox o JOIN run r ON r.no = o.run WHERE o.tenant = ? AND o.id = ?;

-- name: forget_run_callback_deliveries
DELETE FROM outbox WHERE run = ?;
