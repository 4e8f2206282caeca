-- Keys of callers. The key itself is shown once and never stored: what is kept is its SHA-256, which is enough to know it
-- again. One that was revoked stays as a row, so that a file which was once guarded never opens itself.

CREATE TABLE api_key (
  tenant       TEXT NOT NULL,
  id           TEXT NOT NULL,
  name         TEXT NOT NULL,
  hash         TEXT NOT NULL UNIQUE,
  scopes       TEXT NOT NULL,  -- words with a space between them
  services     TEXT NOT NULL,  -- the same; '' is every service
  created_at   INTEGER NOT NULL,
  expires_at   INTEGER,
  last_used_at INTEGER,
  revoked_at   INTEGER,
  PRIMARY KEY (tenant, id)
) WITHOUT ROWID;
