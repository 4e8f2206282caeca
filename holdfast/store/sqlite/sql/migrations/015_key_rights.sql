-- What the definitions of a key's holder may use, as JSON arrays of patterns (NULL: everything), and whether they need an approval
-- before destructive tools. Keys of earlier releases needed none, and stay as they were.
ALTER TABLE api_key ADD COLUMN tools TEXT;
ALTER TABLE api_key ADD COLUMN workflows TEXT;
ALTER TABLE api_key ADD COLUMN skips_gate INTEGER NOT NULL DEFAULT 1;
