-- What runs wait for that others can give. One that is over stays, so that whoever comes late is told what became of it.

CREATE TABLE wait_of_all (
  pos         INTEGER PRIMARY KEY,
  tenant      TEXT NOT NULL,
  kind        TEXT NOT NULL CHECK (kind IN ('key', 'callback', 'signal', 'approval', 'condition')),
  scope       TEXT NOT NULL DEFAULT '',
  name        TEXT NOT NULL,
  run         INTEGER NOT NULL,
  path        TEXT NOT NULL,
  attempt     INTEGER NOT NULL DEFAULT 0,
  since       INTEGER NOT NULL,
  expires_at  INTEGER,
  detail      TEXT,
  resolved_at INTEGER,
  outcome     TEXT,
  UNIQUE (run, path, attempt, kind)
);

INSERT INTO wait_of_all (pos, tenant, kind, scope, name, run, path, since)
  SELECT pos, tenant, kind, scope, name, run, path, since FROM wait;
DROP TABLE wait;
ALTER TABLE wait_of_all RENAME TO wait;

CREATE INDEX wait_name ON wait (tenant, kind, scope, name, pos);
CREATE INDEX wait_open ON wait (tenant, kind, pos) WHERE resolved_at IS NULL;

-- Answers to calls that nobody knows of yet, by the id that their sender gave them.
CREATE TABLE early_result (
  tenant     TEXT NOT NULL,
  task_id    TEXT NOT NULL,
  body       TEXT NOT NULL,
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (tenant, task_id)
) WITHOUT ROWID;

CREATE INDEX early_result_expires ON early_result (expires_at);
