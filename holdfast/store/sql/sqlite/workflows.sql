-- name: publish
INSERT INTO workflow (tenant, name, version, published_at) VALUES (?, ?, ?, ?)
  ON CONFLICT (tenant, name) DO UPDATE SET version = excluded.version, published_at = excluded.published_at
    WHERE version <> excluded.version;

-- name: published
SELECT w.version, v.definition FROM workflow w JOIN version v ON v.tenant = w.tenant AND v.hash = w.version
 WHERE w.tenant = ? AND w.name = ?;

-- name: workflow_names
SELECT name FROM workflow WHERE tenant = ? ORDER BY name LIMIT ?;
