-- What whoever watches over the engine asks for.

-- The trace that a start belongs to, as its caller said; few runs have one.
CREATE TABLE trace (
  run    INTEGER PRIMARY KEY,
  parent TEXT NOT NULL
);

-- Runs that nobody drives and no time wakes: each must wait for something that has a name.
CREATE INDEX run_resting ON run (no)
  WHERE owner IS NULL AND wake_at IS NULL AND finished_at IS NULL;
