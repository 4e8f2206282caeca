// What the server sends under /api/v1, as far as the page reads it. tests/http/test_page_types.py compares it with /openapi.json.
export type Status =
  "pending" | "running" | "waiting" | "cancelling" | "completed" | "failed" | "cancelled" | "interrupted";
export type StepState = "ready" | "running" | "retrying" | "waiting" | "completed" | "failed" | "cancelled";
export type Scope = "read" | "run" | "approve" | "resume" | "worker" | "admin";
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type Schema = { [key: string]: unknown };

export type Page<T> = { items: T[]; cursor: string | null };
export type Err = { kind: string; message: string; path: string; attempt: number; cause?: Err | null };
export type Head = { text: string; bytes: number | null };
export type Link = { url: string; by: string };
export type Wait = {
  path: string;
  kind: string;
  until: string | null;
  since: string | null;
  name: string;
  detail: Record<string, unknown>;
  links: Link[];
};
export type Trigger = {
  schedule_id: string;
  kind: string;
  occurrence: string;
  scheduled_at: string;
  is_catchup: boolean;
  shifted_from: string;
};
export type Progress = { completed_steps: number; total_steps: number };

export type Me = {
  mode: "local" | "guarded";
  tenant: string;
  key_id: string | null;
  key_name: string;
  scopes: Scope[];
  is_operator: boolean;
  release: string;
  time: string;
  public_url: string | null;
};

export type Run = {
  run_id: string;
  workflow: string;
  version: string;
  number: number | null;
  status: Status;
  inputs: Json;
  output: Json;
  error: Err | null;
  waits: Wait[];
  progress: Progress;
  labels: Record<string, string>;
  created_at: string;
  started_at: string | null;
  finished_at: string | null;
  rerun_of: string | null;
  parent_job_id: string | null;
  set_aside: { reason: string; retry: string } | null;
  trigger: Trigger | null;
  seq?: number;
  heads?: { inputs?: Head; output?: Head };
};
export type RunLine = {
  run_id: string;
  workflow: string;
  version: string;
  number?: number | null;
  status: Status;
  labels: Record<string, string>;
  created_at: string;
  started_at?: string | null;
  finished_at: string | null;
  rerun_of: string | null;
  rerun_as?: string | null;
  parent_job_id: string | null;
  reason?: string | null;
  error?: { kind: string; message: string; path: string } | null;
  wait?: {
    path: string;
    kind: string;
    until: string | null;
    since: string | null;
    prompt: string;
    name?: string;
  } | null;
};
export type Reason = {
  path: string;
  reason: string;
  since: string;
  until: string | null;
  unblocks: string;
  links: Link[];
};
export type Explanation = {
  run_id: string;
  status: Status;
  driven_by: number | null;
  reasons: Reason[];
  more: number;
};

export type Step = {
  path: string;
  status: StepState;
  attempts: number;
  output: Json;
  error: Err | null;
  started_at: string;
  finished_at: string | null;
  due_at: string | null;
  reason: string;
  is_scope: boolean;
  children: number;
  done: number;
  failed: number;
  worker: string[];
  task_id: string;
  waits_since: string | null;
  job_id: string | null;
  kind?: string;
  heads?: { output?: Head };
};
export type StepPage = { items: Step[]; names: string[]; cursor: string | null; seq?: number };
export type Try = {
  n: number;
  from: string;
  to: string | null;
  outcome: string;
  error: Err | null;
  worker: string[];
  retry_at: string | null;
  job_id: string;
};
export type LogLine = { n: number; at: string; path: string; attempt: number; level: string; text: string };
export type StepDetail = Omit<Step, "heads"> & {
  seq: number;
  input: Json;
  heads: { input?: Head; output?: Head };
  tries: Try[];
  waits: { kind: string; from: string; to: string | null }[];
  artefacts: { sha256: string; size: number; name: string }[];
  logs: LogLine[];
  logs_more: boolean;
};
export type JournalLine = { seq: number; at: string; kind: string; body: Json; jobs: Record<string, string> };

export type Strip = {
  from: string;
  bucket_ms: number;
  started: number[];
  completed: number[];
  failed: number[];
  cancelled: number[];
  failed_items: number[];
};
export type TimelineRow = {
  path: string;
  kind: string;
  status: StepState;
  from: string;
  to: string | null;
  depth: number;
  spans: { kind: "try" | "wait" | "backoff"; n: number; from: string; to: string | null; outcome: string }[];
  children: number;
  done: number;
  failed: number;
  strip: Strip | null;
};
export type Timeline = {
  run_id: string;
  seq: number;
  status: Status;
  from: string;
  to: string;
  rows: TimelineRow[];
  more: number;
};

export type PlanNode = { name: string; kind: string; does: string; line: number; blocks: PlanBlock[] };
export type PlanBlock = { nodes: PlanNode[]; edges: { from: string; to: string; on: string }[]; of: string };
export type PlanTool = {
  name: string;
  kind: string;
  steps: string[];
  destructive: boolean | null;
  read_only: boolean | null;
  idempotent: boolean | null;
  is_known: boolean;
};
export type Plan = {
  workflow: string;
  version: string;
  plan_hash: string;
  block: PlanBlock;
  tools: PlanTool[];
  workflows: string[];
  destructive: boolean;
  approvals: string[];
};

