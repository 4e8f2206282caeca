-- name: join_node
-- A younger node takes the name of an elder one, whose runs can be claimed at once. Its number is the lowest that is free.
INSERT INTO node (name, release, pid, no, lease_until)
SELECT $1, $3::text, $4::bigint, (SELECT min(free) FROM generate_series(0, 1023) free WHERE NOT EXISTS (SELECT 1 FROM node WHERE no = free AND NOT over)),
       clock_timestamp() + $2::bigint * interval '1 millisecond'
RETURNING epoch, no, (extract(epoch FROM clock_timestamp()) * 1000)::bigint

-- name: end_namesakes
-- Isolation ends with an opening: only runs of the incarnation that this one replaces name the attempt.
UPDATE node SET lane = CASE WHEN over THEN NULL ELSE lane END, over = true WHERE name = $1

-- name: forget_nodes
-- Incarnations that are over and have left nothing behind.
DELETE FROM node WHERE over AND NOT EXISTS (SELECT 1 FROM run WHERE owner_epoch = node.epoch AND owner IS NOT NULL AND finished_at IS NULL)

-- name: forget_duties
-- Of incarnations that are over: any node may take them, and some are of schedules that were deleted.
DELETE FROM duty WHERE epoch NOT IN (SELECT epoch FROM node WHERE NOT over)

-- name: gather_tallies
-- The counts of nodes that are gone become those of this one.
WITH gone AS (DELETE FROM tally WHERE node <> $1 AND node NOT IN (SELECT name FROM node WHERE NOT over) RETURNING *)
INSERT INTO tally (series, status, node, runs) SELECT series, status, $1, sum(runs) FROM gone GROUP BY series, status
    ON CONFLICT (series, status, node) DO UPDATE SET runs = tally.runs + excluded.runs

-- name: renew
UPDATE node SET lease_until = clock_timestamp() + $2::bigint * interval '1 millisecond', clock_ahead_ms = $3 WHERE epoch = $1 AND NOT over
RETURNING (extract(epoch FROM clock_timestamp()) * 1000)::bigint

-- name: is_alive
SELECT NOT over, committed FROM node WHERE epoch = $1

-- name: commit_again
UPDATE node SET committed = committed WHERE epoch = $1

-- name: use_up
-- The number of a commit that was given up. It waits for that commit if it is at work, and for a standby that lacks it.
UPDATE node SET committed = greatest(committed, $2) WHERE epoch = $1 AND NOT over RETURNING 1

-- name: leave
-- A graceful end: what is left can be claimed at once.
UPDATE node SET over = true WHERE epoch = $1

-- name: declare
-- The row of a node that commits or renews at this moment is locked: such a node is not dead.
UPDATE node SET over = true WHERE epoch IN
       (SELECT epoch FROM node WHERE NOT over AND lease_until <= clock_timestamp() FOR UPDATE SKIP LOCKED)

-- name: take_duty
INSERT INTO duty AS d (what, epoch, until) VALUES ($1, $2, clock_timestamp() + $3::bigint * interval '1 millisecond')
    ON CONFLICT (what) DO UPDATE SET epoch = excluded.epoch, until = excluded.until
 WHERE d.epoch = $2 OR d.until <= clock_timestamp() OR d.epoch NOT IN (SELECT epoch FROM node WHERE NOT over)
RETURNING 1

-- name: set_address
UPDATE node SET address = $2 WHERE epoch = $1

-- name: look
-- Everything that a node asks for once a second, in one row. What is due is asked for in the order of its time: the planner, which
-- does not know that time, would read whole tables for an EXISTS.
SELECT NOT me.over,
       EXISTS (SELECT 1 FROM node WHERE NOT over AND lease_until <= clock_timestamp()),
       EXISTS (SELECT 1 FROM mail m JOIN run r ON r.no = m.run
                WHERE (r.owner IS NULL OR r.owner_epoch = $1 OR r.owner_epoch NOT IN (SELECT epoch FROM node WHERE NOT over))
                  AND (r.claimant IS NULL OR r.claimant = $1 OR r.claimant NOT IN (SELECT epoch FROM node WHERE NOT over))),
       EXISTS (SELECT 1 FROM node n JOIN run r ON r.owner_epoch = n.epoch
                WHERE n.over AND r.owner IS NOT NULL AND r.finished_at IS NULL),
       (SELECT 1 FROM run WHERE owner IS NULL AND wake_at <= $2 AND finished_at IS NULL ORDER BY wake_at LIMIT 1) IS NOT NULL,
       (SELECT 1 FROM cursor WHERE next_at <= $2 AND slot IN ($3, $4) ORDER BY next_at LIMIT 1) IS NOT NULL,
       (SELECT 1 FROM outbox WHERE done_at IS NULL AND due_at <= $2 ORDER BY due_at LIMIT 1) IS NOT NULL,
       EXISTS (SELECT 1 FROM assignment WHERE token = '' AND NOT stop),
       (SELECT array_agg(what || ' ' || n) FROM change_count)
  FROM node me WHERE me.epoch = $1

-- name: nodes
SELECT name, epoch, over, (extract(epoch FROM began_at) * 1000)::bigint,
       (extract(epoch FROM lease_until - clock_timestamp()) * 1000)::bigint, release, address, pid, clock_ahead_ms,
       (SELECT count(*) FROM run WHERE owner_epoch = node.epoch AND owner IS NOT NULL AND finished_at IS NULL)
  FROM node ORDER BY name, epoch

