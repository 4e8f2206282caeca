-- Log lines of attempts, and the traceback of each attempt that raised. Few steps have any; `n` counts the lines of a run.

CREATE TABLE log (
  run     INTEGER NOT NULL,
  n       INTEGER NOT NULL,
  path    TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  at      INTEGER NOT NULL,
  level   TEXT NOT NULL,
  text    TEXT NOT NULL,
  PRIMARY KEY (run, n)
) WITHOUT ROWID;
