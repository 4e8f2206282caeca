"""Every command: its name, help text, arguments, flags, and the function that implements it. Pure data: no command is imported."""

from __future__ import annotations

from typing import Final

from holdfast.cli.parser import Argument, Command, Flag

SHELLS: Final = ("bash", "zsh", "fish")
STATUSES: Final = (
    "pending", "running", "waiting", "cancelling", "completed", "failed", "cancelled", "interrupted",
)  # fmt: skip

SCOPES: Final = ("read", "run", "approve", "resume", "worker", "admin")

JSON: Final = Flag("--json", "Print only JSON on standard output.")
LOG: Final = Flag("--log", "Format of log lines: json or text.", "FORMAT", choices=("json", "text"))
HELP: Final = Flag("--help", "Show this help.", short="-h")
DB: Final = Flag("--db", "The database. Default: sqlite:///holdfast.db.", "sqlite:///FILE")
TOOLS: Final = Flag("--tools", "The tools: a module, or module:object. May be repeated.", "MODULE", many=True)
PLUGINS: Final = Flag(
    "--plugins",
    "The scheduled plugins: a module, module:object, or a file NAME.wasm. May be repeated.",
    "MODULE",
    many=True,
)
NETWORKS: Final = Flag(
    "--allow-networks",
    "Allow outgoing calls only to public addresses and this private network. May be repeated.",
    "CIDR",
    many=True,
)
ROOTS: Final = Flag(
    "--artefact-root",
    "A folder from which tools may return files, besides the attempt's own work folder. May be repeated.",
    "DIR",
    many=True,
)
SERVER: Final = Flag(
    "--server",
    "The server to use. Default: the server that owns the database, or the database file itself.",
    "URL",
)
WAIT: Final = Flag(
    "--wait",
    "How long to wait while another process has the database open; 0 exits at once. Default: 600.",
    "SECS",
)
RUN_ID: Final = Argument("RUN_ID", "The run: its id, the start or end of the id, or last.")
EVERY: Final = (JSON, LOG, HELP)
ON_A_FILE: Final = (DB, *EVERY)
ON_EITHER: Final = (SERVER, DB, *EVERY)

EXIT_CODES: Final = """\
Exit code: 0 completed, 1 failed or interrupted, 2 invalid or wrong usage, 3 cancelled, 4 waiting for something external;
129, 130, 143 stopped by a signal."""

