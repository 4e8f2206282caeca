-- Triggers: schedules, how far each has come, and the ledger of what became of every occurrence.

-- `body` is the definition as canonical JSON. `origin` says who may change it, `source` where it was read from.
CREATE TABLE schedule (
  tenant     TEXT NOT NULL,
  id         TEXT NOT NULL,
  kind       TEXT NOT NULL,
  origin     TEXT NOT NULL CHECK (origin IN ('file', 'api', 'plugin', 'code')),
  source     TEXT NOT NULL DEFAULT '',
  priority   INTEGER NOT NULL DEFAULT 1000,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  body       TEXT NOT NULL,
  PRIMARY KEY (tenant, id)
);

CREATE INDEX schedule_kind ON schedule (kind, tenant, id);

-- One per schedule and slot; `body` is the cursor of schedule/records.py. A commit that moves it compares `revision`. `owes`:
-- occurrences wait for a run to end. Failures are counted by the commits that end runs, and change no revision.
CREATE TABLE cursor (
  tenant      TEXT NOT NULL,
  schedule    TEXT NOT NULL,
  slot        TEXT NOT NULL,
  revision    INTEGER NOT NULL,
  next_at     INTEGER,
  owes        INTEGER NOT NULL DEFAULT 0,
  body        TEXT NOT NULL,
  error_count INTEGER NOT NULL DEFAULT 0,
  failures    INTEGER NOT NULL DEFAULT 0,
  last_error  TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (tenant, schedule, slot)
) WITHOUT ROWID;

CREATE INDEX cursor_next ON cursor (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX cursor_owes ON cursor (tenant, schedule, slot) WHERE owes;

-- What became of each occurrence. A stretch that was skipped for one reason is one row: from `scheduled_at` to `until`. Its
-- `occurrence` is the first instant and `/..`, so that one of them can still be fired by hand and get a row of its own.
-- The jobs of a sink, which another system runs, have no run.
CREATE TABLE ledger (
  pos          INTEGER PRIMARY KEY,
  tenant       TEXT NOT NULL,
  schedule     TEXT NOT NULL,
  slot         TEXT NOT NULL,
  occurrence   TEXT NOT NULL,
  outcome      TEXT NOT NULL CHECK (outcome IN ('fired', 'skipped', 'failed', 'buffered')),
  reason       TEXT NOT NULL DEFAULT '',
  scheduled_at INTEGER NOT NULL,
  until        INTEGER,
  times        INTEGER NOT NULL DEFAULT 1,
  at           INTEGER NOT NULL,
  run          INTEGER,
  is_catchup   INTEGER NOT NULL DEFAULT 0,
  detail       TEXT,
  reply        BLOB,
  payload      BLOB,
  CHECK ((outcome = 'fired') = (run IS NOT NULL) OR slot = 'sink'),
  UNIQUE (tenant, schedule, slot, occurrence)
);

CREATE INDEX ledger_listed ON ledger (tenant, schedule);
CREATE INDEX ledger_unfired ON ledger (tenant, schedule) WHERE outcome <> 'fired';
CREATE INDEX ledger_buffered ON ledger (tenant, schedule, slot) WHERE outcome = 'buffered';
CREATE INDEX ledger_old ON ledger (at) WHERE run IS NULL;
CREATE INDEX ledger_run ON ledger (run) WHERE run IS NOT NULL;

-- The open runs of a schedule are counted along this index, never in memory: a crash leaks no slot. With `finished_at`, which
-- is always null in it, no row has to be read.
ALTER TABLE run ADD COLUMN schedule TEXT;
ALTER TABLE run ADD COLUMN slot TEXT;
ALTER TABLE run ADD COLUMN is_catchup INTEGER;

CREATE INDEX run_schedule ON run (tenant, schedule, slot, is_catchup, finished_at)
  WHERE schedule IS NOT NULL AND finished_at IS NULL;
