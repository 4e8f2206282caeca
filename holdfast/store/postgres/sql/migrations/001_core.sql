-- The tables of a database on PostgreSQL. The names are those of SQLite's; times are milliseconds since 1970.

CREATE TABLE meta (
  key   text COLLATE "C" PRIMARY KEY,
  value bytea NOT NULL
);

-- One row per incarnation of a node. no: its part of the numbers of runs. committed: how many commits it has made, which tells
-- it after a broken connection whether the last one landed. lane: the attempt under crash isolation.
CREATE TABLE node (
  epoch       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name        text COLLATE "C" NOT NULL,
  no          bigint NOT NULL,
  committed   bigint NOT NULL DEFAULT 0,
  lease_until timestamptz NOT NULL,
  over        boolean NOT NULL DEFAULT false,
  began_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  lane        text COLLATE "C"
) WITH (fillfactor = 20);

CREATE TABLE version (
  tenant     text COLLATE "C" NOT NULL,
  hash       text COLLATE "C" NOT NULL,
  name       text COLLATE "C" NOT NULL,
  definition text COLLATE "C" NOT NULL,
  created_at bigint NOT NULL, uses text COLLATE "C", source text COLLATE "C",
  PRIMARY KEY (tenant, hash)
);

CREATE TABLE run (
  no          bigint PRIMARY KEY,
  tenant      text COLLATE "C" NOT NULL,
  id          text COLLATE "C" NOT NULL,
  version     text COLLATE "C" NOT NULL,
  status      text COLLATE "C" NOT NULL,
  owner       text COLLATE "C",
  owner_epoch bigint,
  epoch       bigint NOT NULL DEFAULT 0,
  wake_at     bigint,
  needs       text COLLATE "C",
  on_restart  text COLLATE "C",
  labels      text COLLATE "C",
  created_at  bigint NOT NULL,
  finished_at bigint,
  claimant    bigint,                    -- epoch of the node that has claimed it and not written to it yet
  mail        bigint NOT NULL DEFAULT 0, -- letters that its owner has not read
  parent_job_id text COLLATE "C", rerun_of text COLLATE "C", series bigint, schedule text COLLATE "C", slot text COLLATE "C", is_catchup boolean,
  UNIQUE (tenant, id)
);

-- (xid, pos) is the order of commits: a number alone is given out before its transaction commits.
CREATE TABLE journal (
  pos   bigint GENERATED ALWAYS AS IDENTITY (CACHE 1),
  xid   xid8 NOT NULL DEFAULT pg_current_xact_id(),
  run   bigint NOT NULL,
  seq   bigint NOT NULL,
  epoch bigint NOT NULL,
  at    bigint NOT NULL,
  kind  text COLLATE "C" NOT NULL,
  body  text COLLATE "C" NOT NULL,
  PRIMARY KEY (xid, pos),
  UNIQUE (run, seq)
);

CREATE TABLE snapshot (
  run  bigint NOT NULL,
  part bigint NOT NULL,
  seq  bigint NOT NULL,
  body bytea NOT NULL,
  PRIMARY KEY (run, part)
);

CREATE TABLE blob (
  run    bigint NOT NULL,
  sha256 text COLLATE "C" NOT NULL,
  body   bytea NOT NULL,
  PRIMARY KEY (run, sha256)
);

CREATE TABLE request (
  tenant     text COLLATE "C" NOT NULL,
  id         text COLLATE "C" NOT NULL,
  digest     text COLLATE "C" NOT NULL,
  run        bigint NOT NULL,
  created_at bigint NOT NULL,
  PRIMARY KEY (tenant, id)
);

CREATE TABLE key (
  tenant     text COLLATE "C" NOT NULL,
  scope      text COLLATE "C" NOT NULL,
  key        text COLLATE "C" NOT NULL,
  run        bigint NOT NULL,
  path       text COLLATE "C" NOT NULL,
  output     bytea,
  created_at bigint NOT NULL,
  expires_at bigint,
  PRIMARY KEY (tenant, scope, key)
);