INIT: Final = Command(
    "init",
    "Create a first workflow with tools, a test and settings in a folder.",
    "holdfast.cli.init:command",
    "The files work as they are. Existing files are not overwritten unless you give --force.",
    ("holdfast init", "holdfast init my-project"),
    (
        Argument(
            "DIR",
            "The folder; created if it does not exist. Default: the current folder.",
            required=False,
            files="dirs",
        ),
    ),
    (Flag("--force", "Overwrite existing files."), *EVERY),
)
INPUTS: Final = (
    Flag(
        "--input",
        "One input, parsed as JSON if it is valid JSON, otherwise taken as text. May be repeated.",
        "NAME=VALUE",
        "-i",
        many=True,
    ),
    Flag("--inputs", "All inputs as a JSON object, or @FILE.", "JSON"),
)
RUN: Final = Command(
    "run",
    "Run a workflow to its end, or continue a stopped run.",
    "holdfast.cli.run:command",
    f"""\
The result of each step is on disk before the next step starts: after Ctrl-C, kill -9 or a power cut, --continue continues
the run where it stopped. The run keeps the definition that it started with, even if the file has changed since.

If a server owns the database, or --server names one, the server executes the run: the tools must be loaded there, the run
continues when this command is stopped, and this command only follows it. If a program or another holdfast run has the database
open, this command waits until that process ends.

{EXIT_CODES}""",
    (
        "holdfast run hello.yaml --tools tools -i name=Ada",
        "holdfast run hello.yaml --inputs @inputs.json --json",
        "holdfast run --continue last",
    ),
    (
        Argument(
            "FILE|NAME",
            "The workflow file, or the name of a published workflow. Not needed with --continue.",
            required=False,
            files="yaml",
        ),
    ),
    (
        *INPUTS,
        TOOLS,
        NETWORKS,
        ROOTS,
        SERVER,
        DB,
        Flag(
            "--continue",
            "Continue this run: its id, the start or end of the id, or last (the newest open run).",
            "RUN_ID",
        ),
        WAIT,
        Flag("--all-steps", "Show every step, not only top-level and failed ones."),
        *EVERY,
    ),
)
START: Final = Command(
    "start",
    "Start a run of a file or of a published workflow, and follow it.",
    "holdfast.cli.start:command",
    f"""\
The run is durable as soon as its id is printed. If a server owns the database, or --server names one, the server executes the
run and this command only follows it; so does a program that has the database open. Otherwise this command executes the run
itself, as holdfast run does; with --detach it only stores the run, and the next server that opens the database executes it.

With --request-id the same command can be repeated safely: it starts one run, however often it is given.

{EXIT_CODES}""",
    (
        "holdfast start hello -i name=Ada",
        "holdfast start hello --detach --label team=x",
        "holdfast start hello.yaml --request-id order-7",
    ),
    (Argument("NAME|FILE", "The name of a published workflow, or a workflow file.", files="yaml"),),
    (
        *INPUTS,
        Flag("--detach", "Print the id of the run and return at once."),
        Flag("--label", "A label of the run. May be repeated.", "NAME=VALUE", many=True),
        Flag("--request-id", "The id of this request: repeating it returns the same run.", "ID"),
        TOOLS,
        NETWORKS,
        ROOTS,
        WAIT,
        Flag("--all-steps", "Show every step, not only top-level and failed ones."),
        *ON_EITHER,
    ),
)
VALIDATE: Final = Command(
    "validate",
    "Check workflow and schedule files, and report every problem with line, column and hint.",
    "holdfast.cli.check:command",
    """\
A file named schedules.yaml or *.schedules.yaml, or with the key `schedules`, is checked as a schedule file. Schedule files
are also checked together: no two schedules may have the same id or webhook path. Of a SKILL.md the front matter is checked.
With --tools, a step that names any other tool is a problem too.

With --fix, the repairs that are known are shown as a diff and then written to the files; on a terminal you are asked first,
unless you give --yes. Comments and layout stay as far as possible.""",
    (
        "holdfast validate hello.yaml",
        "holdfast validate hello.yaml --fix",
        "holdfast validate flows/*.yaml --tools tools",
        "holdfast validate schedules/*.schedules.yaml",
    ),
    (Argument("FILE", "The files to check.", many=True, files="yaml"),),
    (
        TOOLS,
        Flag("--fix", "Repair what can be repaired: show the changes, then write them."),
        Flag("--yes", "Write the repairs without asking."),
        *EVERY,
    ),
)
PLAN: Final = Command(
    "plan",
    "Show what a workflow would do: its steps, the tools that it calls, and which of them are destructive.",
    "holdfast.cli.plan:command",
    """\
Nothing is executed or stored. The tools of --tools say whether they are destructive, read-only or idempotent
(@tool(destructive=True)). The hash changes with the definition, the workflows that it names, and the marks of its tools: a start
with `plan_hash` is refused if the plan has changed since.""",
    ("holdfast plan hello.yaml", "holdfast plan hello.yaml --tools tools --json"),
    (Argument("FILE", "The workflow file.", files="yaml"),),
    (TOOLS, *EVERY),
)
SCHEMA: Final = Command(
    "schema",
    "Print the JSON Schema of workflow or schedule files, for completion and checks in editors.",
    "holdfast.cli.init:schema_command",
    "Editors with YAML support find the schema through a first line: # yaml-language-server: $schema=holdfast.schema.json",
    (
        "holdfast schema > holdfast.schema.json",
        "holdfast schema graph > graph.schema.json",
        "holdfast schema schedules > schedules.schema.json",
    ),
    (
        Argument(
            "NOTATION",
            "steps, graph or schedules. Default: steps.",
            required=False,
            choices=("steps", "graph", "schedules"),
        ),
    ),
    (Flag("--graph", "The same as holdfast schema graph."), *EVERY),
)
RUNS_LIST: Final = Command(
    "runs list",
    "List runs, newest first.",
    "holdfast.cli.runs:list_command",
    "Asks the server that owns the database, or reads the database file, even while another process uses it.",
    ("holdfast runs list", "holdfast runs list --status failed --workflow hello --label team=x"),
    (),
    (
        Flag("--status", "Only runs with this status.", "STATUS", choices=STATUSES),
        Flag("--workflow", "Only runs of this workflow.", "NAME"),
        Flag("--label", "Only runs with this label, or with this value of it.", "NAME[=VALUE]"),
        Flag("--limit", "Maximum number of runs, up to 500. Default: 20.", "N"),
        Flag("--cursor", "Continue an earlier list: the cursor printed at its end.", "CURSOR"),
        *ON_EITHER,
    ),
)
RUNS_SHOW: Final = Command(
    "runs show",
    "Show a run and its steps, with states, attempts, times, outputs and errors.",
    "holdfast.cli.runs:show_command",
    "Asks the server that owns the database, or reads the database file, even while another process uses it.",
    ("holdfast runs show 0199f3c4-…", "holdfast runs show 5d1e --all-steps --json"),
    (RUN_ID,),
    (
        Flag("--all-steps", "Show every step, including those inside loops and branches."),
        Flag("--trace", "Show where the tools of failed attempts raised their exceptions."),
        *ON_EITHER,
    ),
)
RUNS_LOGS: Final = Command(
    "runs logs",
    "Print the log lines of a run, or of one of its steps.",
    "holdfast.cli.run_logs:command",
    """\
These are the lines that tools write with context.log and with Python's logging, what isolated tools print, and the traceback of
each attempt that raised an exception. An attempt keeps 1,000 lines or 64 KiB.""",
    ("holdfast runs logs last", "holdfast runs logs 5d1e send --follow"),
    (RUN_ID, Argument("STEP", "Only this step, by its path, and the steps inside it.", required=False)),
    (Flag("--follow", "Print new lines until the run ends.", short="-f"), *ON_EITHER),
)
RUNS_EXPLAIN: Final = Command(
    "runs explain",
    "Explain why a run makes no progress: what each open step waits for, and what would unblock it.",
    "holdfast.cli.runs:explain_command",
    "Asks the server that owns the database, or reads the database file, even while another process uses it.",
    ("holdfast runs explain 0199f3c4-…",),
    (RUN_ID,),
    ON_EITHER,
)
RUNS_CANCEL: Final = Command(
    "runs cancel",
    "Cancel a run, at the server that executes it or in a database that no process is using.",
    "holdfast.cli.runs:cancel_command",
    "No new step starts, calls in progress are asked to stop, and the run ends as cancelled. This is durable when\nthe command returns.",
    ("holdfast runs cancel 0199f3c4-…", 'holdfast runs cancel 5d1e --reason "wrong inputs"'),
    (RUN_ID,),
    (Flag("--reason", "The reason, stored with the run.", "TEXT"), *ON_EITHER),
)
RUNS_WATCH: Final = Command(
    "runs watch",
    "Follow a run live until it ends, or follow the events of all runs.",
    "holdfast.cli.watch:command",
    f"""\
For one run it prints the same as holdfast run, from the start of the run; stopping this command does not affect the run.
Without a run it prints one line per event of all runs, from now on. --json prints each event as a line of JSON.

{EXIT_CODES}""",
    ("holdfast runs watch 0199f3c4-…", "holdfast runs watch last", "holdfast runs watch --json"),
    (Argument(RUN_ID.metavar, f"{RUN_ID.help} Default: all runs.", required=False),),
    (Flag("--all-steps", "Show every step, not only top-level and failed ones."), *ON_EITHER),
)
RUNS_RERUN: Final = Command(
    "runs rerun",
    "Rerun a finished run as a new run: from the start, from a step, or only what failed.",
    "holdfast.cli.runs:rerun_command",
    f"""\
The new run has the same definition, and the same inputs unless -i changes some. With --from it starts at that step and
takes over the outputs of the steps before it. With --failed it repeats the steps and items that failed, and the steps after
them. Name a step inside another step by its path, as runs show --all-steps prints it.

{EXIT_CODES}""",
    (
        "holdfast runs rerun 0199f3c4-… --tools tools",
        "holdfast runs rerun 5d1e --from send --tools tools",
        "holdfast runs rerun 5d1e --from 'loop[3].send' --preview",
        "holdfast runs rerun 5d1e --failed -i retries=5 --tools tools",
    ),
    (RUN_ID,),
    (
        Flag(
            "--from",
            "Start at this step, or at this item of a foreach, and take over the rest. May be repeated.",
            "STEP",
            many=True,
        ),
        Flag(
            "--failed",
            "Repeat what failed, and take over the rest; with --from, only what failed inside that step.",
        ),
        *INPUTS,
        Flag("--preview", "Only print which steps would run."),
        TOOLS,
        NETWORKS,
        ROOTS,
        WAIT,
        Flag("--all-steps", "Show every step, not only top-level and failed ones."),
        *ON_EITHER,
    ),
)
APPROVE: Final = Command(
    "approve",
    "Answer an approval that a run waits for, or create a link that lets another person answer it.",
    "holdfast.cli.answers:approve_command",
    """\
The answer goes to the server that executes the run, or into a database that no process is using; in that case continue the
run with holdfast run --continue. When the command returns, the answer is on disk. Once the approval is decided, later
answers are refused.""",
    (
        "holdfast approve 0199f3c4-…",
        'holdfast approve 5d1e gate --deny --reason "too dear"',
        "holdfast approve last gate --form '{\"amount\": 7}' --by ada",
        "holdfast approve last gate --link --by ada",
    ),
    (
        Argument(
            RUN_ID.metavar, "The run: its id, the start or end of the id, or last (the newest open run)."
        ),
        Argument(
            "PATH", "The step that waits for approval. Not needed if there is only one.", required=False
        ),
    ),
    (
        Flag("--deny", "Deny instead of approving."),
        Flag("--reason", "The reason, stored with the run.", "TEXT"),
        Flag("--form", "The values of the form, as JSON, or @FILE.", "JSON"),
        Flag("--by", "The name of the approver. Default: the name of the API key.", "NAME"),
        Flag("--link", "Do not answer; print a link with which anyone who has it can answer once."),
        *ON_EITHER,
    ),
)
SIGNAL: Final = Command(
    "signal",
    "Send a signal to a run: the step that waits for it continues, now or when it is reached.",
    "holdfast.cli.answers:signal_command",
    """\
In a graph the signal is written to shared state, and waiting nodes check their conditions again. When the command returns,
the signal is on disk. If no process is using the database, continue the run with holdfast run --continue.""",
    (
        "holdfast signal 0199f3c4-… paid",
        "holdfast signal last paid '{\"amount\": 7}' --correlation order-7",
    ),
    (
        Argument(
            RUN_ID.metavar, "The run: its id, the start or end of the id, or last (the newest open run)."
        ),
        Argument("KEY", "The name of the signal."),
        Argument(
            "VALUE",
            "The value, parsed as JSON if it is valid JSON, otherwise taken as text. Default: null.",
            required=False,
        ),
    ),
    (
        Flag("--correlation", "Deliver it only to a step that waits with this correlation value.", "TEXT"),
        *ON_EITHER,
    ),
)
RESUME: Final = Command(
    "resume",
    "Deliver the result of a call that returned pending.",
    "holdfast.cli.answers:resume_command",
    """\
The result becomes the output of the step that waits for the task. A result that arrives before the step waits is kept for a
day; a second result changes nothing. To continue a stopped run, use holdfast run --continue instead.

Exit code: 0 delivered (now or earlier) or kept; 1 no step waits for it, or the wait has expired.""",
    (
        'holdfast resume T9 --result \'{"success": true, "data": {}}\'',
        "holdfast resume T9 --result @answer.json --run 5d1e",
        'holdfast resume T9 --error "no such wiki"',
    ),
    (Argument("TASK_ID", "The task id that the call returned."),),
    (
        Flag("--result", "The result, as JSON, or @FILE.", "JSON"),
        Flag("--error", "Report a failure with this message: the step fails or is retried.", "TEXT"),
        Flag("--run", "The run, if several wait for this task id.", "RUN_ID"),
        *ON_EITHER,
    ),
)
NAME: Final = Argument("NAME", "The workflow's name.")
FLOWS_PUBLISH: Final = Command(
    "flows publish",
    "Publish workflow files under their names.",
    "holdfast.cli.flows:publish_command",
    "A version never changes, and a run keeps the version it started with. All files are checked before any is published.",
    (
        "holdfast flows publish hello.yaml",
        "holdfast flows publish flows/*.yaml --server http://127.0.0.1:8070",
    ),
    (Argument("FILE", "The definitions, in either notation.", many=True, files="yaml"),),
    (
        Flag("--draft", "Store the version, but do not make it the current one."),
        Flag(
            "--strict",
            "Refuse a file that calls a tool that no engine has, or a service that no worker serves.",
        ),
        *ON_EITHER,
    ),
)
FLOWS_LIST: Final = Command(
    "flows list",
    "List published workflows, and files in the server's folder that have mistakes.",
    "holdfast.cli.flows:list_command",
    "",
    ("holdfast flows list",),
    (),
    ON_EITHER,
)
FLOWS_SHOW: Final = Command(
    "flows show",
    "Print the definition of a workflow, and list its versions.",
    "holdfast.cli.flows:show_command",
    "",
    ("holdfast flows show hello", "holdfast flows show hello --number 2"),
    (NAME,),
    (Flag("--number", "The version with this number. Default: the current version.", "N"), *ON_EITHER),
)
FLOWS_DIFF: Final = Command(
    "flows diff",
    "Show what changed from one version of a workflow to another.",
    "holdfast.cli.flows:diff_command",
    "",
    ("holdfast flows diff hello 1 2",),
    (
        NAME,
        Argument("A", "The number of the first version."),
        Argument("B", "The number of the second version."),
    ),
    ON_EITHER,
)
FLOWS_ROLLBACK: Final = Command(
    "flows rollback",
    "Make an earlier version of a workflow the current one again.",
    "holdfast.cli.flows:rollback_command",
    "Runs that have started keep their version. If the server publishes a folder, correct the file too: its next change publishes it.",
    ("holdfast flows rollback hello 1",),
    (NAME, Argument("N", "The number of the version.")),
    ON_EITHER,
)
UP: Final = Command(
    "up",
    "Start the server: it executes every open run in the database and serves the HTTP API.",
    "holdfast.cli.up:command",
    """\
On a loopback address and without any API key, every user of this machine may do everything (local mode). Once a key exists,
every request needs one; on any other address a key must exist (guarded mode). Ctrl-C stops gracefully: nothing is lost.""",
    (
        "holdfast up --tools tools --flows flows --schedules schedules",
        "holdfast up --tools tools --reload",
        "holdfast up --port 8071 --db sqlite:///other.db",
        "holdfast up --demo",
    ),
    (),
    (
        Flag("--host", "The address to listen on. Default: 127.0.0.1.", "HOST"),
        Flag("--port", "The port to listen on; 0 picks a free one. Default: 8070.", "PORT"),
        TOOLS,
        PLUGINS,
        Flag("--flows", "Publish the definitions in this folder, now and whenever a file changes.", "DIR"),
        Flag(
            "--schedules",
            "Fire the schedules in the schedule files of this folder; read again whenever a file changes.",
            "DIR",
        ),
        Flag(
            "--skills",
            "Publish the workflows of the skills in this folder as SKILL::NAME, and fire their schedules.",
            "DIR",
        ),
        Flag("--public-url", "The address at which clients reach this server.", "URL"),
        NETWORKS,
        ROOTS,
        Flag(
            "--reload",
            "Restart the server with the new code whenever a file of the tools or plugins changes; the port stays open.",
        ),
        Flag("--demo", "Also run a demo worker with the services transform, sum and route."),
        Flag("--quiet", "Log only warnings and failed runs, not every run that starts and ends."),
        Flag(
            "--log-level",
            "The least level of log lines: debug, info, warning or error.",
            "LEVEL",
            choices=("debug", "info", "warning", "error"),
        ),
        *ON_A_FILE,
    ),
)
MCP: Final = Command(
    "mcp",
    "Speak MCP on standard input and output, for agents that start their servers themselves.",
    "holdfast.cli.mcp:command",
    """\
If a server owns the database, or --server names one, this command is a client of it. Otherwise it serves the database itself
while it runs, and other commands find it. Workflows are published by --flows, or by holdfast flows publish. A server speaks MCP
over HTTP at /mcp.""",
    (
        "holdfast mcp --flows flows --tools tools",
        "holdfast mcp --server http://127.0.0.1:8070",
    ),
    (),
    (
        SERVER,
        TOOLS,
        Flag("--flows", "Publish the definitions in this folder, now and whenever a file changes.", "DIR"),
        Flag(
            "--skills",
            "Publish the workflows of the skills in this folder as SKILL::NAME, and fire their schedules.",
            "DIR",
        ),
        NETWORKS,
        ROOTS,
        *ON_A_FILE,
    ),
)
WORKER: Final = Command(
    "worker",
    "Run a worker: provide the tools of a module as services to a server.",
    "holdfast.cli.worker:command",
    """\
The server calls the worker at its URL; with --pull the worker fetches its jobs instead, and the server need not be able to
reach it. The worker retries its registration until it succeeds, and registers again when the server has forgotten it. On
Ctrl-C or SIGTERM it finishes its current calls, for up to 30 seconds. REGISTRY_URL and WORKER_URL are used if --server and
--url are not given.""",
    (
        "holdfast worker tools --server http://127.0.0.1:8070",
        "holdfast worker tools --pull --concurrency 4",
        "holdfast worker holdfast.sdk.demo",
    ),
    (Argument("MODULE", "The tools: a module, or module:object.", many=True),),
    (
        SERVER,
        Flag("--pull", "Fetch jobs instead of being called."),
        Flag(
            "--url", "The URL at which the server reaches the worker. Default: http://localhost:8080.", "URL"
        ),
        Flag("--id", "The worker's id. Default: worker- and a number.", "NAME"),
        Flag("--concurrency", "Maximum number of calls at the same time. Default: 32.", "N"),
        *EVERY,
    ),
)
DEMO: Final = Command(
    "demo",
    "Run two tasks of a small graph with a server and a worker, and show what each node did.",
    "holdfast.cli.demo:command",
    "Uses the server given by --server, or the one on port 8070; if there is none, it starts a temporary one.",
    ("holdfast demo", "holdfast demo --server http://127.0.0.1:8070 --json"),
    (),
    (SERVER, *EVERY),
)
TENANT: Final = Flag(
    "--tenant", "The tenant of the keys. Default: the tenant of your own key, or the tenant default.", "NAME"
)
KEYS_CREATE: Final = Command(
    "keys create",
    "Create an API key. It is shown once, on standard output.",
    "holdfast.cli.keys:create_command",
    """\
As soon as the first key exists, every request to the server needs a key, even if all keys are revoked later. Send it as
`Authorization: Bearer …`, or put it into HOLDFAST_API_KEY for holdfast's own commands.

Scopes: read for queries; run to start, cancel and rerun runs and to publish workflows; approve to answer approvals; resume to
deliver callbacks; worker for workers; admin for everything.""",
    (
        "holdfast keys create me --scope admin",
        "holdfast keys create ci --scope run --scope read --tenant acme --expires-days 90",
        "holdfast keys create gpu-box --scope worker --service render",
        "holdfast keys create agent --scope run --scope read --tools echo --tools 'mail/*' --workflows 'report_*'",
    ),
    (Argument("NAME", "A name for the key."),),
    (
        Flag("--scope", "A scope of the key. May be repeated.", "SCOPE", many=True, choices=SCOPES),
        Flag("--service", "For a worker: limit the key to this service. May be repeated.", "NAME", many=True),
        Flag(
            "--tools",
            "Limit the definitions of the key's holder to this tool or service. A pattern such as `mail/*` names several. May be repeated.",
            "NAME",
            many=True,
        ),
        Flag(
            "--workflows",
            "Limit the key to this published workflow, or to those that fit a pattern. May be repeated.",
            "NAME",
            many=True,
        ),
        Flag("--skip-gate", "Definitions of the key's holder need no approval before destructive tools."),
        Flag("--expires-days", "The key expires after this many days. Default: never.", "N"),
        TENANT,
        *ON_EITHER,
    ),
)
KEYS_LIST: Final = Command(
    "keys list",
    "List API keys with their scopes, last use and state.",
    "holdfast.cli.keys:list_command",
    "The keys themselves are not stored, only their hashes.",
    ("holdfast keys list", "holdfast keys list --tenant acme --json"),
    (),
    (TENANT, *ON_EITHER),
)
NODES: Final = Command(
    "nodes",
    "List the engine processes of a server.",
    "holdfast.cli.nodes:command",
    "Shows the name, epoch, address, version, start time, number of runs in memory and state of each.",
    ("holdfast nodes", "holdfast nodes --server http://127.0.0.1:8070 --json"),
    (),
    ON_EITHER,
)
WORKERS: Final = Command(
    "workers",
    "List the services of a server: their workers, and the calls that wait for one.",
    "holdfast.cli.workers:command",
    """\
A step whose service has no worker waits for one, until its timeout or that of its run. This list says since when a service has
no worker, how many calls wait for it, and how to start one.""",
    ("holdfast workers", "holdfast workers --server http://127.0.0.1:8070 --json"),
    (),
    ON_EITHER,
)
KEYS_REVOKE: Final = Command(
    "keys revoke",
    "Revoke an API key, at once and permanently.",
    "holdfast.cli.keys:revoke_command",
    "",
    ("holdfast keys revoke key-5f0c8d1e2b3a4956",),
    (Argument("KEY_ID", "The key's id, as holdfast keys list shows it."),),
    (TENANT, *ON_EITHER),
)
DELIVERY_ID: Final = Argument("DELIVERY_ID", "The id, as holdfast dead-letters list shows it.")
DEAD_LETTERS_LIST: Final = Command(
    "dead-letters list",
    "List final callbacks that were given up: not accepted for three days, or refused with 410 Gone.",
    "holdfast.cli.dead_letters:list_command",
    "",
    ("holdfast dead-letters list", "holdfast dead-letters list --json"),
    (),
    ON_EITHER,
)
DEAD_LETTERS_REPLAY: Final = Command(
    "dead-letters replay",
    "Send a dead letter again, as if its run had just ended.",
    "holdfast.cli.dead_letters:replay_command",
    "Its webhook-id stays the same. If no process is using the database, it is sent once; if that fails, the next server retries it.",
    ("holdfast dead-letters replay msg_01890a5d-ac96-774b-bcce-b302099a8057_0",),
    (DELIVERY_ID,),
    (NETWORKS, *ON_EITHER),
)
DEAD_LETTERS_DISCARD: Final = Command(
    "dead-letters discard",
    "Discard a dead letter permanently.",
    "holdfast.cli.dead_letters:discard_command",
    "It is no longer listed; it is deleted with its run.",
    ("holdfast dead-letters discard msg_01890a5d-ac96-774b-bcce-b302099a8057_0",),
    (DELIVERY_ID,),
    ON_EITHER,
)
SCHEDULE_ID: Final = Argument("ID", "The schedule's id, as holdfast schedules list shows it.")
SCHEDULES_LIST: Final = Command(
    "schedules list",
    "List schedules with their state and next fire, and mistakes in the server's schedule files.",
    "holdfast.cli.schedules:list_command",
    """\
Asks the server that owns the database, or reads the database file, even while another process uses it.

With --plugins it lists what these plugins declare instead, without running them, and opens no database. A plugin that cannot
be used is reported with all its problems, and the exit code is 2.""",
    (
        "holdfast schedules list",
        "holdfast schedules list --json",
        "holdfast schedules list --plugins cleaner",
    ),
    (),
    (PLUGINS, *ON_EITHER),
)
SCHEDULES_SHOW: Final = Command(
    "schedules show",
    "Show a schedule: when it fires in words, its next fires, and what became of the last ones.",
    "holdfast.cli.schedules:show_command",
    "",
    ("holdfast schedules show nightly", "holdfast schedules show nightly --json"),
    (SCHEDULE_ID,),
    ON_EITHER,
)
SCHEDULES_WHY: Final = Command(
    "schedules why",
    "Explain why a schedule did or did not fire, or whether it will: the reason, and what would change it.",
    "holdfast.cli.schedules:why_command",
    """\
Without WHEN it explains the last occurrences. WHEN is a date or a time in the zone of the schedule, a time with an offset, or
the id of a delivery; for a time to come it says whether the schedule fires then, and what would stop it.""",
    (
        "holdfast schedules why nightly",
        "holdfast schedules why nightly 2026-03-29",
        "holdfast schedules why nightly 2026-03-29T02:30 --json",
    ),
    (SCHEDULE_ID, Argument("WHEN", "A date, a time, or the id of a delivery.", required=False)),
    (Flag("--limit", "Maximum number of occurrences, up to 500. Default: 20.", "N"), *ON_EITHER),
)
ACT: Final = "Asks the server that owns the database, or changes a database file that no process is using."
SCHEDULES_PUT: Final = Command(
    "schedules put",
    "Create or replace schedules from schedule files.",
    "holdfast.cli.schedule_acts:put_command",
    f"""\
{ACT} All files are checked first. An edit keeps how far a
schedule has come. Schedules of a folder that the server reads are changed in their files instead.""",
    ("holdfast schedules put nightly.schedules.yaml",),
    (Argument("FILE", "The schedule files.", many=True, files="yaml"),),
    ON_EITHER,
)
SCHEDULES_DELETE: Final = Command(
    "schedules delete",
    "Delete a schedule. Its runs go on, and its ledger stays.",
    "holdfast.cli.schedule_acts:delete_command",
    ACT,
    ("holdfast schedules delete nightly",),
    (SCHEDULE_ID,),
    ON_EITHER,
)
SCHEDULES_FIRE: Final = Command(
    "schedules fire",
    "Fire a schedule now, besides its times.",
    "holdfast.cli.schedule_acts:fire_command",
    f"""\
{ACT} In a file the run is stored, and the next server executes it.
At the limit of max_concurrent it is refused.""",
    (
        "holdfast schedules fire nightly",
        'holdfast schedules fire on-upload --payload \'{"file": "a.csv"}\'',
    ),
    (SCHEDULE_ID,),
    (Flag("--payload", "The payload of the trigger, as JSON. Default: {}.", "JSON"), *ON_EITHER),
)
SCHEDULES_DELIVERIES: Final = Command(
    "schedules deliveries",
    "List the deliveries of a webhook, or the events of another trigger, newest first.",
    "holdfast.cli.schedules:deliveries_command",
    "Deliveries that were refused at max_concurrent, or while the schedule was paused, are one line together.",
    ("holdfast schedules deliveries on-push", "holdfast schedules deliveries on-push --limit 5 --json"),
    (SCHEDULE_ID,),
    (Flag("--limit", "Maximum number of lines, up to 500. Default: 20.", "N"), *ON_EITHER),
)
SCHEDULES_REDELIVER: Final = Command(
    "schedules redeliver",
    "Start a run for a delivery once more, with the payload that was kept.",
    "holdfast.cli.schedule_acts:redeliver_command",
    f"""\
{ACT} In a file the run is stored, and the next server executes it.
Payloads up to the limit delivery_bytes_max are kept, as long as the ledger.""",
    ("holdfast schedules redeliver on-push 72d3162e-cc78-11e3-81ab-4c9367dc0958",),
    (SCHEDULE_ID, Argument("DELIVERY", "The delivery, as holdfast schedules deliveries shows it.")),
    ON_EITHER,
)
SCHEDULES_PAUSE: Final = Command(
    "schedules pause",
    "Pause a schedule: it does not fire until it is resumed.",
    "holdfast.cli.schedule_acts:pause_command",
    f"{ACT} Also for schedules of files. Its ledger shows what was skipped.",
    ("holdfast schedules pause nightly",),
    (SCHEDULE_ID,),
    ON_EITHER,
)
SCHEDULES_RESUME: Final = Command(
    "schedules resume",
    "Resume a paused schedule.",
    "holdfast.cli.schedule_acts:resume_command",
    f"{ACT} What was due during the pause does not fire, unless --missed is given.",
    ("holdfast schedules resume nightly", "holdfast schedules resume nightly --missed"),
    (SCHEDULE_ID,),
    (Flag("--missed", "Catch up the occurrences of the pause, one after the other."), *ON_EITHER),
)
SCHEDULES_BACKFILL: Final = Command(
    "schedules backfill",
    "Start the occurrences of a period that have no run.",
    "holdfast.cli.schedule_acts:backfill_command",
    f"""\
{ACT} FROM and TO are dates or times in the zone of the
schedule, or times with an offset; both are included. Only occurrences of the past are started. Those that have a run are left
out, so a backfill can be repeated.""",
    (
        "holdfast schedules backfill nightly 2026-03-01 2026-03-31 --preview",
        "holdfast schedules backfill nightly 2026-03-01T00:00:00Z 2026-03-02T00:00:00Z --max-per-sec 2",
    ),
    (
        SCHEDULE_ID,
        Argument("FROM", "The first date or time."),
        Argument("TO", "The last date or time; a date includes the whole day."),
    ),
    (
        Flag("--preview", "Only list the occurrences that would be started."),
        Flag(
            "--max-per-sec",
            "Start at most this many a second, up to 1,000. Default: as many as max_concurrent allows.",
            "N",
        ),
        *ON_EITHER,
    ),
)
SCHEDULES_NEXT: Final = Command(
    "schedules next",
    "Show what a cron expression or an interval means: in words, and as the next times at which it is due.",
    "holdfast.cli.upcoming:command",
    """\
With 6 or 7 fields (second minute hour day month weekday [year]) weekdays count from 1 = Sunday, and a date must match day and
weekday. With 5 fields (minute hour day month weekday), as in Unix, 0 and 7 are Sunday, and one of the two is enough. Schedule
files accept 6 and 7 fields. Also: @hourly, @daily, @weekly, @monthly, @yearly, @every 1h30m and 1h30m. Several expressions are
due whenever one of them is.""",
    (
        'holdfast schedules next "0 30 2 * * MON-FRI" --tz Europe/Berlin -n 10',
        'holdfast schedules next "*/15 9-17 * * 1-5" --json',
        'holdfast schedules next "0 30 2 * * *" --tz America/New_York --after 2027-03-13 --gap skip',
    ),
    (Argument("EXPR", "The expression, in quotation marks. May be repeated.", many=True),),
    (
        Flag("--tz", "The time zone, by its IANA name. Default: UTC.", "ZONE"),
        Flag("--limit", "How many times to show, up to 500. Default: 10.", "N", "-n"),
        Flag("--after", "Begin after this date or time instead of now.", "TIME"),
        Flag(
            "--gap",
            "What a fixed time does that does not exist because clocks go forward: run_after (the default) or skip.",
            "WORD",
            choices=("run_after", "skip"),
        ),
        Flag(
            "--fold",
            "Which of the two counts when a fixed time comes twice: first (the default), second or both.",
            "WORD",
            choices=("first", "second", "both"),
        ),
        *EVERY,
    ),
)
BACKUP: Final = Command(
    "backup",
    "Copy the database into a new file, even while another process writes to it.",
    "holdfast.cli.upkeep:backup_command",
    """\
The copy is a consistent snapshot, is verified, and can be used as a database. An existing file is not overwritten.

A plain backup replaces the original when that is lost. To use a copy beside the original, make it with --as-copy: the copy
does not accept job tokens, callback URLs and approval links that the original issued.""",
    ("holdfast backup holdfast-copy.db", "holdfast backup trial.db --as-copy"),
    (Argument("FILE", "The file to write.", files="any"),),
    (
        Flag("--as-copy", "Give the copy its own identity, so that it can be used beside the original."),
        *ON_A_FILE,
    ),
)
DOCTOR: Final = Command(
    "doctor",
    "Check the database and the machine.",
    "holdfast.cli.upkeep:doctor_command",
    """\
Only reads the database, unless --forget-key, --retry-run or --accept-loss is given. These check nothing, and all but
--retry-run need the database to themselves.

Exit code: 0 no problem found, 1 there is a problem.""",
    (
        "holdfast doctor",
        "holdfast doctor --db sqlite:///holdfast-copy.db --json",
        "holdfast doctor --forget-key invoice-17",
    ),
    (),
    (
        Flag(
            "--accept-loss",
            "Continue without acknowledged commits that are missing from the file, for example after restoring an older copy.",
        ),
        Flag(
            "--forget-key",
            "Forget the stored output of this global idempotency key: the next step with this key makes its call again.",
            "KEY",
        ),
        Flag(
            "--retry-run",
            "Retry a run that was quarantined because it crashed the process three times. A running server continues it at once.",
            "RUN_ID",
        ),
        *ON_A_FILE,
    ),
)
COMPLETION: Final = Command(
    "completion",
    "Print the shell completion script.",
    "holdfast.cli.completion:command",
    "holdfast --install-completion installs it for your shell.",
    ("holdfast completion bash", "source <(holdfast completion zsh)"),
    (Argument("SHELL", "bash, zsh or fish.", choices=SHELLS),),
    EVERY,
)
VERSION: Final = Command(
    "version", "Print the version.", "holdfast.cli.main:version_command", "", ("holdfast version",), (), EVERY
)

