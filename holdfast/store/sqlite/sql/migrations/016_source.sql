-- The text of a definition as its author wrote it, with comments; null if it was given as data.
ALTER TABLE version ADD COLUMN source TEXT;
