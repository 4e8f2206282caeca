-- By which run another one was rerun: a failure that was rerun needs nobody any more.
CREATE INDEX run_rerun ON run (rerun_of) WHERE rerun_of IS NOT NULL;
