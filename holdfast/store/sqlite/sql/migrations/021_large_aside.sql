-- Columns after a large value are reached by reading all its pages: 25 MiB take 70 ms. So the small columns come before it. And in a
-- table WITHOUT ROWID the rows are the index: a search compares keys by reading whole rows, so a value of 25 MiB makes each
-- search that passes it take 20 ms, also one for another key: tables with large values keep an index of their keys alone.
CREATE TABLE early_result_new (
  tenant     TEXT NOT NULL,
  task_id    TEXT NOT NULL,
  meant      TEXT NOT NULL,  -- the id of the run that it is for; '' where its sender did not say
  expires_at INTEGER NOT NULL,
  body       TEXT NOT NULL,
  PRIMARY KEY (tenant, task_id, meant)
);
INSERT INTO early_result_new SELECT tenant, task_id, meant, expires_at, body FROM early_result;
DROP TABLE early_result;
ALTER TABLE early_result_new RENAME TO early_result;
CREATE INDEX early_result_expires ON early_result (expires_at);

CREATE TABLE key_new (
  tenant     TEXT NOT NULL,
  scope      TEXT NOT NULL,
  key        TEXT NOT NULL,
  run        INTEGER NOT NULL,
  path       TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER,
  output     BLOB,
  PRIMARY KEY (tenant, scope, key)
);
INSERT INTO key_new
SELECT tenant, scope, key, run, path, created_at, expires_at, output FROM key;
DROP TABLE key;
ALTER TABLE key_new RENAME TO key;
CREATE INDEX key_run ON key (run);
CREATE INDEX key_expires ON key (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE reply_new (
  tenant     TEXT NOT NULL,
  route      TEXT NOT NULL,
  key        TEXT NOT NULL,
  digest     TEXT NOT NULL,  -- of the address and the body
  status     INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  body       BLOB NOT NULL,
  PRIMARY KEY (tenant, route, key)
);
INSERT INTO reply_new SELECT tenant, route, key, digest, status, created_at, body FROM reply;
DROP TABLE reply;
ALTER TABLE reply_new RENAME TO reply;
CREATE INDEX reply_by_age ON reply (created_at);
