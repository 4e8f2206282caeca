-- name: schema_version
SELECT value FROM meta WHERE key = 'schema';

-- name: set_schema_version
INSERT OR REPLACE INTO meta (key, value) VALUES ('schema', ?);

-- name: read_epoch
-- Asked inside every transaction: another number means that another process has taken the file.
SELECT value FROM meta WHERE key = 'epoch';

-- name: raise_epoch
UPDATE meta SET value = value + 1 WHERE key = 'epoch' RETURNING value;

-- name: make_server_key
INSERT OR IGNORE INTO meta (key, value) VALUES ('server_key', ?);

-- name: read_server_key
SELECT value FROM meta WHERE key = 'server_key';

-- name: renew_server_key
UPDATE meta SET value = ? WHERE key = 'server_key';

-- name: read_place
-- The inode of the file that this database was last opened in: a copy has another.
SELECT value FROM meta WHERE key = 'place';

-- name: set_place
INSERT OR REPLACE INTO meta (key, value) VALUES ('place', ?);

-- name: forget_place
DELETE FROM meta WHERE key IN ('place', 'place_name');

-- name: read_place_name
-- The path that this database was last opened by: its log is beside that one.
SELECT value FROM meta WHERE key = 'place_name';

-- name: set_place_name
INSERT OR REPLACE INTO meta (key, value) VALUES ('place_name', ?);

-- name: read_move
-- Where the contents were moved to, as store/promotion.py writes it.
SELECT value FROM meta WHERE key = 'move';

-- name: set_move
INSERT OR REPLACE INTO meta (key, value) VALUES ('move', ?);

-- name: forget_move
DELETE FROM meta WHERE key = 'move';

-- name: read_lane
SELECT lane FROM node WHERE name = ?;

-- name: join_node
INSERT INTO node (name, epoch) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET epoch = ?2, lane = NULL;

-- name: set_lane
UPDATE node SET lane = ? WHERE name = ?;

-- name: read_deaths
SELECT value FROM meta WHERE key = 'deaths';

-- name: set_deaths
INSERT OR REPLACE INTO meta (key, value) VALUES ('deaths', ?);

-- name: probe
-- Bytes that mean nothing and are new each time: SQLite does not write a page that stays as it is.
INSERT OR REPLACE INTO meta (key, value) VALUES ('probe', randomblob(?));

-- name: parts_of_schema
SELECT type, name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%';

-- name: unusable_meta
WITH wanted (key, kind) AS (VALUES ('schema', 'integer'), ('epoch', 'integer'), ('server_key', 'blob'))
SELECT wanted.key FROM wanted LEFT JOIN meta ON meta.key = wanted.key WHERE typeof(meta.value) <> wanted.kind;