CREATE TABLE artefact (
  run        bigint NOT NULL,
  sha256     text COLLATE "C" NOT NULL,
  size       bigint NOT NULL,
  created_at bigint NOT NULL,
  PRIMARY KEY (run, sha256)
);

CREATE TABLE workflow (
  tenant       text COLLATE "C" NOT NULL,
  name         text COLLATE "C" NOT NULL,
  id           text COLLATE "C" NOT NULL,
  description  text COLLATE "C" NOT NULL DEFAULT '',
  created_at   bigint NOT NULL,
  number       bigint,
  version      text COLLATE "C",
  published_at bigint,
  PRIMARY KEY (tenant, name)
);

CREATE TABLE release (
  tenant     text COLLATE "C" NOT NULL,
  workflow   text COLLATE "C" NOT NULL,
  number     bigint NOT NULL,
  id         text COLLATE "C" NOT NULL,
  version    text COLLATE "C" NOT NULL,
  status     text COLLATE "C" NOT NULL CHECK (status IN ('draft', 'published')),
  created_at bigint NOT NULL,
  PRIMARY KEY (tenant, workflow, number)
);

CREATE TABLE series (
  no       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant   text COLLATE "C" NOT NULL,
  workflow text COLLATE "C" NOT NULL,
  number   bigint NOT NULL,
  UNIQUE (tenant, workflow, number)
);

CREATE TABLE tally (
  series bigint NOT NULL,
  status text COLLATE "C" NOT NULL,
  node   text COLLATE "C" NOT NULL, -- a row for each, so that nodes do not wait for each other; summed when it is read
  runs   bigint NOT NULL,
  PRIMARY KEY (series, status, node)
);

CREATE TABLE label (
  tenant text COLLATE "C" NOT NULL,
  name   text COLLATE "C" NOT NULL,
  value  text COLLATE "C" NOT NULL,
  run    bigint NOT NULL,
  PRIMARY KEY (tenant, name, value, run)
);

CREATE TABLE worker (
  tenant        text COLLATE "C" NOT NULL,
  id            text COLLATE "C" NOT NULL,
  kind          text COLLATE "C" NOT NULL CHECK (kind IN ('http', 'pull')),
  url           text COLLATE "C" NOT NULL,
  services      text COLLATE "C" NOT NULL,
  status        text COLLATE "C" NOT NULL CHECK (status IN ('online', 'offline')),
  place         bigint NOT NULL,
  key_id        text COLLATE "C" NOT NULL,
  heard_at      bigint NOT NULL,
  PRIMARY KEY (tenant, id)
);

CREATE TABLE assignment (
  run        bigint NOT NULL,
  path       text COLLATE "C" NOT NULL,
  attempt    bigint NOT NULL,
  service    text COLLATE "C" NOT NULL,
  worker     text COLLATE "C" NOT NULL,
  token      text COLLATE "C" NOT NULL,
  offers     bigint NOT NULL,
  claimed_at bigint NOT NULL,
  PRIMARY KEY (run, path, attempt)
);

CREATE TABLE api_key (
  tenant       text COLLATE "C" NOT NULL,
  id           text COLLATE "C" NOT NULL,
  name         text COLLATE "C" NOT NULL,
  hash         text COLLATE "C" NOT NULL UNIQUE,
  scopes       text COLLATE "C" NOT NULL,  -- words with a space between them
  services     text COLLATE "C" NOT NULL,  -- the same; '' is every service
  created_at   bigint NOT NULL,
  expires_at   bigint,
  last_used_at bigint,
  revoked_at   bigint, tools text COLLATE "C", workflows text COLLATE "C", skips_gate bigint NOT NULL DEFAULT 1,
  PRIMARY KEY (tenant, id)
);

CREATE TABLE reply (
  tenant     text COLLATE "C" NOT NULL,
  route      text COLLATE "C" NOT NULL,
  key        text COLLATE "C" NOT NULL,
  digest     text COLLATE "C" NOT NULL,  -- of the address and the body
  status     bigint NOT NULL,
  body       bytea NOT NULL,
  created_at bigint NOT NULL,
  PRIMARY KEY (tenant, route, key)
);

