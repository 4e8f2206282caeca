"""Every command: its words, its help, what it takes, and where it is carried out. Data alone; nothing is imported for it."""

from __future__ import annotations

from typing import Final

from holdfast.cli.parser import Argument, Command, Flag

SHELLS: Final = ("bash", "zsh", "fish")
STATUSES: Final = (
    "pending", "running", "waiting", "cancelling", "completed", "failed", "cancelled", "interrupted",
)  # fmt: skip

SCOPES: Final = ("read", "run", "approve", "resume", "worker", "admin")

JSON: Final = Flag("--json", "Print JSON on standard output, and nothing else there.")
LOG: Final = Flag("--log", "How to write log lines: json or text.", "FORMAT", choices=("json", "text"))
HELP: Final = Flag("--help", "Show this help.", short="-h")
DB: Final = Flag("--db", "The database file. If not said: sqlite:///holdfast.db.", "sqlite:///FILE")
TOOLS: Final = Flag(
    "--tools", "Where tools are: a module, or module:object. May be repeated.", "MODULE", many=True
)
NETWORKS: Final = Flag(
    "--allow-networks",
    "Let steps and workers be called at public addresses and in this private network only. May be repeated.",
    "CIDR",
    many=True,
)
ROOTS: Final = Flag(
    "--artefact-root",
    "A folder that tools may hand files out of, besides the work folder of the attempt. May be repeated.",
    "DIR",
    many=True,
)
SERVER: Final = Flag(
    "--server", "The server to ask. If not said: whoever has the database, else the file itself.", "URL"
)
RUN_ID: Final = Argument("RUN_ID", "The run: its id, the beginning or end of that, or last.")
EVERY: Final = (JSON, LOG, HELP)
ON_A_FILE: Final = (DB, *EVERY)
ON_EITHER: Final = (SERVER, DB, *EVERY)

EXIT_CODES: Final = """\
Exit code: 0 completed, 1 failed or interrupted, 2 invalid or wrong usage, 3 cancelled, 4 waits for the outside;
129, 130, 143 stopped by a signal."""

