-- What several nodes share. change_count: how often each kind of thing was changed that nodes keep in memory. A node that sees
-- another count than before reads the things again.

CREATE TABLE change_count (
  what text COLLATE "C" PRIMARY KEY,
  n    bigint NOT NULL
);
