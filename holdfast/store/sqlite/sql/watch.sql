-- name: put_trace
INSERT INTO trace (run, parent) VALUES (?, ?) ON CONFLICT DO NOTHING;

-- name: forget_run_trace
DELETE FROM trace WHERE run = ?;

-- name: resting_runs
-- Open runs without an owner and without a time to wake, and whether they wait for something with a name: a tool, or a
-- row of `wait`.
SELECT no, needs IS NOT NULL OR EXISTS (SELECT 1 FROM wait WHERE wait.run = run.no AND wait.resolved_at IS NULL)
  FROM run WHERE owner IS NULL AND wake_at IS NULL AND finished_at IS NULL AND no > ? ORDER BY no LIMIT ?;

-- name: owned_runs
SELECT no, owner_epoch FROM run WHERE owner IS NOT NULL AND finished_at IS NULL AND no > ? ORDER BY no LIMIT ?;

-- name: waits_open
-- In the order of tenant, kind and place. In one condition on all three, SQLite would pass over what is before, one by one.
SELECT * FROM (SELECT tenant, kind, pos FROM wait
                WHERE resolved_at IS NULL AND tenant = ?1 AND kind = ?2 AND pos > ?3 ORDER BY pos LIMIT ?4)
 UNION ALL
SELECT * FROM (SELECT tenant, kind, pos FROM wait
                WHERE resolved_at IS NULL AND tenant = ?1 AND kind > ?2 ORDER BY kind, pos LIMIT ?4)
 UNION ALL
SELECT * FROM (SELECT tenant, kind, pos FROM wait
                WHERE resolved_at IS NULL AND tenant > ?1 ORDER BY tenant, kind, pos LIMIT ?4)
 LIMIT ?4;

-- name: callback_deliveries_by_state
SELECT 'waiting', count(*) FROM (SELECT 1 FROM outbox WHERE done_at IS NULL LIMIT ?1)
 UNION ALL SELECT 'dead', count(*) FROM (SELECT 1 FROM outbox WHERE outcome = 'dead' LIMIT ?1);

-- name: runs_by_status
SELECT status, sum(runs) FROM tally GROUP BY status;