CREATE TABLE trace (
  run    bigint PRIMARY KEY,
  parent text COLLATE "C" NOT NULL
);

CREATE TABLE wait (
  pos         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant      text COLLATE "C" NOT NULL,
  kind        text COLLATE "C" NOT NULL CHECK (kind IN ('key', 'callback', 'signal', 'approval', 'condition')),
  scope       text COLLATE "C" NOT NULL DEFAULT '',
  name        text COLLATE "C" NOT NULL,
  run         bigint NOT NULL,
  path        text COLLATE "C" NOT NULL,
  attempt     bigint NOT NULL DEFAULT 0,
  since       bigint NOT NULL,
  expires_at  bigint,
  detail      text COLLATE "C",
  resolved_at bigint,
  outcome     text COLLATE "C",
  UNIQUE (run, path, attempt, kind)
);

CREATE TABLE outbox (
  pos        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant     text COLLATE "C" NOT NULL,
  id         text COLLATE "C" NOT NULL,
  run        bigint NOT NULL,
  n          bigint NOT NULL,
  url        text COLLATE "C" NOT NULL,
  origin     text COLLATE "C" NOT NULL,
  secret_env text COLLATE "C",
  created_at bigint NOT NULL,
  tries      bigint NOT NULL DEFAULT 0,
  due_at     bigint NOT NULL,
  done_at    bigint,
  outcome    text COLLATE "C" CHECK (outcome IN ('delivered', 'dead', 'discarded')),
  last_error text COLLATE "C" NOT NULL DEFAULT '',
  claimant   bigint,  -- epoch of the node that delivers it
  CHECK ((done_at IS NULL) = (outcome IS NULL)),
  UNIQUE (run, n),
  UNIQUE (tenant, id)
);

CREATE TABLE early_result (
  tenant     text COLLATE "C" NOT NULL,
  task_id    text COLLATE "C" NOT NULL,
  meant      text COLLATE "C" NOT NULL,  -- the id of the run that it is for; '' where its sender did not say
  body       text COLLATE "C" NOT NULL,
  expires_at bigint NOT NULL,
  PRIMARY KEY (tenant, task_id, meant)
);

CREATE TABLE schedule (
  tenant     text COLLATE "C" NOT NULL,
  id         text COLLATE "C" NOT NULL,
  kind       text COLLATE "C" NOT NULL,
  origin     text COLLATE "C" NOT NULL CHECK (origin IN ('file', 'api', 'plugin', 'code')),
  source     text COLLATE "C" NOT NULL DEFAULT '',
  priority   bigint NOT NULL DEFAULT 1000,
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  body       text COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant, id)
);

CREATE TABLE cursor (
  tenant      text COLLATE "C" NOT NULL,
  schedule    text COLLATE "C" NOT NULL,
  slot        text COLLATE "C" NOT NULL,
  revision    bigint NOT NULL,
  next_at     bigint,
  owes        boolean NOT NULL DEFAULT false,
  body        text COLLATE "C" NOT NULL,
  error_count bigint NOT NULL DEFAULT 0,
  failures    bigint NOT NULL DEFAULT 0,
  last_error  text COLLATE "C" NOT NULL DEFAULT '',
  PRIMARY KEY (tenant, schedule, slot)
);

CREATE TABLE ledger (
  pos          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant       text COLLATE "C" NOT NULL,
  schedule     text COLLATE "C" NOT NULL,
  slot         text COLLATE "C" NOT NULL,
  occurrence   text COLLATE "C" NOT NULL,
  outcome      text COLLATE "C" NOT NULL CHECK (outcome IN ('fired', 'skipped', 'failed', 'buffered')),
  reason       text COLLATE "C" NOT NULL DEFAULT '',
  scheduled_at bigint NOT NULL,
  until        bigint,
  times        bigint NOT NULL DEFAULT 1,
  at           bigint NOT NULL,
  run          bigint,
  is_catchup   boolean NOT NULL DEFAULT false,
  detail       text COLLATE "C",
  reply        bytea,
  payload      bytea,
  CHECK ((outcome = 'fired') = (run IS NOT NULL) OR slot = 'sink'),
  UNIQUE (tenant, schedule, slot, occurrence)
);

