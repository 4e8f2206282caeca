-- An answer that came before its wait may be for one run alone: runs may use the same task id, and each has its own answer.

CREATE TABLE early_of_run (
  tenant     TEXT NOT NULL,
  task_id    TEXT NOT NULL,
  meant      TEXT NOT NULL,  -- the id of the run that it is for; '' where its sender did not say
  body       TEXT NOT NULL,
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (tenant, task_id, meant)
) WITHOUT ROWID;

INSERT INTO early_of_run (tenant, task_id, meant, body, expires_at)
  SELECT tenant, task_id, coalesce(body ->> '$[0]', ''), body -> '$[1]', expires_at FROM early_result;
DROP TABLE early_result;
ALTER TABLE early_of_run RENAME TO early_result;

CREATE INDEX early_result_expires ON early_result (expires_at);
