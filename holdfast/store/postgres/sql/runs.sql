-- name: run_by_id
SELECT r.no, r.tenant, r.id, version, status, epoch, owner, owner_epoch, wake_at, needs, labels, created_at, finished_at,
       parent_job_id, s.workflow, rerun_of, nullif(s.number, 0), r.schedule, r.slot
  FROM run r LEFT JOIN series s ON s.no = r.series WHERE r.tenant = $1 AND r.id = $2

-- name: runs_by_no
-- In the order of the numbers that are given.
SELECT r.no, r.tenant, r.id, version, status, epoch, owner, owner_epoch, wake_at, needs, labels, created_at, finished_at,
       parent_job_id, s.workflow, rerun_of, nullif(s.number, 0), r.schedule, r.slot
  FROM unnest($1::bigint[]) WITH ORDINALITY AS asked(no, ord) JOIN run r ON r.no = asked.no LEFT JOIN series s ON s.no = r.series
 ORDER BY asked.ord

-- name: runs_to_load
-- With the trace that each was started for, and the row of its newest snapshot.
SELECT r.no, r.tenant, r.id, version, status, epoch, owner, owner_epoch, wake_at, needs, labels, created_at, finished_at,
       parent_job_id, s.workflow, rerun_of, nullif(s.number, 0), r.schedule, r.slot,
       coalesce((SELECT parent FROM trace WHERE run = r.no), ''),
       coalesce((SELECT seq FROM snapshot WHERE run = r.no AND part = 0), 0)
  FROM unnest($1::bigint[]) AS asked(no) JOIN run r ON r.no = asked.no LEFT JOIN series s ON s.no = r.series

-- name: rows_to_load
-- What came after the newest snapshot of each.
SELECT j.seq, j.epoch, j.at, j.kind, j.body, j.run
  FROM unnest($1::bigint[], $2::bigint[]) AS asked(run, seq) JOIN journal j ON j.run = asked.run AND j.seq > asked.seq
 ORDER BY j.run, j.seq

-- name: snapshots_to_load
SELECT part, body, run FROM snapshot WHERE run = ANY ($1::bigint[]) ORDER BY run, part

-- name: ends
-- The row of a run with the first rows of its journal and the last, in one snapshot of the database.
SELECT r.no, r.tenant, r.id, version, status, r.epoch, owner, owner_epoch, wake_at, needs, labels, created_at, finished_at,
       parent_job_id, s.workflow, rerun_of, nullif(s.number, 0), r.schedule, r.slot,
       j.seq, j.epoch, j.at, j.kind, j.body
  FROM run r LEFT JOIN series s ON s.no = r.series
  JOIN LATERAL ((SELECT * FROM journal WHERE run = r.no ORDER BY seq LIMIT $3)
                UNION (SELECT * FROM journal WHERE run = r.no ORDER BY seq DESC LIMIT 1)) j ON true
 WHERE r.tenant = $1 AND r.id = $2 ORDER BY j.seq

-- name: rows_of
SELECT seq, epoch, at, kind, body FROM journal WHERE run = $1 AND seq > $2 ORDER BY seq LIMIT $3

-- name: rows_of_kind
SELECT body FROM journal WHERE run = $1 AND kind = $2 ORDER BY seq

-- name: last_seq
SELECT coalesce(max(seq), 0) FROM journal WHERE run = $1

-- name: blob
SELECT body FROM blob WHERE run = $1 AND sha256 = $2

-- name: board_parts
SELECT part, body FROM board WHERE run = $1 AND part = ANY ($2::text[])

-- name: runs_without_board
-- Of the newest runs, those with at least so many rows. A finished run may have only what was stored while it was open.
SELECT no FROM (SELECT no, finished_at FROM run ORDER BY no DESC LIMIT $1) r
 WHERE EXISTS (SELECT 1 FROM journal WHERE run = r.no AND seq >= $2)
   AND NOT EXISTS (SELECT 1 FROM board WHERE run = r.no AND (r.finished_at IS NULL OR part = 'head'))
 ORDER BY no DESC

-- name: blob_head
SELECT substring(body FROM 1 FOR $3::int), octet_length(body) FROM blob WHERE run = $1 AND sha256 = $2

