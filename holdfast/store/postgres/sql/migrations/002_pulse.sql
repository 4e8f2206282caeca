-- How many runs started and ended, by series, minute and beat (store/beats.py), with a row for each node.
CREATE TABLE pulse (
  series bigint NOT NULL,
  minute bigint NOT NULL,
  beat   bigint NOT NULL,
  node   text COLLATE "C" NOT NULL,
  runs   bigint NOT NULL,
  PRIMARY KEY (series, minute, beat, node)
);

-- The beat of an end, as store/beats.py has it: a status, and a range of durations.
CREATE FUNCTION end_beat(status text, took bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE status WHEN 'completed' THEN 1 WHEN 'failed' THEN 257 WHEN 'cancelled' THEN 513 ELSE 769 END
         + CASE WHEN t < 16 THEN t ELSE 8 * (power - 2) + (t >> (power - 3) & 7) END
    FROM (SELECT t, 34 - position('1' IN t::bit(34)::text) AS power FROM (SELECT least(greatest(took, 0), 8589934591) AS t) a) b
$$;

INSERT INTO pulse (series, minute, beat, node, runs)
SELECT series, minute, beat, '', count(*)
  FROM (SELECT series, created_at / 60000 AS minute, 0::bigint AS beat FROM run WHERE series IS NOT NULL
         UNION ALL
        SELECT series, finished_at / 60000, end_beat(status, finished_at - created_at) FROM run
         WHERE finished_at IS NOT NULL AND series IS NOT NULL) beats
 GROUP BY 1, 2, 3;
