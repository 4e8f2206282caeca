-- Idempotency keys of steps, and who waits for what others can resolve.

-- `scope` is the id of a run, or '' for all of them. Held while `output` is null, by that step of that run; answered after.
CREATE TABLE key (
  tenant     TEXT NOT NULL,
  scope      TEXT NOT NULL,
  key        TEXT NOT NULL,
  run        INTEGER NOT NULL,
  path       TEXT NOT NULL,
  output     BLOB,
  created_at INTEGER NOT NULL,
  expires_at INTEGER,
  PRIMARY KEY (tenant, scope, key)
) WITHOUT ROWID;

CREATE INDEX key_run ON key (run);
CREATE INDEX key_expires ON key (expires_at) WHERE expires_at IS NOT NULL;

-- In the order of their coming: the oldest is the next.
CREATE TABLE wait (
  pos    INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL,
  kind   TEXT NOT NULL CHECK (kind IN ('key')),
  scope  TEXT NOT NULL,
  name   TEXT NOT NULL,
  run    INTEGER NOT NULL,
  path   TEXT NOT NULL,
  since  INTEGER NOT NULL,
  UNIQUE (run, path, kind)
);

CREATE INDEX wait_name ON wait (tenant, kind, scope, name, pos);

-- A definition that names others is pinned to their versions: name → hash, as JSON.
ALTER TABLE version ADD COLUMN uses TEXT;

-- A run that does another one again.
ALTER TABLE run ADD COLUMN rerun_of TEXT;

-- What is old is looked for every hour.
CREATE INDEX run_finished ON run (finished_at) WHERE finished_at IS NOT NULL;

-- Files by content that outputs refer to; one that no run names any more is swept.
CREATE TABLE artefact (
  run        INTEGER NOT NULL,
  sha256     TEXT NOT NULL,
  size       INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (run, sha256)
) WITHOUT ROWID;

CREATE INDEX artefact_sha256 ON artefact (sha256);
