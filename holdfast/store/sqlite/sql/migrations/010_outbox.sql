-- Letters: the end of a run, told to one of its destinations. One that is over stays with its run and says how.

CREATE TABLE outbox (
  pos        INTEGER PRIMARY KEY,
  tenant     TEXT NOT NULL,
  id         TEXT NOT NULL,
  run        INTEGER NOT NULL,
  n          INTEGER NOT NULL,
  url        TEXT NOT NULL,
  origin     TEXT NOT NULL,
  secret_env TEXT,
  created_at INTEGER NOT NULL,
  tries      INTEGER NOT NULL DEFAULT 0,
  due_at     INTEGER NOT NULL,
  done_at    INTEGER,
  outcome    TEXT CHECK (outcome IN ('delivered', 'dead', 'discarded')),
  last_error TEXT NOT NULL DEFAULT '',
  CHECK ((done_at IS NULL) = (outcome IS NULL)),
  UNIQUE (run, n),
  UNIQUE (tenant, id)
);

CREATE INDEX outbox_due ON outbox (due_at, pos) WHERE done_at IS NULL;
CREATE INDEX outbox_dead ON outbox (tenant, pos) WHERE outcome = 'dead';
