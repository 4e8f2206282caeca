-- How many runs started and ended, by series, minute and beat (store/beats.py): 0 is a start, other beats are a status and a range
-- of durations. Upkeep adds the minutes of older hours up, so that a picture of months reads few rows.
CREATE TABLE pulse (
  series INTEGER NOT NULL,
  minute INTEGER NOT NULL,
  beat   INTEGER NOT NULL,
  runs   INTEGER NOT NULL,
  PRIMARY KEY (series, minute, beat)
) WITHOUT ROWID;

-- The runs that are there: those of the last two days by minute, older ones by hour.
INSERT INTO pulse (series, minute, beat, runs)
SELECT series, minute - CASE WHEN minute < (SELECT max(created_at) FROM run) / 60000 - 2880 THEN minute % 60 ELSE 0 END, beat, count(*)
  FROM (SELECT series, created_at / 60000 AS minute, 0 AS beat FROM run WHERE series IS NOT NULL
         UNION ALL
        SELECT series, finished_at / 60000,
               CASE status WHEN 'completed' THEN 1 WHEN 'failed' THEN 257 WHEN 'cancelled' THEN 513 ELSE 769 END
               + CASE WHEN took < 16 THEN took ELSE 8 * (power - 2) + (took >> (power - 3) & 7) END
          FROM (SELECT series, finished_at, status, took, CAST(floor(log2(max(took, 1))) AS INTEGER) AS power
                  FROM (SELECT series, finished_at, status, min(max(finished_at - created_at, 0), 8589934591) AS took
                          FROM run WHERE finished_at IS NOT NULL AND series IS NOT NULL)))
 GROUP BY 1, 2, 3;
