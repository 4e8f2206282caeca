-- What `holdfast nodes` shows of a node, and work that one node does for all (duty).

ALTER TABLE node
  ADD release        text COLLATE "C" NOT NULL DEFAULT '',
  ADD address        text COLLATE "C" NOT NULL DEFAULT '',
  ADD pid            bigint NOT NULL DEFAULT 0,
  ADD clock_ahead_ms bigint NOT NULL DEFAULT 0;

CREATE TABLE duty (
  what  text COLLATE "C" PRIMARY KEY,
  epoch bigint NOT NULL,
  until timestamptz NOT NULL
);