export type Waiting = {
  run_id: string;
  workflow: string;
  number: number | null;
  path: string;
  kind: string;
  name: string;
  prompt: string;
  form: Schema | null;
  detail: Record<string, unknown>;
  since: string;
  until: string | null;
  answers: { need: number; have: number; by: string[] };
  may_answer: boolean;
  links: Link[];
};
export type WaitingPage = Page<Waiting> & { counts: Record<string, number>; counts_max: number };
export type Counts = {
  total: number;
  statuses: Record<Status, number>;
  items: { workflow: string; total: number; statuses: Record<Status, number> }[];
  cursor: string | null;
};
export type PulseBucket = {
  at: string;
  started: number;
  completed: number;
  failed: number;
  cancelled: number;
  interrupted: number;
  p50_ms: number | null;
  p95_ms: number | null;
};
export type Pulse = {
  from: string;
  to: string;
  bucket_ms: number;
  items: PulseBucket[];
  total: Omit<PulseBucket, "at">;
};

export type Problem = {
  code: string;
  message: string;
  pointer?: string;
  line?: number;
  column?: number;
  hint?: string;
};
export type Validation = {
  valid: boolean;
  problems: Problem[];
  notes: Problem[];
  patch: Json[];
  left: Problem[];
  repaired: Json;
  plan: Plan | null;
  inputs: Schema | null;
  inputs_schema: Schema;
};
export type WorkflowLine = {
  name: string;
  flow_id: string;
  description: string;
  number: number | null;
  version: string | null;
  created_at: string;
  published_at: string | null;
};
export type Release = {
  name: string;
  number: number;
  version: string;
  status: "draft" | "published";
  id: string;
  flow_id: string;
  created_at: string;
};
export type Workflow = Release & { definition: Json; source?: string; is_as_written?: boolean };
export type Diff = { name: string; from: number; to: number; text: string; pointers: string[] };
export type Stats = {
  workflow: string;
  number: number | null;
  runs: number;
  completed: number;
  failed: number;
  cancelled: number;
  interrupted: number;
  success: number | null;
  p50_ms: number | null;
  p95_ms: number | null;
  from: string | null;
  to: string | null;
  steps: {
    path: string;
    kind: string;
    runs: number;
    failed: number;
    retries: number;
    p50_ms: number | null;
    p95_ms: number | null;
  }[];
  steps_of: number;
};
export type Bulk = {
  preview: boolean;
  action: string;
  items: {
    run_id: string;
    status: string;
    new_run_id: string | null;
    error: string | null;
    message: string;
  }[];
  matched: number;
  cursor: string | null;
};

export type ScheduleLine = {
  id: string;
  workflow: string;
  kind: string;
  status: "active" | "paused" | "disabled" | "ended";
  origin: "file" | "api" | "plugin" | "code";
  source: string;
  words: string[];
  next_at: string | null;
  open_runs: number;
  failures: number;
  last_error: string;
};
export type Schedule = ScheduleLine & {
  timezone: string;
  paused_since: string | null;
  paused_because: string;
  total_run_count: number;
  error_count: number;
  created_at: string;
  updated_at: string;
  definition: Json;
  notes: Problem[];
};
export type NextFires = {
  timezone: string;
  words: string[];
  never_fires: boolean;
  items: { at: string; local: string; fires_at: string | null; note: string }[];
};
export type LedgerLine = {
  occurrence: string;
  outcome: "fired" | "skipped" | "failed" | "buffered";
  reason: string;
  message: string;
  scheduled_at: string;
  until: string | null;
  count: number;
  decided_at: string;
  fired_at: string | null;
  run_id: string | null;
  is_catchup: boolean;
  slot: string;
  warnings: string[];
};
export type Verdict = {
  outcome: string;
  reason: string;
  message: string;
  hint: string;
  occurrence: string;
  at: string | null;
  local: string;
  until: string | null;
  count: number;
  run_id: string | null;
  decided_at: string | null;
  slot: string;
  warnings: string[];
};
export type WhyReport = { schedule: string; status: string; items: Verdict[] };
export type Backfill = { preview: boolean; count: number; settled: number; items: string[] };

export type Worker = {
  id: string;
  url: string;
  services: string[];
  load: number;
  last_heartbeat: string;
  status: "online" | "offline";
  type: "http" | "pull";
  supports_async_callback: string[];
};
export type ServiceLine = {
  name: string;
  workers: number;
  waiting: number;
  oldest_waiting_at: string | null;
  no_worker_since: string | null;
  start_one: string | null;
};
export type Node = {
  name: string;
  epoch: number;
  pid: number;
  address: string | null;
  release: string;
  runs: number;
  is_leaving: boolean;
  version: string;
  since: string;
  state: "ready" | "leaving";
};
export type Letter = {
  id: string;
  run_id: string;
  url: string;
  secret_env: string | null;
  status: "waiting" | "delivered" | "dead" | "discarded";
  tries: number;
  last_error: string;
  created_at: string;
  next_try_at: string | null;
  done_at: string | null;
};
export type KeyView = {
  id: string;
  name: string;
  tenant: string;
  scopes: Scope[];
  services: string[];
  created_at: string;
  expires_at: string | null;
  last_used_at: string | null;
  revoked_at: string | null;
};
export type Folder = {
  folder: string | null;
  problem: string;
  items: { file: string; name: string | null; status: "published" | "broken"; problems: Problem[] }[];
};
export type RunEvent = {
  run_id?: string;
  workflow_id: string;
  workflow?: string;
  at?: string;
  seq?: number | null;
  path?: string | null;
  current_step_id: string | null;
  state?: Status;
  status: string;
  detail: { kind: string; [key: string]: unknown };
};