-- name: claim_left
-- Runs whose owner has gone, in the order of their numbers, that no other living node has claimed.
WITH dead AS MATERIALIZED (SELECT DISTINCT owner_epoch FROM run
        WHERE owner IS NOT NULL AND finished_at IS NULL AND owner_epoch NOT IN (SELECT epoch FROM node WHERE NOT over)),
     pick AS (
       SELECT r.no FROM run r
        WHERE r.owner IS NOT NULL AND r.finished_at IS NULL AND r.owner_epoch IN (SELECT owner_epoch FROM dead)
          AND NOT r.no = ANY ($3::bigint[])
          AND (r.claimant IS NULL OR r.claimant = $1 OR r.claimant NOT IN (SELECT epoch FROM node WHERE NOT over))
        ORDER BY r.no LIMIT $2 FOR UPDATE OF r SKIP LOCKED)
UPDATE run r SET claimant = $1 FROM pick WHERE r.no = pick.no
RETURNING r.no, r.epoch, false, coalesce((SELECT lane FROM node WHERE epoch = r.owner_epoch), ''), r.no

-- name: claim_due
-- Released runs whose time has come, the longest overdue first. They are few: an array of them is looked up by the key.
WITH pick AS (
  SELECT r.no FROM run r
   WHERE r.owner IS NULL AND r.wake_at <= $4 AND r.finished_at IS NULL AND NOT r.no = ANY ($3::bigint[])
     AND (r.claimant IS NULL OR r.claimant = $1 OR r.claimant NOT IN (SELECT epoch FROM node WHERE NOT over))
   ORDER BY r.wake_at LIMIT $2 FOR UPDATE OF r SKIP LOCKED)
UPDATE run r SET claimant = $1 WHERE r.no = ANY (ARRAY(SELECT no FROM pick)) RETURNING r.no, r.epoch, true, '', r.wake_at

-- name: claim_run
-- One run, unless another living node owns it or has claimed it.
UPDATE run r SET claimant = $1
 WHERE r.no = $2 AND (r.owner IS NULL OR r.owner_epoch = $1 OR r.owner_epoch NOT IN (SELECT epoch FROM node WHERE NOT over))
   AND (r.claimant IS NULL OR r.claimant = $1 OR r.claimant NOT IN (SELECT epoch FROM node WHERE NOT over))
RETURNING r.no, r.epoch, r.owner IS NULL,
          CASE WHEN r.owner IS NULL THEN '' ELSE coalesce((SELECT lane FROM node WHERE epoch = r.owner_epoch), '') END

-- name: has_run
SELECT 1 FROM run WHERE no = $1

-- name: release_claims
UPDATE run SET claimant = NULL WHERE no = ANY ($2::bigint[]) AND claimant = $1

-- name: mail
-- Of the runs of this node, of released ones, and of those whose owner has gone. OFFSET 0 keeps one look-up per letter, where the
-- planner would read all runs.
SELECT m.run, m.dedup, m.body FROM mail m, LATERAL (SELECT owner, owner_epoch, claimant FROM run WHERE no = m.run OFFSET 0) r
 WHERE (r.owner IS NULL OR r.owner_epoch = $1 OR r.owner_epoch NOT IN (SELECT epoch FROM node WHERE NOT over))
   AND (r.claimant IS NULL OR r.claimant = $1 OR r.claimant NOT IN (SELECT epoch FROM node WHERE NOT over))
 ORDER BY m.pos LIMIT $2

-- name: sleeping
SELECT no FROM run WHERE owner IS NULL AND wake_at IS NOT NULL AND finished_at IS NULL ORDER BY wake_at LIMIT $1

-- name: next_wake
SELECT min(wake_at) FROM run WHERE owner IS NULL AND wake_at > $1 AND finished_at IS NULL

-- name: services_in_need
-- The key of a service has eight characters before its name: service:
SELECT substr(e.key, 9), sum((e.value ->> 0)::bigint)::bigint, min((e.value ->> 1)::bigint) FROM run r, json_each(r.needs::json) e
 WHERE r.needs IS NOT NULL AND r.owner IS NULL AND r.finished_at IS NULL AND r.tenant = $1 AND e.key LIKE 'service:%'
 GROUP BY e.key LIMIT $2

-- name: in_need
SELECT no, tenant, needs FROM run WHERE needs IS NOT NULL AND owner IS NULL AND finished_at IS NULL AND no > $1 ORDER BY no LIMIT $2

-- name: interruptible
SELECT no FROM run WHERE on_restart IS NOT NULL AND finished_at IS NULL AND no > $1 ORDER BY no LIMIT $2

-- name: owned_runs
SELECT no, owner_epoch FROM run WHERE owner IS NOT NULL AND finished_at IS NULL AND no > $1 ORDER BY no LIMIT $2

-- name: resting_runs
-- Open runs without an owner and without a time to wake, and whether they wait for something with a name: a tool, or a row of
-- `wait`.
SELECT no, needs IS NOT NULL OR EXISTS (SELECT 1 FROM wait WHERE wait.run = run.no AND wait.resolved_at IS NULL)
  FROM run WHERE owner IS NULL AND wake_at IS NULL AND finished_at IS NULL AND no > $1 ORDER BY no LIMIT $2

-- name: meta
SELECT value FROM meta WHERE key = $1

-- name: add_meta
INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT DO NOTHING
