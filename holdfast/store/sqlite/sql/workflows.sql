-- name: add_workflow
INSERT INTO workflow (tenant, name, id, description, created_at) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: describe_workflow
UPDATE workflow SET description = ?3 WHERE tenant = ?1 AND name = ?2;

-- name: add_release
-- Known already: then a draft may become published, and nothing else changes. Another content breaks the rule of the
-- column, and the commit with it.
INSERT INTO release (tenant, workflow, number, id, version, status, created_at)
  VALUES (:tenant, :name, :number, :id, :version, :status, :at)
  ON CONFLICT (tenant, workflow, number) DO UPDATE
  SET status = iif(status = 'draft', excluded.status, status), version = iif(version = excluded.version, version, NULL);

-- name: make_current
UPDATE workflow SET number = :number, version = :version, published_at = :at WHERE tenant = :tenant AND name = :name;

-- name: published
SELECT w.version, v.definition, w.number FROM workflow w JOIN version v ON v.tenant = w.tenant AND v.hash = w.version
 WHERE w.tenant = ? AND w.name = ?;

-- name: workflow_names
SELECT name FROM workflow WHERE tenant = ? ORDER BY name LIMIT ?;

-- name: workflows
SELECT id, name, description, created_at, number, version, published_at FROM workflow
 WHERE tenant = ? AND name > ? ORDER BY name LIMIT ?;

-- name: workflow
SELECT id, name, description, created_at, number, version, published_at FROM workflow WHERE tenant = ? AND name = ?;

-- name: workflow_by_id
SELECT id, name, description, created_at, number, version, published_at FROM workflow WHERE tenant = ? AND id = ?;

-- name: releases
-- The newest first.
SELECT r.id, w.id, r.workflow, r.number, r.version, r.status, r.created_at
  FROM workflow w JOIN release r ON r.tenant = w.tenant AND r.workflow = w.name
 WHERE w.tenant = ? AND w.name = ? AND r.number < ? ORDER BY r.number DESC LIMIT ?;

-- name: release
SELECT r.id, w.id, r.workflow, r.number, r.version, r.status, r.created_at
  FROM workflow w JOIN release r ON r.tenant = w.tenant AND r.workflow = w.name
 WHERE w.tenant = ? AND w.name = ? AND r.number = ?;

-- name: release_by_id
SELECT r.id, w.id, r.workflow, r.number, r.version, r.status, r.created_at
  FROM release r JOIN workflow w ON w.tenant = r.tenant AND w.name = r.workflow
 WHERE r.tenant = ? AND r.id = ?;

-- name: newest_published
SELECT r.id, w.id, r.workflow, r.number, r.version, r.status, r.created_at
  FROM workflow w JOIN release r ON r.tenant = w.tenant AND r.workflow = w.name
 WHERE w.tenant = ? AND w.name = ? AND r.status = 'published' ORDER BY r.number DESC LIMIT 1;

-- name: every_definition
SELECT name, hash, definition, uses FROM version;