CREATE TABLE log (
  run     bigint NOT NULL,
  n       bigint NOT NULL,
  path    text COLLATE "C" NOT NULL,
  attempt bigint NOT NULL,
  at      bigint NOT NULL,
  level   text COLLATE "C" NOT NULL,
  text    text COLLATE "C" NOT NULL,
  PRIMARY KEY (run, n)
);

CREATE TABLE mail (
  pos   bigint GENERATED ALWAYS AS IDENTITY,
  run   bigint NOT NULL,
  dedup text COLLATE "C" NOT NULL,
  at    bigint NOT NULL,
  body  text COLLATE "C" NOT NULL,
  UNIQUE (run, dedup)
);

CREATE INDEX run_owned ON run (owner_epoch, no)
  WHERE owner IS NOT NULL AND finished_at IS NULL;

CREATE INDEX run_due ON run (wake_at)
  WHERE owner IS NULL AND wake_at IS NOT NULL AND finished_at IS NULL;

CREATE INDEX run_needs ON run (no)
  WHERE needs IS NOT NULL AND finished_at IS NULL;

CREATE INDEX run_interruptible ON run (no)
  WHERE on_restart IS NOT NULL AND finished_at IS NULL;

CREATE INDEX request_run ON request (run);

CREATE INDEX key_run ON key (run);

CREATE INDEX key_expires ON key (expires_at) WHERE expires_at IS NOT NULL;

CREATE INDEX run_finished ON run (finished_at) WHERE finished_at IS NOT NULL;

CREATE INDEX artefact_sha256 ON artefact (sha256);

CREATE UNIQUE INDEX workflow_id ON workflow (tenant, id);

CREATE UNIQUE INDEX release_id ON release (tenant, id);

CREATE INDEX run_listed ON run (series, status, no);

CREATE INDEX label_name ON label (tenant, name, run);

CREATE INDEX label_run ON label (run);

CREATE INDEX reply_by_age ON reply (created_at);

CREATE INDEX run_resting ON run (no)
  WHERE owner IS NULL AND wake_at IS NULL AND finished_at IS NULL;

CREATE INDEX wait_name ON wait (tenant, kind, scope, name, pos);

CREATE INDEX wait_open ON wait (tenant, kind, pos) WHERE resolved_at IS NULL;

CREATE INDEX outbox_due ON outbox (due_at, pos) WHERE done_at IS NULL;

CREATE INDEX outbox_dead ON outbox (tenant, pos) WHERE outcome = 'dead';

CREATE INDEX early_result_expires ON early_result (expires_at);

CREATE INDEX schedule_kind ON schedule (kind, tenant, id);

CREATE INDEX cursor_next ON cursor (next_at) WHERE next_at IS NOT NULL;

CREATE INDEX cursor_owes ON cursor (tenant, schedule, slot) WHERE owes;

CREATE INDEX ledger_listed ON ledger (tenant, schedule, pos);

CREATE INDEX ledger_unfired ON ledger (tenant, schedule, pos) WHERE outcome <> 'fired';

CREATE INDEX ledger_buffered ON ledger (tenant, schedule, slot) WHERE outcome = 'buffered';

CREATE INDEX ledger_old ON ledger (at) WHERE run IS NULL;

CREATE INDEX ledger_run ON ledger (run) WHERE run IS NOT NULL;

CREATE INDEX run_schedule ON run (tenant, schedule, slot, is_catchup, finished_at)
  WHERE schedule IS NOT NULL AND finished_at IS NULL;

CREATE INDEX wait_due ON wait (tenant, kind, coalesce(expires_at, 9000000000000000), pos) WHERE resolved_at IS NULL;
