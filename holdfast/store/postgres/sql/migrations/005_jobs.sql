-- Jobs of pull workers, which may fetch and report at any node. lease_until is judged by the clock of the database; stop: its worker
-- must stop, and is_told of it; report: the result that a node has accepted for the owner of the run.

ALTER TABLE assignment
  ADD lease_ms    bigint NOT NULL DEFAULT 0,
  ADD lease_until timestamptz,
  ADD stop        boolean NOT NULL DEFAULT false,
  ADD is_told     boolean NOT NULL DEFAULT false,
  ADD report      bytea;

CREATE INDEX assignment_offered ON assignment (service, run) WHERE token = '' AND NOT stop;
CREATE INDEX assignment_stopped ON assignment (worker) WHERE stop AND NOT is_told;
