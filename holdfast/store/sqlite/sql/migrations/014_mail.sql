-- Events for runs that another node drives. One process has a SQLite file, so there are none; the table is that of every store.
CREATE TABLE mail (
  pos   INTEGER PRIMARY KEY,
  run   INTEGER NOT NULL,
  dedup TEXT NOT NULL,
  at    INTEGER NOT NULL,
  body  TEXT NOT NULL,
  UNIQUE (run, dedup)
);