INIT: Final = Command(
    "init",
    "Write a first workflow, its tools, a test and the settings into a folder.",
    "holdfast.cli.init:command",
    "What is written works as it is. A file that is already there is never touched unless --force says so.",
    ("holdfast init", "holdfast init my-project"),
    (
        Argument(
            "DIR", "The folder; made if it is not there. If not said: this one.", required=False, files="dirs"
        ),
    ),
    (Flag("--force", "Overwrite files that are already there."), *EVERY),
)
INPUTS: Final = (
    Flag(
        "--input",
        "One input: JSON where it is JSON, else text. May be repeated.",
        "NAME=VALUE",
        "-i",
        many=True,
    ),
    Flag("--inputs", "All inputs as a JSON object, or @FILE.", "JSON"),
)
RUN: Final = Command(
    "run",
    "Run a workflow to its end, or go on with a run that was stopped.",
    "holdfast.cli.run:command",
    f"""\
Each outcome is on disk before the next step begins: after Ctrl-C, kill -9 or a power cut, --continue goes on where
the run was. It goes on with the definition that it began with, also if the file has changed since.

Where a server has the database, or --server names one, the run is that server's: it needs its tools there, goes on when
this command is stopped, and is only followed here.

{EXIT_CODES}""",
    (
        "holdfast run hello.yaml --tools tools -i name=Ada",
        "holdfast run hello.yaml --inputs @inputs.json --json",
        "holdfast run --continue last",
    ),
    (Argument("FILE", "The workflow. May be left out with --continue.", required=False, files="yaml"),),
    (
        *INPUTS,
        TOOLS,
        NETWORKS,
        ROOTS,
        SERVER,
        DB,
        Flag(
            "--continue",
            "Go on with this run: its id, the beginning or end of that, or last (the newest open one).",
            "RUN_ID",
        ),
        Flag("--all-steps", "Show every step, not only top-level and failed ones."),
        *EVERY,
    ),
)
VALIDATE: Final = Command(
    "validate",
    "Report every problem of every file, with line, column and hint. Runs no step.",
    "holdfast.cli.check:command",
    "With --tools, a tool that is not among them is a problem too.",
    ("holdfast validate hello.yaml", "holdfast validate flows/*.yaml --tools tools"),
    (Argument("FILE", "The workflows to look at.", many=True, files="yaml"),),
    (TOOLS, *EVERY),
)
SCHEMA: Final = Command(
    "schema",
    "Print the JSON Schema of workflow files, for editors to complete and check with.",
    "holdfast.cli.init:schema_command",
    "An editor with YAML support reads it from a first line: # yaml-language-server: $schema=holdfast.schema.json",
    ("holdfast schema > holdfast.schema.json", "holdfast schema --graph > graph.schema.json"),
    (),
    (Flag("--graph", "The schema of the graph notation."), *EVERY),
)
RUNS_LIST: Final = Command(
    "runs list",
    "List runs, the newest first.",
    "holdfast.cli.runs:list_command",
    "Asks the server that has the database, else reads the file, also while another process drives the runs.",
    ("holdfast runs list", "holdfast runs list --status failed --workflow hello --label team=x"),
    (),
    (
        Flag("--status", "Only runs of this status.", "STATUS", choices=STATUSES),
        Flag("--workflow", "Only runs of this workflow.", "NAME"),
        Flag("--label", "Only runs with this label, or with this value of it.", "NAME[=VALUE]"),
        Flag("--limit", "How many at most, up to 500. If not said: 20.", "N"),
        Flag("--cursor", "Go on after a former list, which ends by saying where.", "CURSOR"),
        *ON_EITHER,
    ),
)
RUNS_SHOW: Final = Command(
    "runs show",
    "Show a run: its steps with states, attempts, times, outputs and errors.",
    "holdfast.cli.runs:show_command",
    "Asks the server that has the database, else reads the file, also while another process drives the run.",
    ("holdfast runs show 0199f3c4-…", "holdfast runs show 5d1e --all-steps --json"),
    (RUN_ID,),
    (Flag("--all-steps", "Show every step, those inside loops and branches too."), *ON_EITHER),
)
RUNS_EXPLAIN: Final = Command(
    "runs explain",
    "Say why a run is not further: what each open step waits for, and what would unblock it.",
    "holdfast.cli.runs:explain_command",
    "Asks the server that has the database, else reads the file, also while another process drives the run.",
    ("holdfast runs explain 0199f3c4-…",),
    (RUN_ID,),
    ON_EITHER,
)
RUNS_CANCEL: Final = Command(
    "runs cancel",
    "Cancel a run, at the server that drives it or in a file that nobody has.",
    "holdfast.cli.runs:cancel_command",
    "Nothing new starts, what is at work is told to stop, and the run ends cancelled. When it returns, that is on disk.",
    ("holdfast runs cancel 0199f3c4-…", 'holdfast runs cancel 5d1e --reason "wrong inputs"'),
    (RUN_ID,),
    (Flag("--reason", "Why, for whoever looks at the run later.", "TEXT"), *ON_EITHER),
)
RUNS_WATCH: Final = Command(
    "runs watch",
    "Follow a run live up to its end, or the events of all runs.",
    "holdfast.cli.watch:command",
    f"""\
Of one run it shows the same as holdfast run, from the run's beginning; leaving it changes nothing. Without a run it
tells of all of them from now on, one line per event. --json prints each event as a line of JSON.

{EXIT_CODES}""",
    ("holdfast runs watch 0199f3c4-…", "holdfast runs watch last", "holdfast runs watch --json"),
    (Argument(RUN_ID.metavar, f"{RUN_ID.help} If not said: all runs.", required=False),),
    (Flag("--all-steps", "Show every step, not only top-level and failed ones."), *ON_EITHER),
)
RUNS_RERUN: Final = Command(
    "runs rerun",
    "Run a finished run again as a new one, from its beginning, from a step, or only what failed.",
    "holdfast.cli.runs:rerun_command",
    f"""\
The new run has the same definition, and the same inputs unless -i changes some. With --from, it begins with that step,
and what came before is taken over and not done again. With --failed, the steps and items that failed are done again, and
what came after them. A step inside another one is named by its path, as runs show --all-steps prints it.

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
            "Begin with this step, or with this item of a foreach, and take over the rest. Several may be given.",
            "STEP",
            many=True,
        ),
        Flag(
            "--failed", "Do again what failed, and take over the rest; with --from, only what failed there."
        ),
        *INPUTS,
        Flag("--preview", "Only say which steps would run."),
        TOOLS,
        NETWORKS,
        ROOTS,
        Flag("--all-steps", "Show every step, not only top-level and failed ones."),
        *ON_EITHER,
    ),
)
APPROVE: Final = Command(
    "approve",
    "Answer an approval that a run waits for, or make a link by which somebody else can.",
    "holdfast.cli.answers:approve_command",
    """\
At the server that drives the run, or in a file that nobody has: then the run goes on with holdfast run --continue. When it
returns, the answer is on disk. The first answers that decide count; whoever comes later is told.""",
    (
        "holdfast approve 0199f3c4-…",
        'holdfast approve 5d1e gate --deny --reason "too dear"',
        "holdfast approve last gate --form '{\"amount\": 7}' --by ada",
        "holdfast approve last gate --link --by ada",
    ),
    (
        Argument(
            RUN_ID.metavar, "The run: its id, the beginning or end of that, or last (the newest open one)."
        ),
        Argument("PATH", "The step that asks. May be left out where only one does.", required=False),
    ),
    (
        Flag("--deny", "Say no. If not said: yes."),
        Flag("--reason", "Why, for whoever looks at the run later.", "TEXT"),
        Flag("--form", "What the form asks for, as JSON, or @FILE.", "JSON"),
        Flag("--by", "Who answers. If not said: whoever the key is of.", "NAME"),
        Flag("--link", "Answer nothing; print a link by which whoever has it can answer, once."),
        *ON_EITHER,
    ),
)
SIGNAL: Final = Command(
    "signal",
    "Say something to a run: the step that waits for it goes on, now or when it is reached.",
    "holdfast.cli.answers:signal_command",
    """\
In a graph it is written to shared state, and what waits there looks again. When it returns, the signal is on disk. In a
file that nobody has, the run goes on with holdfast run --continue.""",
    (
        "holdfast signal 0199f3c4-… paid",
        "holdfast signal last paid '{\"amount\": 7}' --correlation order-7",
    ),
    (
        Argument(
            RUN_ID.metavar, "The run: its id, the beginning or end of that, or last (the newest open one)."
        ),
        Argument("KEY", "What it is called."),
        Argument(
            "VALUE", "What it says: JSON where it is JSON, else text. If not said: null.", required=False
        ),
    ),
    (
        Flag("--correlation", "Only for a step that waits for the signal of this one thing.", "TEXT"),
        *ON_EITHER,
    ),
)
RESUME: Final = Command(
    "resume",
    "Deliver the result of a call that is answered later.",
    "holdfast.cli.answers:resume_command",
    """\
The result becomes the output of the step that waits for the task. One that comes before its time is kept for a day; a
second one changes nothing. To go on with a run that was stopped: holdfast run --continue.

Exit code: 0 delivered, now or before, or kept; 1 nobody waits for it any more, or ever did.""",
    (
        'holdfast resume T9 --result \'{"success": true, "data": {}}\'',
        "holdfast resume T9 --result @answer.json --run 5d1e",
        'holdfast resume T9 --error "no such wiki"',
    ),
    (Argument("TASK_ID", "The task, as whoever answers later called it."),),
    (
        Flag("--result", "The result, as JSON, or @FILE.", "JSON"),
        Flag("--error", "Why there is none: the step fails, or is tried again.", "TEXT"),
        Flag("--run", "The run, where several have a task of this id.", "RUN_ID"),
        *ON_EITHER,
    ),
)
NAME: Final = Argument("NAME", "The workflow's name.")
FLOWS_PUBLISH: Final = Command(
    "flows publish",
    "Let the names of definitions mean what these files say.",
    "holdfast.cli.flows:publish_command",
    "A version never changes, and a run keeps the one that it began with. All files are checked before any is published.",
    (
        "holdfast flows publish hello.yaml",
        "holdfast flows publish flows/*.yaml --server http://127.0.0.1:8070",
    ),
    (Argument("FILE", "The definitions, in either notation.", many=True, files="yaml"),),
    (Flag("--draft", "Store the version without letting the name mean it."), *ON_EITHER),
)
FLOWS_LIST: Final = Command(
    "flows list",
    "List published workflows, and the files of the server's folder that cannot be used.",
    "holdfast.cli.flows:list_command",
    "",
    ("holdfast flows list",),
    (),
    ON_EITHER,
)
FLOWS_SHOW: Final = Command(
    "flows show",
    "Print the definition of a workflow, and which versions it has.",
    "holdfast.cli.flows:show_command",
    "",
    ("holdfast flows show hello", "holdfast flows show hello --number 2"),
    (NAME,),
    (Flag("--number", "The version with this number. If not said: the one the name means.", "N"), *ON_EITHER),
)
FLOWS_DIFF: Final = Command(
    "flows diff",
    "Show what changed from one version of a workflow to another.",
    "holdfast.cli.flows:diff_command",
    "",
    ("holdfast flows diff hello 1 2",),
    (NAME, Argument("A", "The number of the one."), Argument("B", "The number of the other.")),
    ON_EITHER,
)
FLOWS_ROLLBACK: Final = Command(
    "flows rollback",
    "Let a name mean one of its former versions again.",
    "holdfast.cli.flows:rollback_command",
    "Runs that have begun keep their version. A folder that the server publishes from says what it says: mend the file too.",
    ("holdfast flows rollback hello 1",),
    (NAME, Argument("N", "The number of the version.")),
    ON_EITHER,
)
UP: Final = Command(
    "up",
    "Start the server: it drives every open run of the database and answers over HTTP.",
    "holdfast.cli.up:command",
    """\
On a loopback address and without any key, everybody on this machine may do everything (local mode). Where a key exists
each request needs one, and on any other address one must exist (guarded mode). Ctrl-C stops gracefully: nothing is lost.""",
    (
        "holdfast up --tools tools --flows flows",
        "holdfast up --port 8071 --db sqlite:///other.db",
        "holdfast up --demo",
    ),
    (),
    (
        Flag("--host", "The address to listen on. If not said: 127.0.0.1.", "HOST"),
        Flag("--port", "The port to listen on; 0 for any that is free. If not said: 8070.", "PORT"),
        TOOLS,
        Flag("--flows", "A folder whose definitions are published, now and when a file changes.", "DIR"),
        Flag("--public-url", "The address by which others reach this server.", "URL"),
        NETWORKS,
        ROOTS,
        Flag("--demo", "Also run a worker with the services transform, sum and route."),
        *ON_A_FILE,
    ),
)
WORKER: Final = Command(
    "worker",
    "Serve the tools of a module to a server, as services that its workflows can call.",
    "holdfast.cli.worker:command",
    """\
The server calls it at its address; with --pull it fetches its jobs instead, and needs no address that the server can
reach. It registers until it is known, and again when the server has forgotten it. Ctrl-C or SIGTERM: what is being done
is finished, for up to 30 seconds. Reads REGISTRY_URL and WORKER_URL where --server and --url are not given.""",
    (
        "holdfast worker tools --server http://127.0.0.1:8070",
        "holdfast worker tools --pull --concurrency 4",
        "holdfast worker holdfast.sdk.demo",
    ),
    (Argument("MODULE", "Where the tools are: a module, or module:object.", many=True),),
    (
        SERVER,
        Flag("--pull", "Fetch jobs, instead of being called."),
        Flag("--url", "Where the server reaches it. If not said: http://localhost:8080.", "URL"),
        Flag("--id", "Its name. If not said: worker- and a number.", "NAME"),
        Flag("--concurrency", "How many calls at a time. If not said: 32.", "N"),
        *EVERY,
    ),
)
DEMO: Final = Command(
    "demo",
    "Run two tasks of a small flow through a server and a worker, and show what each node did.",
    "holdfast.cli.demo:command",
    "Uses the server of --server, or the one on port 8070; if none is there, one of its own for as long as it takes.",
    ("holdfast demo", "holdfast demo --server http://127.0.0.1:8070 --json"),
    (),
    (SERVER, *EVERY),
)
TENANT: Final = Flag(
    "--tenant", "Whose keys are meant. If not said: the tenant default, or that of your own key.", "NAME"
)
KEYS_CREATE: Final = Command(
    "keys create",
    "Make a key for those who call the server. It is shown once, on standard output.",
    "holdfast.cli.keys:create_command",
    """\
Where a key exists the server asks each request for one, from that moment on and for ever, also if all are revoked. Send it
as `Authorization: Bearer …`, or put it into HOLDFAST_API_KEY for holdfast's own commands.

Scopes: read looks, run starts, publishes and cancels, approve and resume answer what waits, worker does work, admin may all.""",
    (
        "holdfast keys create me --scope admin",
        "holdfast keys create ci --scope run --scope read --tenant acme --expires-days 90",
        "holdfast keys create gpu-box --scope worker --service render",
    ),
    (Argument("NAME", "What people know it by."),),
    (
        Flag("--scope", "What it is for. May be repeated.", "SCOPE", many=True, choices=SCOPES),
        Flag("--service", "Of a worker: only this service. May be repeated.", "NAME", many=True),
        Flag("--expires-days", "It counts for so many days. If not said: until it is revoked.", "N"),
        TENANT,
        *ON_EITHER,
    ),
)
KEYS_LIST: Final = Command(
    "keys list",
    "List keys with their scopes, when they were used, and whether they still count.",
    "holdfast.cli.keys:list_command",
    "The keys themselves are not kept: only what is needed to know them again.",
    ("holdfast keys list", "holdfast keys list --tenant acme --json"),
    (),
    (TENANT, *ON_EITHER),
)
NODES: Final = Command(
    "nodes",
    "List the engine processes of a server.",
    "holdfast.cli.nodes:command",
    "Each with its name, epoch, address, version, when it began, the runs in its memory and its state.",
    ("holdfast nodes", "holdfast nodes --server http://127.0.0.1:8070 --json"),
    (),
    ON_EITHER,
)
KEYS_REVOKE: Final = Command(
    "keys revoke",
    "Let a key count no longer, at once and for good.",
    "holdfast.cli.keys:revoke_command",
    "",
    ("holdfast keys revoke key-5f0c8d1e2b3a4956",),
    (Argument("KEY_ID", "The key's id, as holdfast keys list shows it."),),
    (TENANT, *ON_EITHER),
)
LETTER_ID: Final = Argument("LETTER_ID", "The letter's id, as holdfast dead-letters list shows it.")
DEAD_LETTERS_LIST: Final = Command(
    "dead-letters list",
    "List final callbacks that were given up: nobody took them for three days, or their receiver is gone.",
    "holdfast.cli.dead_letters:list_command",
    "",
    ("holdfast dead-letters list", "holdfast dead-letters list --json"),
    (),
    ON_EITHER,
)
DEAD_LETTERS_REPLAY: Final = Command(
    "dead-letters replay",
    "Send a dead letter again, as if its run had ended now.",
    "holdfast.cli.dead_letters:replay_command",
    "Its webhook-id stays the same. In a file that nobody serves it is tried once; further tries are made when the file is served.",
    ("holdfast dead-letters replay msg_01890a5d-ac96-774b-bcce-b302099a8057_0",),
    (LETTER_ID,),
    (NETWORKS, *ON_EITHER),
)
DEAD_LETTERS_DISCARD: Final = Command(
    "dead-letters discard",
    "Give a dead letter up for good.",
    "holdfast.cli.dead_letters:discard_command",
    "It is not listed any more, and stays with its run until that is deleted.",
    ("holdfast dead-letters discard msg_01890a5d-ac96-774b-bcce-b302099a8057_0",),
    (LETTER_ID,),
    ON_EITHER,
)
BACKUP: Final = Command(
    "backup",
    "Copy the database into a new file, also while another process writes to it.",
    "holdfast.cli.upkeep:backup_command",
    """\
The copy holds one moment whole, is checked, and can be used as a database. A file that is there is not overwritten.

A plain backup takes the place of the original when that is gone. To use a copy beside the original, make it with --as-copy:
job tokens, callback addresses and approval links that the original gave out are not accepted by the copy.""",
    ("holdfast backup holdfast-copy.db", "holdfast backup trial.db --as-copy"),
    (Argument("FILE", "The copy.", files="any"),),
    (Flag("--as-copy", "Give the copy an identity of its own, to use it beside the original."), *ON_A_FILE),
)
DOCTOR: Final = Command(
    "doctor",
    "Check the database and the machine it is on.",
    "holdfast.cli.upkeep:doctor_command",
    """\
Reads the file only, unless --forget-key, --retry-run or --accept-loss is given: these check nothing, and all but --retry-run need
the file for themselves.

Exit code: 0 all is well, 1 there is a problem.""",
    (
        "holdfast doctor",
        "holdfast doctor --db sqlite:///holdfast-copy.db --json",
        "holdfast doctor --forget-key invoice-17",
    ),
    (),
    (
        Flag(
            "--accept-loss",
            "Go on without acknowledged commits that are missing in the file, as after going back to an older copy.",
        ),
        Flag(
            "--forget-key",
            "Forget the answer of this global idempotency key: the next step that has it is done anew.",
            "KEY",
        ),
        Flag(
            "--retry-run",
            "Let the server try this run again, which was set aside because the process died of it three times. A server that runs takes it up at once.",
            "RUN_ID",
        ),
        *ON_A_FILE,
    ),
)
COMPLETION: Final = Command(
    "completion",
    "Print the script that lets a shell complete holdfast's words.",
    "holdfast.cli.completion:command",
    "holdfast --install-completion puts it where your shell looks.",
    ("holdfast completion bash", "source <(holdfast completion zsh)"),
    (Argument("SHELL", "bash, zsh or fish.", choices=SHELLS),),
    EVERY,
)
VERSION: Final = Command(
    "version", "Print the version.", "holdfast.cli.main:version_command", "", ("holdfast version",), (), EVERY
)

SHELVES: Final = {
    "Write and run": (INIT, RUN, VALIDATE, SCHEMA),
    "Look after runs": (RUNS_LIST, RUNS_SHOW, RUNS_WATCH, RUNS_EXPLAIN, RUNS_CANCEL, RUNS_RERUN),
    "Answer what runs wait for": (APPROVE, SIGNAL, RESUME),
    "Serve": (UP, WORKER, NODES, DEMO),
    "Look after workflows": (FLOWS_PUBLISH, FLOWS_LIST, FLOWS_SHOW, FLOWS_DIFF, FLOWS_ROLLBACK),
    "Look after keys": (KEYS_CREATE, KEYS_LIST, KEYS_REVOKE),
    "Look after final callbacks": (DEAD_LETTERS_LIST, DEAD_LETTERS_REPLAY, DEAD_LETTERS_DISCARD),
    "Keep house": (BACKUP, DOCTOR, COMPLETION, VERSION),
}
COMMANDS: Final = {command.name: command for shelf in SHELVES.values() for command in shelf}
GROUPS: Final = tuple(dict.fromkeys(name.partition(" ")[0] for name in COMMANDS if " " in name))
