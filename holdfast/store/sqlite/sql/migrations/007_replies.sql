-- What was answered to requests under a caller's own key, so that the same request again is answered and not done again.
-- Starts of runs do not need it: their key is written with the run (request).

CREATE TABLE reply (
  tenant     TEXT NOT NULL,
  route      TEXT NOT NULL,
  key        TEXT NOT NULL,
  digest     TEXT NOT NULL,  -- of the address and the body
  status     INTEGER NOT NULL,
  body       BLOB NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (tenant, route, key)
) WITHOUT ROWID;

CREATE INDEX reply_by_age ON reply (created_at);
