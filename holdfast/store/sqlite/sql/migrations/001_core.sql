-- The durable core: who owns the file, what was defined, what runs, and everything that happened.

CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value NOT NULL
) WITHOUT ROWID;

INSERT INTO meta (key, value) VALUES ('epoch', 0);

-- One row per engine process name; epoch is its incarnation, lane the suspect that runs alone in it.
CREATE TABLE node (
  name  TEXT PRIMARY KEY,
  epoch INTEGER NOT NULL,
  lane  TEXT
) WITHOUT ROWID;

-- Definitions by content: never changed, never reused for anything else.
CREATE TABLE version (
  tenant     TEXT NOT NULL,
  hash       TEXT NOT NULL,
  name       TEXT NOT NULL,
  definition TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (tenant, hash)
) WITHOUT ROWID;

-- Written when status, owner or wake time change, not per step. One that is open has no finished_at: the indexes of open
-- runs ask for that alone, since a list of states would be gone through for each of them at every write.
CREATE TABLE run (
  no          INTEGER PRIMARY KEY,
  tenant      TEXT NOT NULL,
  id          TEXT NOT NULL,
  version     TEXT NOT NULL,
  status      TEXT NOT NULL,
  owner       TEXT,
  owner_epoch INTEGER,
  epoch       INTEGER NOT NULL DEFAULT 0,
  wake_at     INTEGER,
  needs       TEXT,
  on_restart  TEXT,
  labels      TEXT,
  created_at  INTEGER NOT NULL,
  finished_at INTEGER,
  UNIQUE (tenant, id)
);

CREATE INDEX run_owned ON run (no)
  WHERE owner IS NOT NULL AND finished_at IS NULL;
CREATE INDEX run_due ON run (wake_at)
  WHERE owner IS NULL AND wake_at IS NOT NULL AND finished_at IS NULL;
CREATE INDEX run_needs ON run (no)
  WHERE needs IS NOT NULL AND finished_at IS NULL;
CREATE INDEX run_interruptible ON run (no)
  WHERE on_restart IS NOT NULL AND finished_at IS NULL;

-- The truth, in commit order. (run, seq) is the fence: of two owners only one can append the next row.
CREATE TABLE journal (
  pos   INTEGER PRIMARY KEY,
  run   INTEGER NOT NULL,
  seq   INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  at    INTEGER NOT NULL,
  kind  TEXT NOT NULL,
  body  TEXT NOT NULL,
  UNIQUE (run, seq)
);

CREATE TABLE snapshot (
  run  INTEGER NOT NULL,
  part INTEGER NOT NULL,
  seq  INTEGER NOT NULL,
  body BLOB NOT NULL,
  PRIMARY KEY (run, part)
);

CREATE TABLE blob (
  run    INTEGER NOT NULL,
  sha256 TEXT NOT NULL,
  body   BLOB NOT NULL,
  PRIMARY KEY (run, sha256)
);
