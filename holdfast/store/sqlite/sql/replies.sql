-- name: put_reply
INSERT OR REPLACE INTO reply (tenant, route, key, digest, status, body, created_at) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: forget_replies
-- A few at a time, with each that is added: they never pile up, and no commit is long.
DELETE FROM reply
 WHERE (tenant, route, key) IN
       (SELECT tenant, route, key FROM reply WHERE created_at < ? ORDER BY created_at LIMIT 100);

-- name: reply
SELECT tenant, route, key, digest, status, body, created_at FROM reply WHERE tenant = ? AND route = ? AND key = ?;