-- name: number_at
-- Numbers follow creation, so the first run from a time on is searched by halves.
WITH RECURSIVE halves(low, high) AS (
  SELECT 1::bigint, coalesce((SELECT max(no) FROM run), 0) + 1
   UNION ALL
  SELECT CASE WHEN r.created_at < $1 THEN r.no + 1 ELSE low END, CASE WHEN r.created_at < $1 THEN high ELSE low + (high - low) / 2 END
    FROM halves CROSS JOIN LATERAL
         (SELECT no, created_at FROM run WHERE no >= low + (high - low) / 2 ORDER BY no LIMIT 1) r
   WHERE low < high)
SELECT low FROM halves WHERE low >= high

-- name: run_edges
SELECT r.no, j.at, j.body, CASE WHEN r.finished_at IS NULL THEN NULL ELSE
         (SELECT body FROM journal WHERE run = r.no ORDER BY seq DESC LIMIT 1) END,
       (SELECT again.id FROM run again WHERE again.rerun_of = r.id AND again.tenant = r.tenant ORDER BY again.no DESC LIMIT 1)
  FROM unnest($1::bigint[]) AS asked(no) JOIN run r ON r.no = asked.no JOIN journal j ON j.run = r.no AND j.seq = 1

-- name: listed
-- Each series and status is a stretch of the index in the order of creation; the newest of all stretches are merged.
SELECT found.no
  FROM (SELECT t.series, t.status FROM series s JOIN tally t ON t.series = s.no
         WHERE s.tenant = $1 AND ($2::text[] IS NULL OR s.workflow = ANY ($2)) AND ($3::bigint IS NULL OR s.number = $3)
           AND ($4::text[] IS NULL OR t.status = ANY ($4))
         GROUP BY t.series, t.status HAVING sum(t.runs) > 0) t
 CROSS JOIN LATERAL (SELECT no FROM run WHERE run.series = t.series AND run.status = t.status AND run.no < $5 AND run.no > $6
                      ORDER BY no DESC LIMIT $7) found
 ORDER BY found.no DESC LIMIT $7

-- name: labelled
-- Runs with a label, the newest first, with whether the rest of the list's conditions are met.
SELECT l.run, ($5::text[] IS NULL OR s.workflow = ANY ($5)) AND ($6::bigint IS NULL OR s.number = $6)
       AND ($7::text[] IS NULL OR r.status = ANY ($7))
       AND NOT EXISTS (SELECT 1 FROM unnest($8::text[], $9::text[]) AS m(name, value) WHERE NOT EXISTS
             (SELECT 1 FROM label o WHERE o.tenant = $1 AND o.run = l.run AND o.name = m.name AND (m.value IS NULL OR o.value = m.value)))
  FROM label l JOIN run r ON r.no = l.run LEFT JOIN series s ON s.no = r.series
 WHERE l.tenant = $1 AND l.name = $2 AND ($3::text IS NULL OR l.value = $3) AND l.run < $4
 ORDER BY l.run DESC LIMIT $10

-- name: count_runs
SELECT coalesce(sum(t.runs), 0)::bigint FROM series s JOIN tally t ON t.series = s.no
 WHERE s.tenant = $1 AND ($2::text[] IS NULL OR s.workflow = ANY ($2)) AND ($3::bigint IS NULL OR s.number = $3)
   AND ($4::text[] IS NULL OR t.status = ANY ($4))

-- name: run_counts
-- By workflow, in the order of their names.
SELECT s.workflow, t.status, sum(t.runs)::bigint FROM series s JOIN tally t ON t.series = s.no
 WHERE s.tenant = $1 GROUP BY s.workflow, t.status HAVING sum(t.runs) <> 0 ORDER BY s.workflow, t.status

-- name: has_pulse
SELECT EXISTS (SELECT 1 FROM pulse WHERE minute >= $1 AND minute < $2 AND (minute % 60 <> 0 OR NOT $3::boolean))

-- name: pulse
SELECT (minute - $3::bigint) / $5::bigint, beat, sum(runs)::bigint FROM pulse
 WHERE series IN (SELECT no FROM series WHERE tenant = $1 AND ($2::text[] IS NULL OR workflow = ANY ($2)))
   AND minute >= $3 AND minute < $4
 GROUP BY 1, 2

-- name: runs_by_status
SELECT status, sum(runs)::bigint FROM tally GROUP BY status

-- name: ids_like
-- By the beginning of an id ('~' stands behind every character of one), then, of the newest runs, by its end.
(SELECT id FROM run WHERE tenant = $1 AND id >= $2 AND id < $2 || '~' ORDER BY id DESC LIMIT $3)
 UNION ALL
(SELECT id FROM (SELECT id, tenant FROM run ORDER BY no DESC LIMIT $4) newest
  WHERE tenant = $1 AND right(id, length($2)) = $2 LIMIT $3)

