-- Jobs of pull workers, at any node. Each statement is a commit of its own: what it changes is decided by the row it finds.

-- name: claim_jobs
-- Lease offered jobs to a worker, the oldest first, one for each token. The owners of their runs hear of it.
WITH pick AS (
  SELECT a.run, a.path, a.attempt, r.owner_epoch FROM assignment a JOIN run r ON r.no = a.run
   WHERE a.token = '' AND NOT a.stop AND a.service = ANY ($2::text[]) AND r.tenant = $1 AND r.finished_at IS NULL
   ORDER BY a.run, a.path LIMIT cardinality($4::text[]) FOR UPDATE OF a SKIP LOCKED),
 numbered AS (SELECT *, row_number() OVER (ORDER BY run, path) AS nth FROM pick),
 taken AS (
  UPDATE assignment a SET worker = $3, token = ($4::text[])[n.nth], offers = a.offers + 1, claimed_at = $5, lease_ms = $6,
         lease_until = clock_timestamp() + $6::bigint * interval '1 millisecond', is_told = false, report = NULL
    FROM numbered n WHERE a.run = n.run AND a.path = n.path AND a.attempt = n.attempt
  RETURNING a.run, a.path, a.attempt, a.service, a.worker, a.token, a.offers, a.claimed_at, n.owner_epoch)
SELECT run, path, attempt, service, worker, token, offers, claimed_at, pg_notify('holdfast_mail', 'jobs ' || coalesce(owner_epoch, 0))
  FROM taken ORDER BY run, path

-- name: shorten_lease
UPDATE assignment SET lease_ms = $5, lease_until = clock_timestamp() + $5::bigint * interval '1 millisecond'
 WHERE run = $1 AND path = $2 AND attempt = $3 AND token = $4

-- name: renew_job
UPDATE assignment SET lease_until = clock_timestamp() + lease_ms * interval '1 millisecond'
 WHERE run = $1 AND path = $2 AND attempt = $3 AND token = $4 AND token <> '' RETURNING lease_ms, stop, worker

-- name: report_job
-- A run that no node drives is due, so that one takes it up.
WITH told AS (
  UPDATE assignment SET report = $5 WHERE run = $1 AND path = $2 AND attempt = $3 AND token = $4 AND token <> '' AND report IS NULL
  RETURNING run),
 woken AS (UPDATE run r SET wake_at = least(r.wake_at, r.created_at) FROM told WHERE r.no = told.run AND r.owner IS NULL RETURNING r.no)
SELECT pg_notify('holdfast_mail', 'jobs ' || coalesce(r.owner_epoch, 0)), (SELECT count(*) FROM woken)
  FROM run r JOIN told ON r.no = told.run

-- name: report_of
SELECT report FROM assignment WHERE run = $1 AND path = $2 AND attempt = $3 AND token = $4 AND report IS NOT NULL

-- name: stopped_jobs
-- Those that a worker must stop, each once.
UPDATE assignment a SET is_told = true FROM run r
 WHERE a.worker = $2 AND a.stop AND NOT a.is_told AND a.token <> '' AND r.no = a.run AND r.tenant = $1
RETURNING r.id, a.path, a.attempt

-- name: stop_job
WITH stopped AS (UPDATE assignment SET stop = true WHERE run = $1 AND path = $2 AND attempt = $3 RETURNING token)
SELECT token, pg_notify('holdfast_mail', 'offers') FROM stopped

-- name: take_back_job
-- Only if its lease has expired and no node has accepted a result.
WITH back AS (
  UPDATE assignment a SET worker = '', token = '' FROM run r
   WHERE a.run = $1 AND a.path = $2 AND a.attempt = $3 AND a.token = $4 AND a.report IS NULL AND a.lease_until <= clock_timestamp()
     AND r.no = a.run AND r.owner_epoch = $5
  RETURNING 1)
SELECT pg_notify('holdfast_mail', 'offers') FROM back

-- name: end_job
-- Let no worker fetch it or report on it any more, unless one has meanwhile.
UPDATE assignment a SET stop = true, token = '' FROM run r
 WHERE a.run = $1 AND a.path = $2 AND a.attempt = $3 AND a.token = $4 AND a.report IS NULL AND r.no = a.run AND r.owner_epoch = $5
RETURNING 1

-- name: fetched_jobs
-- Of the runs of this node, with what is left of their leases.
SELECT a.run, a.path, a.attempt, a.service, a.worker, a.token, a.offers, a.claimed_at,
       extract(epoch FROM a.lease_until - clock_timestamp())::float8, a.report
  FROM run r JOIN assignment a ON a.run = r.no WHERE r.owner_epoch = $1 AND r.owner IS NOT NULL AND r.finished_at IS NULL AND a.token <> ''

-- name: take_over_jobs
-- The jobs of runs that this node has claimed. A worker whose node died has a whole lease to find another.
UPDATE assignment SET lease_until = greatest(lease_until, clock_timestamp() + lease_ms * interval '1 millisecond')
 WHERE run = ANY ($1::bigint[]) RETURNING run, path, attempt, service, worker, token, offers, claimed_at
