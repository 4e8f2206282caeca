-- The steps of a long run that has finished, as readers see them (views/stored_board.py), so that a look at it does not fold its
-- journal. Nothing else depends on these rows: they are made again from the journal.
CREATE TABLE board (
  run  INTEGER NOT NULL,
  part TEXT NOT NULL,
  body BLOB NOT NULL,
  PRIMARY KEY (run, part)
);
