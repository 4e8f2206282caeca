-- Who offers to do the work of services, and the jobs that were given to workers who fetch them.

-- `place` is the order of registration. A worker that was not heard of for a while is `offline`; it stays known for a time.
CREATE TABLE worker (
  tenant        TEXT NOT NULL,
  id            TEXT NOT NULL,
  kind          TEXT NOT NULL CHECK (kind IN ('http', 'pull')),
  url           TEXT NOT NULL,
  services      TEXT NOT NULL,
  status        TEXT NOT NULL CHECK (status IN ('online', 'offline')),
  place         INTEGER NOT NULL,
  key_id        TEXT NOT NULL,
  is_trusted    INTEGER NOT NULL,
  heard_at      INTEGER NOT NULL,
  PRIMARY KEY (tenant, id)
) WITHOUT ROWID;

-- One row per open attempt that waits for a worker to fetch it, or is with one. Without a token nobody has it.
CREATE TABLE assignment (
  run        INTEGER NOT NULL,
  path       TEXT NOT NULL,
  attempt    INTEGER NOT NULL,
  service    TEXT NOT NULL,
  worker     TEXT NOT NULL,
  token      TEXT NOT NULL,
  offers     INTEGER NOT NULL,
  claimed_at INTEGER NOT NULL,
  PRIMARY KEY (run, path, attempt)
) WITHOUT ROWID;