-- name: latest_at
-- The latest time in the rows that were written last. It is in the future where the clock was set back since.
SELECT max(at) FROM (SELECT at FROM journal ORDER BY xid DESC, pos DESC LIMIT $1) last

-- name: finished_before
-- Each with the number of its rows, which is what deleting it costs. A run with an open final callback stays.
SELECT no, (SELECT coalesce(max(seq), 0) FROM journal WHERE journal.run = no) FROM run
 WHERE finished_at < $1 AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.run = run.no AND done_at IS NULL)
 ORDER BY finished_at LIMIT $2

-- name: feed
-- Rows of all tenants after a place, in the order of commits; rows of a transaction that an older one may still come before are
-- not there yet. The row of a run of another tenant has no body.
SELECT j.xid::text::bigint, j.pos, j.run, r.id, coalesce(s.workflow, ''), r.version, j.seq, j.epoch, j.at, j.kind,
       CASE WHEN r.tenant = $3 THEN j.body END
  FROM (SELECT * FROM journal
         WHERE (xid, pos) > ($1::text::xid8, $2::bigint) AND xid < ((pg_snapshot_xmin(pg_current_snapshot())::text::bigint
                  + coalesce((SELECT convert_from(value, 'UTF8')::bigint FROM meta WHERE key = 'xid_ahead'), 0))::text::xid8)
         ORDER BY xid, pos LIMIT $4) j
  LEFT JOIN run r ON r.no = j.run LEFT JOIN series s ON s.no = r.series
 ORDER BY j.xid, j.pos

-- name: feed_end
SELECT xid::text::bigint, pos FROM journal
 WHERE xid < ((pg_snapshot_xmin(pg_current_snapshot())::text::bigint
        + coalesce((SELECT convert_from(value, 'UTF8')::bigint FROM meta WHERE key = 'xid_ahead'), 0))::text::xid8)
 ORDER BY xid DESC, pos DESC LIMIT 1

-- name: feed_rest
-- About how many rows come after a place; it is not counted further than a million.
SELECT count(*) FROM (SELECT 1 FROM journal WHERE (xid, pos) > ($1::text::xid8, $2::bigint) LIMIT 1000000) rest

-- name: sizes
SELECT pg_database_size(current_database())

-- name: version
SELECT name, definition, uses, source, created_at FROM version WHERE tenant = $1 AND hash = $2

-- name: definition
SELECT definition, uses FROM version WHERE tenant = $1 AND hash = $2

-- name: published
SELECT w.version, v.definition, w.number FROM workflow w JOIN version v ON v.tenant = w.tenant AND v.hash = w.version
 WHERE w.tenant = $1 AND w.name = $2

-- name: workflow_names
SELECT name FROM workflow WHERE tenant = $1 ORDER BY name LIMIT $2

-- name: workflows
SELECT id, name, description, created_at, number, version, published_at FROM workflow
 WHERE tenant = $1 AND name > $2 ORDER BY name LIMIT $3

-- name: workflow
SELECT id, name, description, created_at, number, version, published_at FROM workflow WHERE tenant = $1 AND name = $2

-- name: workflow_by_id
SELECT id, name, description, created_at, number, version, published_at FROM workflow WHERE tenant = $1 AND id = $2

-- name: releases
-- The newest first.
SELECT r.id, w.id, r.workflow, r.number, r.version, r.status, r.created_at
  FROM workflow w JOIN release r ON r.tenant = w.tenant AND r.workflow = w.name
 WHERE w.tenant = $1 AND w.name = $2 AND r.number < $3 ORDER BY r.number DESC LIMIT $4

-- name: release_numbered
SELECT r.id, w.id, r.workflow, r.number, r.version, r.status, r.created_at
  FROM workflow w JOIN release r ON r.tenant = w.tenant AND r.workflow = w.name
 WHERE w.tenant = $1 AND w.name = $2 AND r.number = $3

-- name: release_by_id
SELECT r.id, w.id, r.workflow, r.number, r.version, r.status, r.created_at
  FROM release r JOIN workflow w ON w.tenant = r.tenant AND w.name = r.workflow WHERE r.tenant = $1 AND r.id = $2

-- name: newest_published
SELECT r.id, w.id, r.workflow, r.number, r.version, r.status, r.created_at
  FROM workflow w JOIN release r ON r.tenant = w.tenant AND r.workflow = w.name
 WHERE w.tenant = $1 AND w.name = $2 AND r.status = 'published' ORDER BY r.number DESC LIMIT 1
