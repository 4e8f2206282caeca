-- name: put_log
-- A run keeps ?7 lines; the last of them is ?8, which says so.
INSERT INTO log (run, n, path, attempt, at, level, text)
SELECT ?1, coalesce(max(n), 0) + 1, ?2, ?3, ?4, ?5, CASE WHEN max(n) = ?7 - 1 THEN ?8 ELSE ?6 END
  FROM log WHERE run = ?1 HAVING coalesce(max(n), 0) < ?7;

-- name: log_lines
-- Of a step: its own lines and those of the steps inside it.
SELECT n, path, attempt, at, level, text FROM log
 WHERE run = ?1 AND n > ?2
   AND (?3 IS NULL OR path = ?3 OR substr(path, 1, length(?3) + 1) IN (?3 || '.', ?3 || '[', ?3 || '~'))
   AND (?4 IS NULL OR attempt = ?4)
   AND (?5 IS NULL OR level = ?5)
 ORDER BY n LIMIT ?6;

-- name: log_tail
-- The newest lines of one step.
SELECT n, path, attempt, at, level, text FROM log WHERE run = ? AND path = ? ORDER BY n DESC LIMIT ?;

-- name: forget_run_log
DELETE FROM log WHERE run = ?;
