-- Open waits by the time that is left, for lists of what people can answer. Those without a limit come last.
CREATE INDEX wait_due ON wait (tenant, kind, coalesce(expires_at, 9000000000000000), pos) WHERE resolved_at IS NULL;
