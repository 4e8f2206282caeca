-- name: put_api_key
-- Of a key that is there, only when it was used and when it was revoked may change; the latter never back.
INSERT INTO api_key (tenant, id, name, hash, scopes, services, created_at, expires_at, last_used_at, revoked_at, tools, workflows, skips_gate)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (tenant, id) DO UPDATE
   SET last_used_at = excluded.last_used_at, revoked_at = coalesce(revoked_at, excluded.revoked_at);

-- name: api_keys
SELECT tenant, id, name, hash, scopes, services, created_at, expires_at, last_used_at, revoked_at, tools, workflows, skips_gate
  FROM api_key ORDER BY tenant, created_at, id;