SHELVES: Final = {
    "Write and run": (INIT, RUN, START, VALIDATE, PLAN, SCHEMA),
    "Manage runs": (RUNS_LIST, RUNS_SHOW, RUNS_WATCH, RUNS_LOGS, RUNS_EXPLAIN, RUNS_CANCEL, RUNS_RERUN),
    "Answer waiting runs": (APPROVE, SIGNAL, RESUME),
    "Run a server": (UP, MCP, WORKER, WORKERS, NODES, DEMO),
    "Manage workflows": (FLOWS_PUBLISH, FLOWS_LIST, FLOWS_SHOW, FLOWS_DIFF, FLOWS_ROLLBACK),
    "Manage schedules": (
        SCHEDULES_LIST,
        SCHEDULES_SHOW,
        SCHEDULES_WHY,
        SCHEDULES_NEXT,
        SCHEDULES_PUT,
        SCHEDULES_DELETE,
        SCHEDULES_FIRE,
        SCHEDULES_DELIVERIES,
        SCHEDULES_REDELIVER,
        SCHEDULES_PAUSE,
        SCHEDULES_RESUME,
        SCHEDULES_BACKFILL,
    ),
    "Manage API keys": (KEYS_CREATE, KEYS_LIST, KEYS_REVOKE),
    "Manage final callbacks": (DEAD_LETTERS_LIST, DEAD_LETTERS_REPLAY, DEAD_LETTERS_DISCARD),
    "Maintenance": (BACKUP, DOCTOR, COMPLETION, VERSION),
}
COMMANDS: Final = {command.name: command for shelf in SHELVES.values() for command in shelf}
GROUPS: Final = tuple(dict.fromkeys(name.partition(" ")[0] for name in COMMANDS if " " in name))
